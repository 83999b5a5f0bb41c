"""What constructions of an instance leave behind, on one rank: the scene `many` of check_failures.py. The second half
of them is held against the first, by which time whatever is made once has been made. More than one buffer, word or
descriptor from fifty constructions is a leak; that each of these would be seen is shown in every run, by leaks that
are planted after the count."""

from __future__ import annotations

import gc
import os
import time

import torch

# What one construction that leaks one of them leaves: bytes are the least that an allocator gives out.
ONE = {
    "file descriptors": 1,
    "threads": 1,
    "mapped regions": 1,
    "Python objects": 1,
    "bytes of GPU memory": 2 << 20,
    "bytes of torch's GPU memory": 512,
    "bytes of pinned memory": 64,
}
RARE = 50  # constructions to a leak that is let pass
SHORT = 100  # constructions with a planted leak


def of_process() -> dict[str, int]:
    with open("/proc/self/maps") as maps:
        regions = sum(1 for _ in maps)
    files, threads = (len(os.listdir(f"/proc/self/{kind}")) for kind in ("fd", "task"))
    return {
        "file descriptors": files,
        "threads": threads,
        "mapped regions": regions,
        "Python objects": len(gc.get_objects()),
    }


def of_device(machine) -> dict[str, int]:
    torch.cuda.empty_cache()
    machine.barrier()  # peers have let go of what they had mapped, and given it back
    free, total = torch.cuda.mem_get_info()
    pinned = torch.cuda.host_memory_stats()
    return {
        "bytes of GPU memory": total - free,
        "bytes of torch's GPU memory": torch.cuda.memory_allocated(),
        "bytes of pinned memory": pinned.get("active_bytes.current", pinned["allocated_bytes.current"]),
    }


def held(machine) -> dict[str, int]:
    """What this rank holds, by kind. Collective."""
    gc.collect()
    machine.barrier()
    return of_device(machine) | of_process()


def left(before: dict[str, int], after: dict[str, int], times: int) -> dict[str, int]:
    """What `times` constructions have left, by kind, where it is more than rare."""
    more = {kind: after[kind] - before[kind] for kind in ONE if kind in before}
    return {kind: n for kind, n in more.items() if n > ONE[kind] * (times // RARE)}


def construct(r, times: int, plant=lambda m: None) -> list:
    """Make and close instances. What `plant` took of each before it was closed."""
    kept = []
    for _ in range(times):
        m = r.cls(None, timeout=60.0, M=64)
        kept.append(plant(m))
        m.close()
    return kept


def buffer(m):
    """This rank's part of an op's symmetric memory."""
    op = getattr(m, next(iter(m.OPS)))
    return next(v.local for v in vars(op).values() if hasattr(v, "addresses"))


PLANTS = {  # what it must be seen in: what is kept of each instance
    "file descriptors": lambda m: open(os.devnull),
    "bytes of GPU memory": buffer,
    "bytes of torch's GPU memory": lambda m: m.machine.zeros("planted", (1,), torch.int32),
    "bytes of pinned memory": lambda m: m.machine.pinned("planted", (8,), torch.int64),
}


def many(r, times: int) -> None:
    """Thousands of constructions leave no memory and no file descriptors: AssertionError on every rank if they do on
    one, or if a planted leak is not seen."""
    half, begin = times // 2, time.monotonic()
    construct(r, half)
    first = held(r.machine)
    construct(r, half)
    second, seconds = held(r.machine), time.monotonic() - begin
    more = {kind: second[kind] - n for kind, n in first.items()}
    say(r, f"{2 * half} constructions, {seconds / 2 / half * 1e3:.1f} ms each; left by the second half: {more}")
    leaks = r.machine.vote(left(first, second, half))
    assert not any(leaks), f"the second half of {2 * half} constructions left {leaks} (by rank)"
    unseen = [kind for kind, plant in PLANTS.items() if kind in first and not is_seen(r, kind, plant)]
    assert not unseen, f"{SHORT} planted leaks of each were not seen: {unseen}"


def is_seen(r, kind: str, plant) -> bool:
    """Are leaks that `plant` makes seen in this kind, on every rank?"""
    before = held(r.machine)
    kept = construct(r, SHORT, plant)
    seen = r.machine.vote(left(before, held(r.machine), SHORT))
    say(r, f"planted, one in each of {SHORT}: {seen[0]}")
    for file in kept if kind == "file descriptors" else ():
        file.close()
    return all(kind in each for each in seen)


def say(r, line: str) -> None:
    if r.rank == 0:
        print(f"  {line}", flush=True)
