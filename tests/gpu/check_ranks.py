"""Modules on 2 and 4 virtual ranks of one GPU: fused bits against `exact`, eagerly and in CUDA graph replays.

    python tests/gpu/check_ranks.py STEM [STEM ...] [--worlds 2,4] [--calls 1000,1,3,2048] [--columns 128]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

# Many ranks' streams in one process: with few hardware queues a spinning kernel holds up another rank's.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

import torch
from local_ranks import refuse_multicast, run_ranks
from modules import fused_call, inputs, load, results, same, warps_in_tiles


def check(stem: str, world: int, sizes: list[int], reps: int, columns: int) -> str:
    cls = load(stem)
    warps_in_tiles(cls, columns)
    names = list(cls.OPS)
    share = torch.cuda.get_device_properties(0).multi_processor_count // world - 8

    def body(machine):
        m = cls(machine=machine, timeout=20.0, **{k: min(max(sizes), high) for k, (_, high, _) in cls.RANGES.items()})
        report = []
        for name in names:
            op = getattr(m, name)
            if op.why_not:
                return [f"{name}: {op.why_not}"]
            bad, calls = [], 0
            for rep in range(reps):
                for size in sizes:
                    dims = {k: size for k in op.RANGES}
                    x = inputs(op, dims, machine.rank, 100 * rep + size)
                    fused = op(*x, **dims)
                    machine.synchronize()
                    m.check()
                    exact = op.exact(*x, **dims)
                    plain = op.fallback(*x, **dims)
                    machine.synchronize()
                    calls += 1
                    if op.unfused(dims) is None and not same(fused, exact):
                        bad.append(size)
                    for f, p in zip(results(fused), results(plain), strict=True):
                        gap = ((f.float() - p.float()).norm() / p.float().norm().clamp_min(1e-9)).item()
                        if f.numel() and not gap < 2e-2:
                            bad.append((size, "fallback", gap))
            report.append(f"{name}: {calls} calls, wrong {bad[:4]}")
            fused = fused_call(op, [{k: n for k in op.RANGES} for n in sizes])
            report.append(f"{name}: graph {replay(machine, op, fused, world) if fused else 'below its gate'}")
        m.check()
        return report

    started = time.time()
    found = run_ranks(world, share, body)
    agree = len(set(map(str, found))) == 1
    return f"{stem} world {world}: {found[0]} ranks agree {agree} {time.time() - started:.1f} s"


def replay(machine, op, dims: dict[str, int], world: int) -> str:
    """Two calls in a graph, replayed an odd number of times with changing data; against `exact`."""
    x = inputs(op, dims, machine.rank, 7)
    op(*x, **dims)
    machine.synchronize()
    machine.vote("before capture")
    graph = torch.cuda.CUDAGraph()
    for turn in range(world):  # one capture at a time: entering one synchronises the device
        if turn == machine.rank:
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
                op(*x, **dims)
                out = op(*x, **dims)
        machine.vote(f"captured by {turn}")
    wrong = 0
    for i in range(5):
        for t, fresh in zip(x, inputs(op, dims, machine.rank, 50 + i), strict=True):
            t.copy_(fresh)
        graph.replay()
        machine.synchronize()
        wrong += not same(out, op.exact(*x, **dims))
    op.module.check()
    return f"5 replays, wrong {wrong}"


def main() -> int:
    refuse_multicast()
    parser = argparse.ArgumentParser()
    parser.add_argument("stems", nargs="+")
    parser.add_argument("--worlds", default="2,4")
    parser.add_argument("--calls", default="1000,1,3,2048")
    parser.add_argument("--reps", type=int, default=2)
    parser.add_argument("--columns", type=int, default=0, help="of the tiles of specialised warps, whatever the size")
    args = parser.parse_args()
    failed = 0
    for stem in args.stems:
        for world in map(int, args.worlds.split(",")):
            try:
                line = check(stem, world, [int(c) for c in args.calls.split(",")], args.reps, args.columns)
            except Exception as error:
                line = f"{stem} world {world}: {type(error).__name__}: {error}"
            failed += "Error" in line or "wrong [(" in line or ("wrong " in line and "replays, wrong 0" not in line)
            print(line, flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
