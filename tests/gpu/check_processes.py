"""Modules on real processes through torch symmetric memory: one GPU each where there are enough (NCCL), else sharing
one (gloo; the processes are time-sliced, so this shows that the bits are right, not speed).

    python tests/gpu/check_processes.py STEM [STEM ...] [--world 2] [--calls 1000,1,3,2048] [--bench]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from local_ranks import refuse_multicast
from modules import fused_size, inputs, load, same

from chunkdsl.runtime.machine import Machine


def start(rank: int, world: int, port: int) -> Machine:
    shared = torch.cuda.device_count() < world
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    if shared:
        os.environ["TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES"] = "1"
    device = torch.device("cuda", 0 if shared else rank)
    torch.cuda.set_device(device)
    if shared:
        dist.init_process_group("cpu:gloo,cuda:gloo", rank=rank, world_size=world)
    else:
        dist.init_process_group("nccl", rank=rank, world_size=world, device_id=device)
    machine = Machine(None, device)
    if shared:
        machine.sms = machine.sms // world - 8
    return machine


def check(op, sizes: list[int], rank: int, world: int) -> list:
    bad = []
    for rep in range(2):
        for size in sizes:
            dims = {k: size for k in op.RANGES}
            x = inputs(op, dims, rank, world, 100 * rep + size)
            fused = op(*x, **dims)
            torch.cuda.synchronize()
            op.module.check()
            # Below the gate the library runs, whose bits are its own.
            if op.unfused(dims) is None and not same(fused, op.exact(*x, **dims)):
                bad.append(size)
    return bad


def capture(call, times: int) -> torch.cuda.CUDAGraph:
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            call()
    return graph


def replays(op, size: int, rank: int, world: int) -> int:
    """Wrong results of five replays of a graph of two calls, with changing data."""
    dims = {k: size for k in op.RANGES}
    x = inputs(op, dims, rank, world, 7)
    held = []

    def call():
        held[:] = [op(*x, **dims)]

    graph = capture(call, 2)
    wrong = 0
    for i in range(5):
        for t, fresh in zip(x, inputs(op, dims, rank, world, 50 + i), strict=True):
            t.copy_(fresh)
        dist.barrier()
        graph.replay()
        torch.cuda.synchronize()
        wrong += not same(held[0], op.exact(*x, **dims))
    op.module.check()
    return wrong


def bench(op, size: int, rank: int, world: int, rounds: int) -> str:
    """Medians in microseconds inside CUDA graphs, interleaved; the slower rank counts."""
    dims = {k: size for k in op.RANGES}
    x = inputs(op, dims, rank, world, 7)
    times = 4
    calls = {"ours": lambda: op(*x, **dims), "library": lambda: op.fallback(*x, **dims)}
    graphs = {k: capture(f, times) for k, f in calls.items()}
    seen = {k: [] for k in graphs}
    for _ in range(rounds):
        for k, g in graphs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            dist.barrier()
            torch.cuda.synchronize()
            begin.record()
            g.replay()
            end.record()
            end.synchronize()
            seen[k].append(begin.elapsed_time(end) * 1e3 / times)
    medians = torch.tensor([statistics.median(v) for v in seen.values()], device="cuda")
    dist.all_reduce(medians, op=dist.ReduceOp.MAX)
    ours, library = medians.tolist()
    op.module.check()
    return f"| {op.module.NAME}.{op.NAME} | {size} | {library:.0f} | {ours:.0f} | {library / ours:.2f} |"


def main_rank(rank: int, world: int, args) -> None:
    try:
        machine = start(rank, world, args.port)
        sizes = [int(c) for c in args.calls.split(",")]
        for stem in args.stems:
            cls = load(stem)
            bounds = {k: min(high, max(sizes + args.bench)) for k, (_, high, _) in cls.RANGES.items()}
            m = cls(machine=machine, timeout=30.0, **bounds)
            for name in cls.OPS:
                op = getattr(m, name)
                if op.why_not:
                    line = f"{stem}.{name} world {world}: {op.why_not}"
                else:
                    bad, size = check(op, sizes, rank, world), fused_size(op, sizes)
                    graph = f"{replays(op, size, rank, world)} of 5" if size else "none: below its gate"
                    line = f"{stem}.{name} world {world}: wrong {bad} of sizes {sizes} twice; "
                    line += f"graph replays wrong {graph}"
                if rank == 0:
                    print(line, flush=True)
                for size in args.bench:
                    row = bench(op, size, rank, world, args.rounds)
                    if rank == 0:
                        print(row, flush=True)
            machine.barrier()
        dist.destroy_process_group()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main() -> int:
    refuse_multicast()
    parser = argparse.ArgumentParser()
    parser.add_argument("stems", nargs="+")
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--calls", default="1000,1,3,2048")
    parser.add_argument("--bench", type=lambda t: [int(x) for x in t.split(",")], default=[])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--port", type=int, default=29531)
    args = parser.parse_args()
    mp.spawn(main_rank, args=(args.world, args), nprocs=args.world)
    return 0


if __name__ == "__main__":
    sys.exit(main())
