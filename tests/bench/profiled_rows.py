"""Why a row of RESULTS.md is what it is: a kernel of ours and the one it is held against, under Nsight Compute.

    chunkdsl build specs/user_gemm.chunk -o build/gpu && chunkdsl build tests/bench/specs/local_gemm.chunk -o build/gpu
    CHUNKDSL_GPU_BUILD=build/gpu python tests/bench/profiled_rows.py [--rows up,gemm] [--keep FOLDER]

Prints for each kernel its time, instructions, what its warps waited for (warps per issued instruction), the traffic of
L2 and memory, and the share of time in which the tensor cores worked. Clocks are left as they are, so times of two
kernels compare only roughly here. `--keep`: all counters, and where in the machine code warps waited, as CSV.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "gpu"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

SECTIONS = (
    "SpeedOfLight", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "WarpStateStats", "SchedulerStats",
    "LaunchStats", "Occupancy", "InstructionStats", "SourceCounters",
)  # fmt: skip
SHOWN = {  # the counters of a line, by their names in Nsight Compute
    "us": ("gpu__time_duration.sum", 1e-3),
    "million instructions": ("smsp__inst_executed.sum", 1e-6),
    "issuing %": ("smsp__issue_active.avg.pct_of_peak_sustained_active", 1),
    "L2 hits %": ("lts__t_sector_hit_rate.pct", 1),
    "memory %": ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", 1),
    "SM %": ("sm__throughput.avg.pct_of_peak_sustained_elapsed", 1),
    "registers": ("launch__registers_per_thread", 1),
    "warps of an SM": ("sm__warps_active.avg.per_cycle_active", 1),
}
STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")
LIMIT = 150.0  # seconds of one row


# ---- in the profiled process


def profiled(*starts) -> None:
    """Runs each once under the profiler, after it has run without."""
    import torch

    for start in starts:
        start()
        torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    for start in starts:
        start()
        torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def up(rows: int = 4096, name: str = "up") -> None:
    """A user's kernel, untouched and rewritten with all flags preset."""
    import torch
    from modules import load
    from user_kernels import PresetPeer

    machine = PresetPeer()
    op, dims = getattr(load("user_gemm")(machine=machine), name), {"M": rows}
    tensors = [torch.randn(op.local_shape(s, dims), device="cuda").mul(0.1).to(d) for d, s in op.PARAMETERS.values()]
    op(*tensors, M=rows)
    op.exact(*tensors, M=rows)
    mine = next(start for k, start in machine.started.items() if k in (f"{name}_h", f"{name}_y_partial"))
    profiled(machine.started["matmul_kernel"], mine)


def gemm(M: int = 4096, N: int = 4096, K: int = 1792) -> None:
    """cuBLAS and the emitted GEMM."""
    import torch
    from local_ranks import Board, LocalMachine
    from modules import load

    machine = LocalMachine(Board(1), 0, torch.cuda.get_device_properties(0).multi_processor_count)
    op = load("local_gemm")(machine=machine).nt
    a, b = (torch.randn(rows, K, device="cuda").bfloat16() for rows in (M, N))
    out = torch.empty(M, N, device="cuda", dtype=a.dtype)
    profiled(partial(torch.mm, a, b.t(), out=out), partial(op, a, b, out=out))


ROWS = {"up": up, "down": partial(up, name="down"), "gemm": gemm}


# ---- around it


def counters(text: str) -> list[dict[str, str]]:
    """Kernels and their counters, of Nsight Compute's page `raw` as CSV (the second line has units)."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    return list(csv.DictReader(io.StringIO("\n".join(lines))))[1:]


def number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def line(kernel: dict[str, str]) -> str:
    cells = [kernel.get("Kernel Name", "?")[:40]]
    for counter, scale in SHOWN.values():
        found = number(kernel.get(counter))
        cells.append("-" if found is None else f"{found * scale:.4g}")
    tensor = [v for k, v in kernel.items() if re.fullmatch(r"sm__(inst_executed_)?pipe_tensor\w*\.avg\.pct\S*", k)]
    cells.append(max((f"{number(v):.1f}" for v in tensor if number(v) is not None), key=float, default="-"))
    stalls = ((number(v), STALL.fullmatch(k)) for k, v in kernel.items())
    most = sorted(((v, m[1]) for v, m in stalls if m and v is not None), reverse=True)[:4]
    cells.append(", ".join(f"{name} {value:.2f}" for value, name in most))
    return f"| {' | '.join(cells)} |"


def ncu(*words: str) -> str:
    done = subprocess.run(["ncu", *words], capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        raise SystemExit(f"ncu {words[0]}: {done.stdout[-1500:]}\n{done.stderr[-1500:]}")
    return done.stdout


def profile(row: str, keep: Path | None) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="chunkdsl-") as folder:
        report = f"{folder}/{row}.ncu-rep"
        chosen = [word for section in SECTIONS for word in ("--section", section)]
        ncu("--clock-control", "none", "--profile-from-start", "off", "--target-processes", "all", "-o", report,
            *chosen, sys.executable, __file__, "--inside", row)  # fmt: skip
        raw = ncu("--import", report, "--page", "raw", "--csv", "--print-units", "base")
        if keep:
            (keep / f"{row}_raw.csv").write_text(raw, encoding="utf-8")
            source = ncu("--import", report, "--page", "source", "--csv", "--print-source", "sass")
            (keep / f"{row}_source.csv").write_text(source, encoding="utf-8")
    return [line(kernel) for kernel in counters(raw)]


def main() -> None:
    from local_ranks import refuse_multicast

    refuse_multicast()
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default="up,gemm")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        ROWS[args.inside]()
        return
    if not shutil.which("ncu"):
        raise SystemExit("ncu (Nsight Compute) is not on the path")
    from one_gpu import heading

    print(heading("kernel", *SHOWN, "tensor cores %", "warps that waited, for an instruction that was issued"))
    for row in args.rows.split(","):
        print("\n".join(profile(row, args.keep)), flush=True)


if __name__ == "__main__":
    main()
