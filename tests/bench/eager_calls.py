"""Eager calls on all GPUs of a host: what a call takes, and how much of it is the host's, against NCCL and cuBLAS
called from torch.

    for f in ag rs ar; do chunkdsl build tests/bench/specs/layers_$f.chunk; done
    chunkdsl build specs/decode_all_reduce.chunk
    export TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NCCL_NVLS_ENABLE=0
    python tests/bench/eager_calls.py [--rounds 15] [--rows 512,2048,4096] [--only gather_4096,scatter_14336,ar]
    python tests/bench/eager_calls.py --profile --rows 512         # where the host's time below a closed gate goes

NCCL + cuBLAS is `torch.mm` and a collective of torch.distributed, nothing else, with new results for each call as ours
have: `ar` takes a clone and `all_reduce` of that, since an op leaves its arguments as they are. Ours in four ways:
launched anew; played step by step; repeated, which is how calls with the same tensors are started; and below a closed
gate, where the wrapper calls the library. Medians of the slowest rank over bursts of `--calls` calls, interleaved:
between two events (us of a call), and what the host took to enqueue them (host us). The first calls of a burst find
cold caches, as in a model those behind other work do; longer bursts show less of it. Ahead of a burst goes one call in
its way, as the op was set to another. Bits are held against `exact` first, below the gate against those by hand.
`--profile` prints the tables of host_profile.py instead, for both ways that call the library.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "gpu"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import triton
from check_processes import one_rank
from checks import wrong_repeats
from host_profile import print_profile
from local_ranks import refuse_multicast
from modules import inputs, load, same
from timing import between_events, slowest

STEMS = {"gather": "layers_ag", "scatter": "layers_rs", "reduce": "layers_ar", "ar": "decode_all_reduce"}
COLUMNS = 28672  # of the gathered product
OPEN, CLOSED, NEVER = ("", 0), ("", None), 1 << 40
WAYS = ("NCCL + cuBLAS", "ours anew", "ours played", "ours repeated", "ours, gate closed")


def only(name: str):
    """The module's class with one op, which shares its kernels with no other."""
    cls = load(STEMS[name.partition("_")[0]])
    cls.OPS = {name: cls.OPS[name]}
    return cls


