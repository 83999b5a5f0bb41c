"""Small all-reduces on virtual ranks of ONE GPU: bits of every form, graphs, instances, streams, a rank that sleeps
between its stores, a rank that dies, and what barriers cost. Times are of one GPU's own memory: they compare forms with
each other and a null kernel, and say nothing of a link.

    for f in small_ar small_rows; do chunkdsl build tests/bench/specs/$f.chunk -o build/gpu; done
    CHUNKDSL_GPU_BUILD=build/gpu python tests/gpu/check_small.py [--worlds 2,4] [--scenes bits,dies] [--json out.json]

Ends by itself after --deadline seconds, whatever hangs. Exit code 1 if a scene is not as it must be.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import traceback
from functools import partial
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

# Many ranks' streams in one process: with few hardware queues a spinning kernel holds up another rank's.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

import torch
import triton
import triton.language as tl
from checks import wrong_calls, wrong_replays
from local_ranks import end_after, refuse_multicast, run_ranks
from modules import FOLDER, inputs, load
from sleepy import load_text, sleeping_reader, sleeping_sender

SIZES = (64, 1, 3, 33, 64, 2, 17)  # of T, which shrinks and grows
SLEEPERS = {"small_ar": ("dual", "word", "marks", "rounds"), "small_rows": ("long", "two_norm", "two_norm_flag")}
ABLATION = ("barriers", "dual", "word", "marks", "rounds")


@triton.jit
def null(p):
    tl.debug_barrier()


def captured(machine, call, times: int, meet=None) -> torch.cuda.CUDAGraph:
    """A graph of `times` calls on this rank's stream. One rank captures at a time: to begin synchronises the device."""
    call()
    machine.synchronize()
    graph = torch.cuda.CUDAGraph()
    for turn in range(machine.world):
        machine.vote("next")
        if turn == machine.rank:
            stream = torch.cuda.current_stream()
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                for _ in range(times):
                    call()
    machine.vote("captured")
    return graph


def bits(machine, say) -> dict:
    """Every op of both modules, eagerly and in graphs."""
    found = {}
    for stem in SLEEPERS:
        m = load(stem)(machine=machine, timeout=20.0, T=max(SIZES))
        for name in m.OPS:
            op = getattr(m, name)
            calls = 15 if op.INOUT else 300
            wrong = wrong_calls(op, [{"T": n} for n in SIZES], machine)
            graphs = wrong_replays(op, {"T": 3}, machine, calls, partial(captured, machine))
            found[f"{stem}.{name}"] = wrong or graphs
            say(f"{stem}.{name}: {2 * len(SIZES)} calls, wrong {wrong}; graph of {calls}, 5 replays, wrong {graphs}")
    return found


def instances(machine, say) -> dict:
    """Three instances in turn, on two streams."""
    cls = load("small_ar")
    made = [cls(machine=machine, timeout=20.0, T=8) for _ in range(3)]
    x = inputs(made[0].word, {"T": 4}, machine.rank, 5)
    wanted = made[0].word.exact(*x)
    machine.synchronize()
    other, here = torch.cuda.Stream(), torch.cuda.current_stream()
    other.wait_stream(here)
    got = []
    for i in range(60):
        with torch.cuda.stream(other if i % 2 else here):
            m = made[i % 3]
            got.append((m.word if i % 5 else m.marks)(*x))
    here.wait_stream(other)
    machine.synchronize()
    wrong = sum(not torch.equal(y, wanted) for y in got)
    say(f"three instances, two streams, 60 calls: wrong {wrong}")
    return {"instances": wrong}


def kept(cls, names):
    """The class of a module with some of its ops alone: no other kernel is compiled."""
    cls.OPS = {name: cls.OPS[name] for name in names}
    return cls


def only(module, names):
    return kept(next(v for v in vars(module).values() if isinstance(v, type) and getattr(v, "OPS", None)), names)


def sleeper(machine, say, folder: Path) -> dict:
    """Rank 1 sleeps before half of its stores, of every word and of what comes before a flag; all the others wait."""
    found = {}
    for stem, names in SLEEPERS.items():
        text = sleeping_sender((FOLDER / f"{stem}.py").read_text(encoding="utf-8"), 1)
        cls = only(load_text(text, folder / f"sleepy_{stem}_{machine.rank}.py"), names)
        m = cls(machine=machine, timeout=20.0, T=max(SIZES))
        for name in names:
            op = getattr(m, name)
            begun = time.time()
            wrong = wrong_calls(op, [{"T": n} for n in SIZES], machine, 6)
            found[f"{stem}.{name}"] = wrong
            say(f"rank 1 sleeps, {stem}.{name}: {6 * len(SIZES)} calls in {time.time() - begun:.1f} s, wrong {wrong}")
    return found


