"""`compute = library`, cuBLAS chunk by chunk, in layers of Llama 3.1 over the two GPUs of a host: beside the emitted
kernel of the same op, NCCL + cuBLAS, torch's own fused op, and the longer of cuBLAS and NCCL by themselves.

    for f in library ag rs ar; do chunkdsl build tests/bench/specs/layers_$f.chunk -o build; done
    export TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NCCL_NVLS_ENABLE=0
    python tests/bench/two_gpus_library.py [--rounds 7] [--rows 512,2048] [--only gather,scatter,reduce]

Bits are compared first, with those of `exact`, also after graph replays. Medians of the slowest rank, interleaved, in
CUDA graphs of four calls; the last columns eagerly.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "gpu"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm
import torch.multiprocessing as mp
import triton
from check_processes import one_rank
from local_ranks import refuse_multicast
from modules import inputs, load, relative_error, same
from timing import capture, interleaved
from two_gpus import communicate, compile_op, only

LAYERS = {  # op of the emitted kernel: (columns of the product; 0: the spec says them, chunks a shard that are tried)
    "gather_4096": (28672, (1, 2)),
    "gather_8192": (57344, (1, 2, 4)),
    "scatter_14336": (0, (1, 2)),
    "scatter_28672": (0, (1, 2, 4)),
    "reduce_28672": (0, (1, 2, 4)),
}
CALLS = 4  # of a graph
COLUMNS = (
    "op", "M", "cuBLAS", "NCCL", "NCCL + cuBLAS", "torch's op", "kernel", "1 chunk", "2", "4", "best / longer",
    "over NCCL + cuBLAS", "over torch's", "over the kernel", "eager: NCCL + cuBLAS", "eager: 1 chunk", "bits", "apart",
)  # fmt: skip


def by_chunks(name: str, chunks: tuple[int, ...]):
    """The module's class with the variants of one op."""
    cls = load("layers_library")
    wanted = [f"{name}_{n}" for n in chunks]
    cls.OPS = {op: cls.OPS[op] for op in wanted}
    return cls


def torch_op(name: str, x: torch.Tensor, w: torch.Tensor):
    """torch's fused op of the same function; None for all-reduces, of which it has none."""
    group = dist.group.WORLD.group_name
    if name.startswith("gather"):
        return lambda: torch.ops.symm_mem.fused_all_gather_matmul(x, [w.t()], 0, group)
    if name.startswith("scatter"):
        return lambda: torch.ops.symm_mem.fused_matmul_reduce_scatter(x, w.t(), "sum", 0, group)
    return None


def row(m, kernels, name: str, rows: int, args) -> str:
    columns, chunks = LAYERS[name]
    ops, kernel = {n: getattr(m, f"{name}_{n}") for n in chunks}, getattr(kernels, name)
    dims = {"M": rows} | ({"N": columns} if columns else {})
    x, w = inputs(kernel, dims, dist.get_rank(), 7)
    whole = torch.cat([x] * dist.get_world_size()) if name.startswith("gather") else x
    product = torch.mm(whole, w.t())
    exact = {n: op.exact(x, w, **dims) for n, op in ops.items()}
    equal = all(same(op(x, w, **dims), exact[n]) for n, op in ops.items() for _ in range(3))
    apart = max(relative_error(op.fallback(x, w, **dims), exact[n]) for n, op in ops.items())
    calls = {
        "gemm": lambda: torch.mm(whole, w.t(), out=product),
        "comm": communicate(name, x, product),
        "library": lambda: kernel.fallback(x, w, **dims),
        "kernel": lambda: kernel(x, w, **dims),
    }
    calls |= {str(n): lambda op=op: op(x, w, **dims) for n, op in ops.items()}
    if peer := torch_op(name, x, w):
        calls["torch"] = peer
    graphs = {key: capture(call, CALLS, dist.barrier) for key, call in calls.items()}
    t = interleaved({key: graph.replay for key, graph in graphs.items()}, CALLS, args.rounds, together=True)
    out = {n: torch.empty_like(exact[n]) for n in chunks}
    for n, op in ops.items():  # bits of what a graph leaves, replayed thrice
        graph = capture(lambda op=op, n=n: op(x, w, out=out[n], **dims), 1, dist.barrier)
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        equal &= same(out[n], exact[n])

    def repeated(call):
        return lambda: [call() for _ in range(CALLS)]

    e = interleaved({key: repeated(calls[key]) for key in ("library", "1")}, CALLS, args.rounds)
    m.check()
    best = min(t[str(n)] for n in chunks)
    cells = [name, rows, *(f"{t[key]:.0f}" if key in t else "-" for key in ("gemm", "comm", "library", "torch"))]
    cells += [f"{t['kernel']:.0f}", *(f"{t[n]:.0f}" if n in t else "-" for n in "124")]
    cells += [f"{best / max(t['gemm'], t['comm']):.2f}", f"{t['library'] / best:.2f}"]
    cells += [f"{t['torch'] / best:.2f}" if "torch" in t else "-", f"{t['kernel'] / best:.2f}"]
    cells += [f"{e['library']:.0f}", f"{e['1']:.0f}", "yes" if all(m.machine.vote(equal)) else "NO", f"{apart:.0e}"]
    return f"| {' | '.join(map(str, cells))} |"


def main_rank(rank: int, world: int, args) -> None:
    with one_rank(rank, world, args.port) as machine:
        symm.enable_symm_mem_for_group(dist.group.WORLD.group_name)
        for name in args.ops:
            bounds = dict(machine=machine, timeout=20.0, M=max(args.rows))
            m, kernels = by_chunks(name, LAYERS[name][1])(**bounds), only(name)(**bounds)
            for rows in args.rows:
                line = row(m, kernels, name, rows, args)
                if rank == 0:
                    print(line, flush=True)
            machine.barrier()
            del m, kernels


def main() -> int:
    refuse_multicast()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--only", type=lambda text: text.split(","), default=["gather", "scatter", "reduce"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--port", type=int, default=29548)
    args = parser.parse_args()
    args.rows = args.rows or [512, 2048, 4096, 8192]
    args.ops = [name for name in LAYERS if name.partition("_")[0] in args.only]
    began, world = time.monotonic(), torch.cuda.device_count()
    with ProcessPoolExecutor(len(args.ops), mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(compile_op, name, i % world, world) for i, name in enumerate(args.ops)]
        print(f"compiled {', '.join(job.result() for job in jobs)} in {time.monotonic() - began:.0f} s", flush=True)
    where = f"{world} x {torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}"
    print(f"{where}; microseconds\n| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}", flush=True)
    mp.spawn(main_rank, args=(world, args), nprocs=world)
    print(f"{time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
