"""Modules on real processes through torch symmetric memory: one GPU each where there are enough (NCCL), else sharing
one (gloo; the processes are time-sliced, so this shows that the bits are right, not speed).

    python tests/gpu/check_processes.py STEM [STEM ...] [--world 2] [--calls 1000,1,3,2048] [--bench]
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from checks import REPLAYS, wrong_calls, wrong_repeats, wrong_replays
from local_ranks import refuse_multicast
from modules import fused_call, inputs, load, sizes_within
from timing import capture, interleaved

from chunkdsl.runtime.machine import Machine


class SharedMachine(Machine):
    """A process that shares its GPU with all others, and takes its share of the multiprocessors."""

    alone = False

    def __init__(self, group, device) -> None:
        super().__init__(group, device)
        self.sms = self.sms // dist.get_world_size() - 8

    def among(self, ranks, group):
        return SharedMachine(group, self.device)


def machine_of(group) -> Machine:
    """This process's, on the GPU that `start` gave it."""
    shared = torch.cuda.device_count() < dist.get_world_size()
    return (SharedMachine if shared else Machine)(group, torch.device("cuda", torch.cuda.current_device()))


def start(rank: int, world: int, port: int) -> Machine:
    """Joins all ranks, on a GPU each where there are enough."""
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
    return machine_of(None)


@contextmanager
def one_rank(rank: int, world: int, port: int) -> Iterator[Machine]:
    """A process that is one rank and nothing else: it ends behind the block, with 1 after an error, without closing
    instances, which would take along the machine that all ops share."""
    try:
        yield start(rank, world, port)
        dist.barrier()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def bench(op, size: int, rank: int, rounds: int) -> str:
    """Medians in microseconds inside CUDA graphs, interleaved; the slower rank counts."""
    dims = {k: size for k in op.RANGES}
    x = inputs(op, dims, rank, 7)
    times = 4
    calls = {"ours": lambda: op(*x, **dims), "library": lambda: op.fallback(*x, **dims)}
    graphs = {k: capture(f, times, dist.barrier) for k, f in calls.items()}
    found = interleaved({k: g.replay for k, g in graphs.items()}, times, rounds, together=True)
    ours, library = found["ours"], found["library"]
    op.module.check()
    return f"| {op.module.NAME}.{op.NAME} | {size} | {library:.0f} | {ours:.0f} | {library / ours:.2f} |"


def main_rank(rank: int, world: int, args) -> None:
    with one_rank(rank, world, args.port) as machine:
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
                    calls = sizes_within(op, sizes)
                    bad, dims = wrong_calls(op, calls, machine), fused_call(op, calls)
                    graph = f"{wrong_replays(op, dims, machine)} of {REPLAYS}" if dims else "none: below its gate"
                    line = f"{stem}.{name} world {world}: wrong {bad} of {len(calls)} sizes twice; "
                    line += f"graph replays wrong {graph}"
                    line += f"; repeats wrong {wrong_repeats(op, dims, machine)}" if dims else ""
                if rank == 0:
                    print(line, flush=True)
                for size in args.bench:
                    row = bench(op, size, rank, args.rounds)
                    if rank == 0:
                        print(row, flush=True)
            machine.barrier()


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
