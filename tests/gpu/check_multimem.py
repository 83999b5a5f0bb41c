"""`via = multimem` where NVLink multicast exists: values against `exact`, the bits of all ranks against each other
(which no document promises to be equal, but in two rounds), and CUDA graph replays. Nobody has run this yet.

    chunkdsl build tests/gpu/ar_switch.chunk -o build/gpu
    CHUNKDSL_RUN_MULTICAST=1 CHUNKDSL_GPU_BUILD=build/gpu python tests/gpu/check_multimem.py [--world 8]

Multicast that goes wrong can put a whole host out of service: never on a machine that others use.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from check_processes import one_rank
from modules import load

STEM = "ar_switch"
LIMIT = {torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float32: 2e-5}


def ask_for_consent() -> None:
    """SystemExit unless whoever starts this says that multicast may be used here, and it is not switched off."""
    if os.environ.get("CHUNKDSL_RUN_MULTICAST") != "1":
        raise SystemExit("this uses NVLink multicast, never on a shared host: set CHUNKDSL_RUN_MULTICAST=1 to run it")
    if os.environ.get("TORCH_SYMM_MEM_DISABLE_MULTICAST", "0") != "0":
        raise SystemExit("multicast is switched off: TORCH_SYMM_MEM_DISABLE_MULTICAST is set")


def inputs(op, rows: int, rank: int, seed: int) -> list[torch.Tensor]:
    """The payload, which differs between ranks, and what else the op takes, which does not."""
    made = []
    for i, (dtype, shape) in enumerate(op.PARAMETERS.values()):
        generator = torch.Generator(device="cuda").manual_seed(1000 * seed + (100 * i if i else rank))
        made.append(torch.randn(op.local_shape(shape, {"T": rows}), generator=generator, device="cuda").to(dtype))
    return made


def left(op, call, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Results of a call, then what it has updated, in copies of the tensors."""
    held = dict(zip(op.PARAMETERS, (t.clone() for t in tensors), strict=True))
    made = call(*held.values())
    return [*(made if isinstance(made, tuple) else (made,)), *(held[name] for name in op.INOUT)]


def differing(result: torch.Tensor, world: int) -> int:
    """Elements whose bits are not the same on all ranks."""
    bits = result.contiguous().view(torch.uint8)
    every = [torch.empty_like(bits) for _ in range(world)]
    dist.all_gather(every, bits)
    unlike = torch.stack(every).ne(every[0]).any(0).reshape(-1, result.element_size())
    return int(unlike.any(1).sum())


def wrong(result: torch.Tensor, exact: torch.Tensor) -> bool:
    gap = (result.double() - exact.double()).norm() / exact.double().norm().clamp_min(1e-30)
    return result.numel() > 0 and not gap.item() < LIMIT[result.dtype]


def check(op, sizes: list[int], reps: int, rank: int, world: int) -> str:
    bad, unlike, elements = [], 0, 0
    for rep in range(reps):
        for rows in sizes:
            tensors = inputs(op, rows, rank, rep)
            values = left(op, op, tensors)
            torch.cuda.synchronize()
            op.module.check()
            bad += [rows] if any(map(wrong, values, left(op, op.exact, tensors))) else []
            unlike += sum(differing(y, world) for y in values)
            elements += sum(y.numel() for y in values)
    return f"wrong {bad} of sizes {sizes} {reps} times; {unlike} of {elements} elements differ between ranks"


def replays(op, rows: int, rank: int) -> int:
    """Wrong results of five replays of a graph of three calls, with changing data."""
    tensors, held = inputs(op, rows, rank, 0), []
    for _ in range(3):
        left(op, op, tensors)
    torch.cuda.synchronize()
    dist.barrier()
    graph, bad = torch.cuda.CUDAGraph(), 0
    with torch.cuda.graph(graph):
        held += [left(op, op, tensors) for _ in range(3)]
    for i in range(5):
        for tensor, new in zip(tensors, inputs(op, rows, rank, 50 + i), strict=True):
            tensor.copy_(new)
        dist.barrier()
        graph.replay()
        torch.cuda.synchronize()
        exact = left(op, op.exact, tensors)
        bad += any(any(map(wrong, values, exact)) for values in held)
    op.module.check()
    return bad


def main_rank(rank: int, world: int, args) -> None:
    with one_rank(rank, world, args.port) as machine:
        sizes = [int(c) for c in args.calls.split(",")]
        m = load(STEM)(machine=machine, timeout=30.0)
        for name in m.OPS:
            op = getattr(m, name)
            line = op.why_not or f"{check(op, sizes, 20, rank, world)}; graph replays wrong {replays(op, 7, rank)} of 5"
            print(f"{STEM}.{name} rank {rank} of {world}: {line}", flush=True)
        m.close()


def main() -> int:
    ask_for_consent()
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--calls", default="64,1,0,7,33")
    parser.add_argument("--port", type=int, default=29541)
    args = parser.parse_args()
    if torch.cuda.device_count() < args.world:
        raise SystemExit(f"--world {args.world} needs as many GPUs; here are {torch.cuda.device_count()}")
    mp.spawn(main_rank, args=(args.world, args), nprocs=args.world)
    return 0


if __name__ == "__main__":
    sys.exit(main())
