"""Layers of Llama 3.1 and Qwen2 over all GPUs of a host (their sizes are those of two): all-gather + GEMM, GEMM +
reduce-scatter and GEMM + all-reduce against NCCL + cuBLAS, and against the longer of the two by itself.

    for f in ag ag_push rs ar ar_one ar_interleaved; do chunkdsl build tests/bench/specs/layers_$f.chunk; done
    export TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NCCL_NVLS_ENABLE=0
    python tests/bench/two_gpus.py [--rounds 7] [--rows 512,2048] [--only gather,pushed,reduce,oneshot] [--gated]

Bits are compared first: fused by each of the two kernels, with `exact`. Medians of the slowest rank, interleaved, in
CUDA graphs of 4 to 160 calls (about 16 ms, `--graph-ms`) and (ours and the library's) eagerly. Kernels are compiled
beforehand, a process for each op.
With `--gated` the gates of the modules hold, as `chunkdsl tune` has placed them: `fused` says which calls run fused;
the others are compared with the fallback.
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
import torch.multiprocessing as mp
import triton
from check_processes import one_rank
from local_ranks import LonePeer, refuse_multicast
from modules import inputs, load, relative_error, same
from one_gpu_products import specialised
from timing import capture, interleaved

LAYERS = {  # op: (model, columns of the product; 0: the spec says them)
    "gather_4096": (("Llama 3.1 8B", 28672),),
    "gather_8192": (("Llama 3.1 70B", 57344), ("Qwen2 72B", 59136)),
    **{f"{side}_4096": (("Llama 3.1 8B", 28672),) for side in ("pushed", "pulled")},
    **{f"{side}_8192": (("Llama 3.1 70B", 57344),) for side in ("pushed", "pulled")},
    "scatter_14336": (("Llama 3.1 8B", 0),),
    "scatter_28672": (("Llama 3.1 70B", 0),),
    "scatter_29568": (("Qwen2 72B", 0),),
    "reduce_14336": (("Llama 3.1 8B", 0),),
    "reduce_28672": (("Llama 3.1 70B", 0),),
    "reduce_29568": (("Qwen2 72B", 0),),
    "oneshot_14336": (("Llama 3.1 8B", 0),),
    "oneshot_28672": (("Llama 3.1 70B", 0),),
    "oneshot_29568": (("Qwen2 72B", 0),),
    "scatterin_14336": (("Llama 3.1 8B", 0),),
    "scatterin_28672": (("Llama 3.1 70B", 0),),
    "scatterin_29568": (("Qwen2 72B", 0),),
    "reducein_14336": (("Llama 3.1 8B", 0),),
    "reducein_28672": (("Llama 3.1 70B", 0),),
    "reducein_29568": (("Qwen2 72B", 0),),
    "interleaved_14336": (("Llama 3.1 8B", 0),),
    "interleaved_28672": (("Llama 3.1 70B", 0),),
    "interleaved_29568": (("Qwen2 72B", 0),),
}
STEMS = {"gather": "layers_ag", "pushed": "layers_ag_push", "pulled": "layers_ag_push", "scatter": "layers_rs",
         "reduce": "layers_ar", "oneshot": "layers_ar_one", "interleaved": "layers_ar_interleaved",
         "scatterin": "layers_rs_in_tiles", "reducein": "layers_ar_in_tiles"}  # fmt: skip
GATHERS = ("gather", "pushed", "pulled")
COLUMNS = (
    "op", "model", "M", "cuBLAS", "NCCL", "NCCL + cuBLAS", "ours", "ours / longer", "over NCCL + cuBLAS",
    "ours, Triton", "eager: NCCL + cuBLAS", "eager: ours", "over", "bits", "apart",
)  # fmt: skip


def only(name: str, gated: bool = False):
    """The module's class with one op, which shares its kernels with no other."""
    cls = load(STEMS[name.partition("_")[0]], gated)
    cls.OPS = {name: cls.OPS[name]}
    return cls


def compile_op(name: str, gpu: int, world: int) -> str:
    torch.cuda.set_device(gpu)
    only(name)(machine=LonePeer(world), M=2048)
    torch.cuda.synchronize()
    return name