def control(machine, say, folder: Path) -> dict:
    """That such a scene can fail: readers of the speculative form sleep between data and flag, which it cannot bear."""
    text = sleeping_reader((FOLDER / "small_ar.py").read_text(encoding="utf-8"))
    cls = only(load_text(text, folder / f"reader_{machine.rank}.py"), ("guess",))
    m = cls(machine=machine, timeout=20.0, T=max(SIZES))
    wrong = wrong_calls(m.guess, [{"T": n} for n in SIZES], machine, 6)
    counts = m.guess.counters()
    say(f"readers that speculate sleep: {len(wrong)} of {6 * len(SIZES)} calls wrong (some must be); {counts}")
    return {"a scene that cannot fail": machine.vote(bool(wrong)).count(True) == 0}


def dies(machine, say) -> dict:
    """The last rank does not make its second call."""
    found, last = {}, machine.world - 1
    for stem, name in (("small_ar", "word"), ("small_ar", "marks"), ("small_ar", "dual"), ("small_rows", "two_norm")):
        m = kept(load(stem), (name,))(machine=machine, timeout=1.0, T=8)
        op = getattr(m, name)
        x = inputs(op, {"T": 3}, machine.rank, 1)
        op(*x)
        machine.synchronize()
        machine.vote("once")
        said = ""
        if machine.rank != last:
            op(*x)
            machine.synchronize()
            try:
                op.module.check()
            except RuntimeError as error:
                said = str(error)
        every = machine.vote(said)
        named = [f"rank {last}," in s for s in every[:-1]]
        told = all("is dead on rank" in s for s in every[:-1])
        found[f"{stem}.{name}"] = not (any(named) and told)
        say(f"rank {last} dies, {stem}.{name}: {every[0]}")
    return found


def ablation(machine, say) -> dict:
    """Microseconds of a call in a graph of 100, p50 over replays that all ranks begin together."""
    m = kept(load("small_ar"), ABLATION)(machine=machine, timeout=20.0, T=64)
    rows = {}
    for tokens in (1, 2, 4, 8, 16, 64):
        (p,) = inputs(m.word, {"T": tokens}, machine.rank, 1)
        out, row = torch.empty_like(p), {}
        row["null"] = replayed(machine, lambda p=p: null[(8,)](p, num_warps=4))
        for name in ABLATION:
            op = getattr(m, name)
            row[name] = replayed(machine, lambda op=op, p=p, out=out: op(p, out=out))
        rows[f"{tokens * 4} KiB"] = row
        say(f"one GPU, {machine.world} virtual ranks, {tokens * 4} KiB, us a call: {row}")
    m.check()
    return {"times": rows}


def replayed(machine, call) -> float:
    graph = captured(machine, call, 100)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(31)]
    machine.vote("begin")
    for event in events:
        graph.replay()
        event.record()
    machine.synchronize()
    found = statistics.median(a.elapsed_time(b) * 10 for a, b in pairwise(events[5:]))
    return round(max(machine.vote(found)), 2)


SCENES = {f.__name__: f for f in (dies, instances, sleeper, control, ablation, bits)}


def main() -> int:
    refuse_multicast()
    parser = argparse.ArgumentParser()
    parser.add_argument("--worlds", type=lambda t: [int(x) for x in t.split(",")], default=[2, 4])
    parser.add_argument("--scenes", default=",".join(SCENES))
    parser.add_argument("--json", default="")
    parser.add_argument("--deadline", type=int, default=420)
    args = parser.parse_args()
    end_after(args.deadline)
    began, report, bad = time.time(), {}, []
    folder = Path(tempfile.mkdtemp())
    for scene in args.scenes.split(","):
        for world in args.worlds:
            share = torch.cuda.get_device_properties(0).multi_processor_count // world - 8

            def body(machine, scene=scene, world=world):
                def say(text):
                    if machine.rank == 0:
                        print(f"[{time.time() - began:4.0f} s] {world} ranks: {text}", flush=True)

                given = (machine, say, folder) if scene in ("sleeper", "control") else (machine, say)
                return SCENES[scene](*given)

            try:
                found = run_ranks(world, share, body)
            except Exception:
                traceback.print_exc()
                bad.append(f"{scene} {world}")
                continue
            report[f"{scene} {world}"] = found[0]
            bad += [f"{scene} {world} {k}" for f in found for k, v in f.items() if k != "times" and v]
            if args.json:
                Path(args.json).write_text(json.dumps(report, indent=1), encoding="utf-8")
    print(f"WRONG: {sorted(set(bad))}" if bad else "ok", flush=True)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
