"""The host's time for an eager call: Python of the wrapper and torch's dispatcher, with launches and copies that do
nothing, so no GPU is needed. What a launch or copy costs the driver comes on top; with --gpu all of it is measured.

    chunkdsl build specs/tp_mlp.chunk -o build && python tests/bench/host_cost.py build/tp_mlp.py
    CHUNKDSL_GPU_BUILD=build torchrun --nproc-per-node 2 tests/bench/host_cost.py build/tp_mlp.py --gpu
    torchrun --nproc-per-node 1 tests/bench/host_cost.py build/tp_mlp.py --one-gpu

With --one-gpu ours is rank 0 of two whose peer has sent everything before: all launches and copies are those of two
ranks. The library's way calls NCCL in a group of one rank, which takes the host less than one of two.

Prints microseconds of a call: launched anew each time; played from what the first call of its sizes noted; repeated,
as calls with the same tensors are, by one launch of a graph (runtime/repeats.py); with --gpu also played past Triton's
look at each argument (`Machine.PREPARES`; without a GPU that is what "played" is), and of the fallback, which calls
NCCL and cuBLAS from torch. Median of `--rounds` runs of 50 calls, interleaved.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "gpu"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "examples"))

import torch
from ranks import load

CALLS = 50


def stub(machine_class, world):
    """Rank 0 of `world` on a device that does nothing."""

    class Stub(machine_class):
        def __init__(self):
            self.group, self.rank, self.world, self.device = None, 0, world, torch.device("cpu")
            self.sms, self.target = 132, "sm_90"

        def symmetric(self, name, shape, dtype):
            local = torch.zeros(shape, dtype=dtype)
            shift = 1 << 44
            addresses = tuple(local.data_ptr() + shift * r for r in range(world))
            return Symmetric(local, addresses, torch.tensor(addresses))

        def pinned(self, name, shape, dtype):
            return torch.zeros(shape, dtype=dtype)

        def launch(self, kernel, programs, args, constants, warps, stages, early=False):
            return None

        def begin_play(self):
            return None

        def begin_call(self, name, fused=True):
            return True

        def watched(self):
            return False

        def recorded(self, play):
            return lambda: None

        def prepared(self, made, kernel, programs, args, constants, changing):
            names = kernel.arg_names
            held = [{**args, **constants}.get(name) for name in names]
            places = [names.index(name) for name in changing]

            def again(changed, shared):
                values = held.copy()
                for place, value in zip(places, changed, strict=True):
                    values[place] = value

            return again

        def copy(self, *anything):
            pass

        copy_rows = fork = join = open_lane = copy

        def vote(self, value):
            return [value] * world

        def timeout(self):
            return 60.0

    Symmetric = machine_class.symmetric.__globals__["Symmetric"]
    return Stub()


def lone(world):
    """Rank 0 of `world` on this GPU, whose peers have sent everything: flags that they set are set for ever, and
    those that copy engines set go elsewhere, as such a copy on one GPU needs a multiprocessor of those that wait."""
    from local_ranks import LonePeer

    class Lone(LonePeer):
        def copy(self, destination, source, nbytes, lane, label=""):
            super().copy(self.elsewhere if nbytes == 4 else destination, source, nbytes, lane, label)

        def symmetric(self, name, shape, dtype):
            made = super().symmetric(name, shape, dtype)
            if dtype == torch.int32 and not name.endswith("_state"):
                made.local.fill_(1 << 30)
            return made

        def among(self, ranks, group):
            return self

    machine = Lone(world)
    machine.aside = torch.zeros(16, dtype=torch.int32, device=machine.device)
    machine.elsewhere = machine.aside.data_ptr()
    return machine


def local_tensors(op, dims, device):
    declared = op.PARAMETERS.values()
    return [torch.zeros(op.local_shape(shape, dims), dtype=dtype, device=device) for dtype, shape in declared]


def microseconds(call):
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", type=Path)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--one-gpu", dest="one", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)
    made = load(args.module)
    cls = next(v for v in vars(made).values() if isinstance(v, type) and getattr(v, "OPS", None))
    bounds = {k: min(high, args.rows) for k, (_, high, _) in cls.RANGES.items()}
    on_gpu, library = args.gpu or args.one, None
    if on_gpu:
        from ranks import join

        join(True, os.environ)
        device = torch.device("cuda", torch.cuda.current_device())
        m = cls(machine=lone(args.world), **bounds) if args.one else cls(**bounds)
        library = cls(**bounds) if args.one else m
    else:
        m, device = cls(machine=stub(made.Machine, args.world), **bounds), torch.device("cpu")
    for name in cls.OPS:
        op = getattr(m, name)
        if op.why_not or op.unfused(bounds):
            print(f"{cls.NAME}.{name}: runs its fallback")
            continue
        x = local_tensors(op, bounds, device)
        kept = {False: {}, True: {}}

        def ready(replays, past_triton=False, after=1 << 40, op=op, kept=kept):
            """Settings of a way. After any the op looks at its next call, so they go ahead of all that are timed."""
            op.replays, op.tapes, op.machine.PREPARES = replays, kept[past_triton], past_triton
            op.repeats.AFTER = after

        ways = {"anew": (False,), "played": (True,), "repeated": (True, True, 0)}
        if on_gpu:
            ways["played past Triton"] = (True, True)
            theirs = getattr(library, name)
            y = local_tensors(theirs, bounds, device)
            ways["library"] = None
        seen = {way: [] for way in ways}
        with torch.no_grad():
            for _ in range(args.rounds):
                for way, settings in ways.items():
                    if settings is None:
                        run = lambda op=theirs, x=y: op.fallback(*x, **bounds)  # noqa: E731
                    else:
                        ready(*settings)
                        run = lambda op=op, x=x: op(*x, **bounds)  # noqa: E731
                        run()
                    seen[way].append(microseconds(run))
                    m.machine.synchronize()
        said = ", ".join(f"{way} {statistics.median(times):.0f}" for way, times in seen.items())
        if not on_gpu or m.machine.rank == 0:
            print(f"{cls.NAME}.{name}, {len(x)} tensors, rows {args.rows}: {said} us a call", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
