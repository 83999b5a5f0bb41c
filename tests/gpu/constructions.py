"""What constructions of an instance leave behind, on one rank: the scene `many` of check_failures.py. The second half
of them is held against the first, by which time whatever is made once has been made. More than one buffer, word or
descriptor from fifty constructions is a leak; that each of these would be seen is shown in every run, by leaks that
are planted after the count."""

from __future__ import annotations

import gc
import os
import time

import torch
import torch.distributed._symmetric_memory as symm

# What one construction that leaks one of them leaves: bytes are the least that an allocator gives out.
ONE = {
    "file descriptors": 1,
    "threads": 1,
    "mapped regions": 1,
    "Python objects": 1,
    "bytes of GPU memory": 2 << 20,
    "bytes of torch's GPU memory": 512,
    "blocks of pinned memory": 1,
}
RARE = 50  # constructions to a leak that is let pass
SHORT = 50  # constructions with a planted leak


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
        "blocks of pinned memory": pinned["num_host_alloc"] - pinned["num_host_free"],
    }


def held(machine) -> dict[str, int]:
    """What this rank holds, by kind. Collective."""
    gc.collect()
    machine.barrier()
    return of_device(machine) | of_process()


def kept_by_torch(machine, times: int = 50) -> int:
    """Bytes of its GPU memory that torch keeps of a rendezvous when everybody has let go of it (in 2.11 two tables of
    addresses), measured without a module. Collective."""
    if machine.device.type == "cpu":
        return 0
    before = torch.cuda.memory_allocated()
    for _ in range(times):
        tensor = symm.empty(16, dtype=torch.int32, device=machine.device)
        symm.rendezvous(tensor, machine.group.group_name)
        del tensor
    return (torch.cuda.memory_allocated() - before) // times


class Count:
    """What a rank holds, less what torch has kept of `tables` bytes for each construction."""

    def __init__(self, machine, tables: int):
        self.machine, self.tables, self.before = machine, tables, held(machine)

    def more(self, times: int) -> dict[str, int]:
        """By kind, what `times` constructions have added since the last look. Collective."""
        after = held(self.machine)
        more = {kind: after[kind] - n for kind, n in self.before.items()}
        if "bytes of torch's GPU memory" in more:
            more["bytes of torch's GPU memory"] -= self.tables * times
        self.before = after
        return more


def leaks(more: dict[str, int], times: int) -> dict[str, int]:
    """What is more than rare of what `times` constructions have added."""
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
    "blocks of pinned memory": lambda m: m.machine.pinned("planted", (8,), torch.int64),
}


def many(r, times: int) -> None:
    """Thousands of constructions leave no memory and no file descriptors: AssertionError on every rank if they do on
    one, or if a planted leak is not seen."""
    half, begin = times // 2, time.monotonic()
    symmetric = construct(r, half, lambda m: len(m.machine._keep))[-1]
    seconds = time.monotonic() - begin
    own = kept_by_torch(r.machine)
    count = Count(r.machine, own * symmetric)
    construct(r, half)
    more = count.more(half)
    say(r, f"{2 * half} constructions, {seconds / half * 1e3:.1f} ms each; left by the second half: {more}")
    say(r, f"beside {symmetric} x {own} bytes for each, which torch keeps of a rendezvous by itself")
    found = r.machine.vote(leaks(more, half))
    assert not any(found), f"the second half of {2 * half} constructions left {found} (by rank)"
    unseen = [kind for kind in PLANTS if kind in more and not is_seen(r, kind, count)]
    assert not unseen, f"{SHORT} planted leaks of each were not seen: {unseen}"


def is_seen(r, kind: str, count: Count) -> bool:
    """Are leaks that are planted for this kind seen in it, on every rank?"""
    kept = construct(r, SHORT, PLANTS[kind])
    seen = r.machine.vote(leaks(count.more(SHORT), SHORT))
    say(r, f"planted, one in each of {SHORT}: {seen[0]}")
    for file in kept if kind == "file descriptors" else ():
        file.close()
    del kept
    count.more(0)  # looks again, now that they are gone
    return all(kind in each for each in seen)


def say(r, line: str) -> None:
    if r.rank == 0:
        print(f"  {line}", flush=True)