def library(name: str, x: torch.Tensor, w: torch.Tensor | None):
    """The call as one writes it by hand."""
    world = dist.get_world_size()

    def gather():
        into = x.new_empty((world * x.shape[0], x.shape[1]))
        dist.all_gather_into_tensor(into, x)
        return torch.mm(into, w.t())

    def scatter():
        product = torch.mm(x, w.t())
        part = product.new_empty((product.shape[0] // world, product.shape[1]))
        dist.reduce_scatter_tensor(part, product)
        return part

    def reduce():
        product = torch.mm(x, w.t())
        dist.all_reduce(product)
        return product

    def ar():
        total = x.clone()
        dist.all_reduce(total)
        return total

    return {"gather": gather, "scatter": scatter, "reduce": reduce, "ar": ar}[name.partition("_")[0]]


def ways(op, tensors, dims) -> dict:
    """{way: call}. Each sets the op to it first, where it is set to another one: then the op looks at the call anew."""
    now = [None]

    def ours(gate, replays, after):
        def call():
            if now[0] is not call:
                now[0], op.gate, op.eager_gate = call, gate, gate
                op.replays, op.repeats.AFTER = replays, after
            return op(*tensors, **dims)

        return call

    made = (ours(OPEN, False, NEVER), ours(OPEN, True, NEVER), ours(OPEN, True, 2), ours(CLOSED, True, 2))
    plain = library(op.NAME, tensors[0], tensors[1] if len(tensors) > 1 else None)
    return dict(zip(WAYS, (plain, *made), strict=True))


def measured(calls: dict, rounds: int, times: int) -> dict[str, tuple[float, float]]:
    """{way: (us, host us) of a call} in bursts of `times`. Collective."""
    device: dict[str, list[float]] = {way: [] for way in calls}
    host: dict[str, list[float]] = {way: [] for way in calls}
    for _ in range(rounds):
        for way, call in calls.items():

            def burst(call=call, way=way):
                began = time.perf_counter()
                for _ in range(times):
                    call()
                host[way].append((time.perf_counter() - began) / times * 1e6)

            call()  # a program does not set an op to another way between two calls
            settle()
            device[way].append(between_events(burst, times))
    mine = [statistics.median(seen[way]) for seen in (device, host) for way in calls]
    found = slowest(mine)
    return {way: (found[i], found[len(calls) + i]) for i, way in enumerate(calls)}


def prepared(m, name: str, rows: int):
    """(op, tensors, sizes)"""
    op = getattr(m, name)
    dims = {"T" if name == "ar" else "M": rows} | ({"N": COLUMNS} if name.startswith("gather") else {})
    return op, inputs(op, dims, dist.get_rank(), 7), dims


def settle() -> None:
    dist.barrier()
    torch.cuda.synchronize()


def profile(m, name: str, rows: int, rounds: int) -> None:
    op, tensors, dims = prepared(m, name, rows)
    calls = ways(op, tensors, dims)
    calls[WAYS[4]]()  # its gate stays closed
    calls = {WAYS[0]: calls[WAYS[0]], WAYS[4]: lambda: op(*tensors, **dims)}
    print_profile(op, tensors, dims, calls, settle, rounds)
    m.check()


def row(m, name: str, rows: int, rounds: int, times: int) -> list[str]:
    op, tensors, dims = prepared(m, name, rows)
    calls, wrong = ways(op, tensors, dims), 0
    for way in WAYS[1:4]:
        calls[way]()
        wrong += wrong_repeats(op, dims, m.machine)
    calls[WAYS[4]]()
    by_library = same(calls[WAYS[4]](), calls[WAYS[0]]())
    for _ in range(4):
        calls[WAYS[3]]()
    repeated = len(op.repeats.graphs)
    found = measured(calls, rounds, times)
    m.check()
    peer, host = found[WAYS[0]]
    cells = [name, str(rows), *(f"{us:.0f} ({taken:.0f})" for us, taken in found.values())]
    best, taken = found[WAYS[3]]
    cells += [f"{peer / best:.2f}", f"{peer / found[WAYS[4]][0]:.2f}", f"{taken / host:.2f}", str(repeated)]
    if m.machine.unrecorded and dist.get_rank() == 0:
        print(f"{name} was not recorded: {m.machine.unrecorded}", file=sys.stderr, flush=True)
    return [*cells, "NO" if any(m.machine.vote(wrong)) else "yes", "yes" if all(m.machine.vote(by_library)) else "NO"]


def main_rank(rank: int, world: int, args) -> None:
    with one_rank(rank, world, args.port) as machine:
        for name in args.only:
            sizes = (1, 8, 64) if name == "ar" else args.rows
            m = only(name)(machine=machine, timeout=20.0, **{"T" if name == "ar" else "M": max(sizes)})
            for rows in sizes:
                if args.profile:
                    profile(m, name, rows, args.rounds)
                    continue
                line = row(m, name, rows, args.rounds, args.calls)
                if rank == 0:
                    print(f"| {' | '.join(line)} |", flush=True)
            machine.barrier()
            del m


def main() -> int:
    refuse_multicast()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=lambda text: [int(n) for n in text.split(",")], default=[512, 2048, 4096])
    parser.add_argument("--only", type=lambda text: text.split(","),
                        default=["gather_4096", "scatter_14336", "reduce_14336", "ar"])  # fmt: skip
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=8, help="calls of a burst")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--port", type=int, default=29553)
    args = parser.parse_args()
    began, world = time.monotonic(), torch.cuda.device_count()
    where = f"{world} x {torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}"
    heads = ["op", "rows", *WAYS, "over NCCL + cuBLAS", "closed, over", "host / host", "graphs", "bits", "bits, closed"]
    table = f"; us of a call (the host's part)\n| {' | '.join(heads)} |\n|{' --- |' * len(heads)}"
    print(where if args.profile else where + table, flush=True)
    mp.spawn(main_rank, args=(world, args), nprocs=world)
    print(f"{time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