def communicate(name: str, x: torch.Tensor, product: torch.Tensor):
    """The collective alone, as NCCL does it."""
    world = dist.get_world_size()
    if name.startswith(GATHERS):
        into = x.new_empty((world * x.shape[0], x.shape[1]))
        return lambda: dist.all_gather_into_tensor(into, x)
    if name.startswith("scatter"):
        part = product.new_empty((product.shape[0] // world, product.shape[1]))
        return lambda: dist.reduce_scatter_tensor(part, product)
    return lambda: dist.all_reduce(product)


def fused(op, dims: dict[str, int]) -> str:
    """Which calls of these sizes run fused: both captured and eager ones, one kind of them, or neither."""
    def holds(gate) -> bool:
        dim, least = gate
        return least is not None and (not dim or dims[dim] >= least)

    kinds = [word for word, gate in (("captured", op.gate), ("eager", op.eager_gate)) if holds(gate)]
    return {2: "both", 0: "neither"}.get(len(kinds)) or kinds[0]


def row(m, name: str, model: str, rows: int, columns: int, args) -> str:
    op, rank = getattr(m, name), dist.get_rank()
    dims = {"M": rows} | ({"N": columns} if columns else {})
    x, w = inputs(op, dims, rank, 7)
    whole = torch.cat([x] * dist.get_world_size()) if name.startswith(GATHERS) else x
    product = torch.mm(whole, w.t())
    fallback = op.fallback(x, w, **dims)
    exact, equal = op.exact(x, w, **dims), True
    apart = relative_error(fallback, exact)
    for version in (m.warps, 0):
        with specialised(m, version):
            equal &= same(op(x, w, **dims), exact if op.unfused(dims) is None else fallback)

    def by_triton():
        with specialised(m, 0):
            op(x, w, **dims)

    calls = {
        "gemm": lambda: torch.mm(whole, w.t(), out=product),
        "comm": communicate(name, x, product),
        "library": lambda: op.fallback(x, w, **dims),
        "ours": lambda: op(x, w, **dims),
        "triton": by_triton,
    }
    # At 700 TFLOP/s; ranks compute the same.
    times = max(4, min(10 * args.graph_ms, round(1e3 * args.graph_ms / (op.flops(dims) / 7e8))))
    graphs = {key: capture(call, times, dist.barrier) for key, call in calls.items()}
    t = interleaved({key: graph.replay for key, graph in graphs.items()}, times, args.rounds, together=True)

    def repeated(call):
        return lambda: [call() for _ in range(times)]

    eager = {key: repeated(calls[key]) for key in ("library", "ours")}
    interleaved(eager, times, 4)  # from the third time in the same places on a call is started by a graph
    e = interleaved(eager, times, args.rounds)
    m.check()
    cells = [name, model, rows, *(f"{t[key]:.0f}" for key in ("gemm", "comm", "library", "ours"))]
    cells += [f"{t['ours'] / max(t['gemm'], t['comm']):.2f}", f"{t['library'] / t['ours']:.2f}", f"{t['triton']:.0f}"]
    cells += [f"{e['library']:.0f}", f"{e['ours']:.0f}", f"{e['library'] / e['ours']:.2f}"]
    cells += ["yes" if all(m.machine.vote(equal)) else "NO", f"{apart:.0e}"]
    cells += [fused(op, dims)] if args.gated else []
    return f"| {' | '.join(map(str, cells))} |"


def main_rank(rank: int, world: int, args) -> None:
    with one_rank(rank, world, args.port) as machine:
        for name in args.ops:
            cls = only(name, args.gated)
            m = cls(machine=machine, timeout=20.0, M=max(args.rows))
            for model, columns in LAYERS[name]:
                for rows in args.rows:
                    line = row(m, name, model, rows, columns, args)
                    if rank == 0:
                        print(line, flush=True)
            machine.barrier()
            del m


def main() -> int:
    refuse_multicast()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(STEMS))
    parser.add_argument("--rounds", type=int, default=7)
    text = "of work in what is timed; the longer, the hotter the GPUs"
    parser.add_argument("--graph-ms", type=int, default=16, help=text)
    parser.add_argument("--gated", action="store_true", help="leave the gates of the modules as they are")
    parser.add_argument("--port", type=int, default=29547)
    args = parser.parse_args()
    args.rows = args.rows or [512, 2048, 4096, 8192, 16384]
    args.ops = [name for name in LAYERS if name.partition("_")[0] in args.only]
    began, world = time.monotonic(), torch.cuda.device_count()
    with ProcessPoolExecutor(len(args.ops), mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(compile_op, name, i % world, world) for i, name in enumerate(args.ops)]
        print(f"compiled {', '.join(job.result() for job in jobs)} in {time.monotonic() - began:.0f} s", flush=True)
    where = f"{world} x {torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}"
    columns = (*COLUMNS, "fused") if args.gated else COLUMNS
    print(f"{where}; microseconds\n| {' | '.join(columns)} |\n|{' --- |' * len(columns)}", flush=True)
    mp.spawn(main_rank, args=(world, args), nprocs=world)
    print(f"{time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
