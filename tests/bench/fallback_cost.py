"""What the wrapper adds, in Python, to the calls of the library below a closed gate. Needs no GPU and no peers:
products are torch's, of a few elements on the CPU, collectives are torch's too, of a process group that does nothing.

    python tests/bench/fallback_cost.py [--calls 10000] [--rounds 5]
    python tests/bench/fallback_cost.py --profile       # the tables of host_profile.py

By hand is what one writes without chunkdsl: `torch.mm` and a collective of torch.distributed. Prints microseconds of a
call, the least of `--rounds` (what else runs on a machine only adds); of one in a burst of eight, whose first ones find
cold caches, behind a barrier and 32 MiB of other memory, as the bursts of `eager_calls.py` do (medians of `--bursts` in
changing order); and how many calls of Python functions and of built-in ones each way makes, which depend on no clock.
`test_fallback_cost.py` holds the latter.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "gpu"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "examples"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
import torch.distributed as dist
from host_cost import local_tensors, stub
from host_profile import print_profile
from torch.testing._internal.distributed.fake_pg import FakeStore

from chunkdsl.pipeline import check_source
from chunkdsl.render.module import render_module
from chunkdsl.source import Source
from chunkdsl.verify.verify import load

WORLD, ROWS, COLD = 2, 8, 8 << 20  # floats that no cache holds beside the rest
GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # older torch calls it so
SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
SPEC = """mesh tp[2] over nvlink
dim M = 0..64
dim H = 16
dim F = 16
tensor x : f32[M @ tp, H]
tensor w : f32[F @ tp, H]
tensor a : f32[M, F @ tp]
tensor v : f32[H, F @ tp]
tensor p : f32[M, H] sum tp
op gather(x, w) -> y { y = all_gather(x) @ w.T with { fuse_from = never } }
op scatter(a, v) -> z { z = reduce_scatter(a @ v.T, M) with { fuse_from = never } }
op reduce(a, v) -> r { r = all_reduce(a @ v.T) with { fuse_from = never, algorithm = two_shot } }
op small(p) -> s { s = all_reduce(p) with { fuse_from = never, algorithm = one_shot } }
"""


def built(folder: Path):
    """An instance of rank 0 of two, whose gates are closed, in a process group of torch's that does nothing."""
    checked = check_source(Source("fallbacks.chunk", SPEC))
    if checked.report.failed:
        raise SystemExit("\n".join(d.message for d in checked.report.diagnostics))
    made = load(render_module(checked.schedule, (WORLD,)), folder, "fallbacks")
    machine = stub(made.Machine, WORLD)
    machine.group, machine._backend = dist.group.WORLD, "nccl"
    machine._look_up_ways()
    return made.Fallbacks(machine=machine)


@contextmanager
def idle_group():
    dist.init_process_group("fake", rank=0, world_size=WORLD, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def by_hand(name: str, tensors: list):
    """The op as one writes it with torch."""
    x, w = (*tensors, None)[:2]

    def gather():
        into = torch.empty((WORLD * x.shape[0], x.shape[1]), dtype=x.dtype)
        GATHER(into, x)
        return torch.mm(into, w.t())

    def scatter():
        product = torch.mm(x, w.t())
        part = torch.empty((product.shape[0] // WORLD, product.shape[1]), dtype=x.dtype)
        SCATTER(part, product)
        return part

    def reduce():
        product = torch.mm(x, w.t())
        dist.all_reduce(product)
        return product

    def small():
        total = x.clone()
        dist.all_reduce(total)
        return total

    return {"gather": gather, "scatter": scatter, "reduce": reduce, "small": small}[name]


def microseconds(call, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls * 1e6


def counted(call) -> tuple[int, int]:
    """(Python functions, built-in functions) that a call enters."""
    seen = {"call": 0, "c_call": 0}

    def look(frame, event, argument):
        if event in seen:
            seen[event] += 1

    call()
    call()
    sys.setprofile(look)
    call()
    sys.setprofile(None)
    return seen["call"] - 1, seen["c_call"] - 1  # of `call` itself, of setprofile


def in_bursts(calls: dict, bursts: int, cold: torch.Tensor) -> dict[str, float]:
    """{way: microseconds of a call in a burst of eight behind other work}, medians."""
    seen: dict[str, list[float]] = {way: [] for way in calls}
    for turn in range(bursts):
        for way in sorted(calls, reverse=turn % 2 == 1):
            cold.add_(1)
            dist.barrier()
            seen[way].append(microseconds(calls[way], 8))
    return {way: statistics.median(times) for way, times in seen.items()}


def ways(instance, name: str) -> dict:
    op = getattr(instance, name)
    tensors = local_tensors(op, {"M": ROWS}, "cpu")
    return {"by hand": by_hand(name, tensors), "below the gate": lambda: op(*tensors, M=ROWS),
            "fallback": lambda: op.fallback(*tensors, M=ROWS)}  # fmt: skip


def profile(instance, name: str, rounds: int) -> None:
    op, dims, cold = getattr(instance, name), {"M": ROWS}, torch.zeros(COLD)
    calls = dict(list(ways(instance, name).items())[:2])
    calls["below the gate"]()
    print_profile(op, local_tensors(op, dims, "cpu"), dims, calls, lambda: cold.add_(1), rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bursts", type=int, default=100)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad(), idle_group():
        instance = built(Path(folder))
        if args.profile:
            for name in instance.OPS:
                profile(instance, name, args.rounds)
            return 0
        heads = ("op", "by hand us", "below the gate", "more", "in bursts, by hand", "below the gate", "more",
                 "fallback", "Python calls, by hand", "built-in calls, by hand")  # fmt: skip
        print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
        for name in instance.OPS:
            found = ways(instance, name)
            calls = {way: counted(call) for way, call in found.items()}
            least = dict.fromkeys(found, float("inf"))
            for _ in range(args.rounds):
                for way, call in found.items():
                    least[way] = min(least[way], microseconds(call, args.calls))
            bare, ours, plain = least.values()
            burst, ours_burst = in_bursts(dict(list(found.items())[:2]), args.bursts, torch.zeros(COLD)).values()
            numbers = (bare, ours, ours - bare, burst, ours_burst, ours_burst - burst, plain)
            pairs = (f"{n}, {bare}" for n, bare in zip(calls["below the gate"], calls["by hand"], strict=True))
            print(f"| {name} | {' | '.join([*(f'{n:.2f}' for n in numbers), *pairs])} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
