"""Are calls that come again really started by graphs of the instance, and do these hold? One process for each rank, as
`check_processes.py`: on GPUs of their own, or sharing one.

    python tests/bench/build_for_gpu.py --only library,decode_all_reduce,ag_gemm
    export TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NCCL_NVLS_ENABLE=0 CHUNKDSL_GPU_BUILD=build/gpu
    python tests/gpu/check_repeats.py [library decode_all_reduce ag_gemm] [--world 2] [--rows 512]

For each op, with its gates open: bits of 12 calls with changing data, in turns on two streams; how many graphs there
are then, and why none where there is none. Then the same again after what takes memory away from graphs that do not
keep it: torch has let go of the pieces that cuBLAS works in (as `torch.compile` makes it) and of all cached memory, and
an instance of the same module has been made, has recorded calls and is gone. Device memory must not grow from one such
round to the next. The last line says PASSED or FAILED.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import torch
import torch.multiprocessing as mp
from check_processes import one_rank
from checks import wrong_repeats
from local_ranks import refuse_multicast
from modules import load

ROUNDS, CALLS = 3, 12
SLACK = 1 << 20  # bytes by which the last two rounds may differ


def bounds_of(cls, rows: int) -> dict[str, int]:
    return {name: max(low, min(high, rows) // step * step) for name, (low, high, step) in cls.RANGES.items()}


def take_memory_away(cls, machine, dims: dict[str, int]) -> None:
    """Collective."""
    torch._C._cuda_clearCublasWorkspaces()
    other = cls(machine=machine, timeout=30.0, **dims)
    for name in cls.OPS:
        op = getattr(other, name)
        if not op.why_not:
            wrong_repeats(op, {key: dims[key] for key in op.RANGES}, machine, CALLS, into=True)
    torch.cuda.synchronize()
    del other, op
    gc.collect()
    torch.cuda.empty_cache()


def scene(stem: str, machine, rows: int) -> list[str]:
    """What was found, a line for each op and round; those that begin with WRONG are faults."""
    cls, said, reserved = load(stem), [], []
    dims = bounds_of(cls, rows)
    m = cls(machine=machine, timeout=30.0, **dims)
    able = [op for op in (getattr(m, name) for name in cls.OPS) if not op.why_not]
    for i in range(ROUNDS):
        for op in able:
            mine = {key: dims[key] for key in op.RANGES}
            wrong = sum(machine.vote(wrong_repeats(op, mine, machine, CALLS, into=True)))
            graphs = min(machine.vote(len(op.repeats.graphs)))
            why = f" ({machine.unrecorded})" if machine.unrecorded else ""
            mark = "WRONG " if wrong or not graphs else ""
            said.append(f"{mark}{stem}.{op.NAME}, round {i}: {wrong} of {CALLS} calls wrong, {graphs} graphs{why}")
        take_memory_away(cls, machine, dims)
        reserved.append(torch.cuda.memory_reserved())
    grown = max(machine.vote(reserved[-1] - reserved[-2]))
    said.append(f"{'WRONG ' if grown > SLACK else ''}{stem}: {grown} bytes more in the last round")
    m.check()
    machine.barrier()
    return [*said, *(f"{stem}.{op.NAME}: {op.why_not}" for op in map(m.__getattribute__, cls.OPS) if op.why_not)]


def main_rank(rank: int, world: int, args) -> None:
    with one_rank(rank, world, args.port) as machine:
        said = [line for stem in args.stems for line in scene(stem, machine, args.rows)]
        bad = any(line.startswith("WRONG") for line in said)
        if rank == 0:
            print("\n".join([*said, "FAILED" if bad else "PASSED"]), flush=True)
        if bad:  # on every rank: what is said was voted on
            raise SystemExit("a repeated call is not what it should be")


def main() -> int:
    refuse_multicast()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stems", nargs="*", default=["library", "decode_all_reduce", "ag_gemm"])
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--port", type=int, default=29561)
    args = parser.parse_args()
    mp.spawn(main_rank, args=(args.world, args), nprocs=args.world)
    return 0


if __name__ == "__main__":
    sys.exit(main())
