"""Do the emitted kernels do what the plan says? Compares the log of a simulated run with the plan of the same calls.

The proof is about the plan; this ties it to the code. Both sides are brought to the same form, for each rank, call
and kernel: words signalled, words waited for, boxes written, boxes read, and for each box read the waits behind it.
The log's side comes from addresses and values; labels of the log are kernel names, nothing that a template prints.
The caller's tensors (results are new for each call) are compared by value elsewhere.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from chunkdsl.plan.plan import Act, Plan, Region, Task
from chunkdsl.plan.schedule import OpSchedule
from chunkdsl.sim.conformance_exchange import compare_exchange
from chunkdsl.sim.conformance_library import join_calls
from chunkdsl.sim.log import Add, Box, Copy, Log, Origin, Read, Signal, Trail, Wait, Write

CALLERS = ("input", "output")  # kinds of buffers whose memory is not the instance's
Key = tuple[int, int, str]  # rank, call, kernel
Word = tuple[str, int, int]  # flags, owner, index


@dataclass
class Side:
    """What one side, plan or log, says of one kernel in one call on one rank."""

    signals: Counter[Word] = field(default_factory=Counter)
    waits: set[Word] = field(default_factory=set)
    writes: list[tuple[str, int, tuple[int, int, int, int]]] = field(default_factory=list)
    reads: list[tuple[str, int, tuple[int, int, int, int]]] = field(default_factory=list)
    line: int = 0


def compare(log: Log, plan: Plan, op: OpSchedule) -> list[str]:
    """Differences, each one line for a person; empty when the run conforms. `log` holds calls of `op` alone, the first
    fused one being call 1; what is not of a fused call is left out."""
    if op.exchange:
        return compare_exchange(log, plan, op, sys.modules[__name__])
    flags = {f.name for f in op.flags} | {f"{op.name}_closed"}
    buffers = {b.name: b for b in plan.buffers if b.kind not in CALLERS}
    wanted = planned(plan)
    trails = join_calls(fused_trails(log), op)
    done, found = logged(trails, flags, set(buffers))
    for key in sorted(wanted.keys() | done.keys()):
        plan_side, log_side = wanted.get(key, Side()), done.get(key, Side())
        found += differences(key, plan_side, log_side, buffers, plan.spec)
    found += unguarded_reads(trails, plan, buffers)
    return found


# ---- the plan's side


def kernel_of(task: Task, launches: dict[str, str]) -> str:
    """Name of the kernel that carries out a task."""
    if task.lane != "main":
        return launches[task.lane] or "copy"
    if "stages its block" in task.name or "entry barrier before blocks" in task.name:
        return "deal_block"
    if task.kind == "stage" or "entry barrier" in task.name:
        return "stage_shard"
    return "close_call" if task.kind == "barrier" else ""


def planned(plan: Plan) -> dict[Key, Side]:
    launches = {lane.name: lane.launch for lane in plan.lanes}
    caps = {b.name: b.rows for b in plan.buffers}
    others = {b.name for b in plan.buffers if b.kind in CALLERS}
    sides: dict[Key, Side] = {}
    for task in plan.tasks:
        kernel = kernel_of(task, launches)
        if not kernel:
            continue
        side = sides.setdefault((task.rank, task.call, kernel), Side(line=task.line))
        for s in task.signals:
            g = plan.signals[s]
            # A chunk of many tasks is signalled once, by whichever is last.
            side.signals[(g.flags, g.owner, g.index)] = 1
        side.waits |= {(g.flags, g.owner, g.index) for g in (plan.signals[w] for w in task.waits)}
        written: set[Region] = set()
        for a in task.accesses:
            if a.act is not Act.NEED and a.region.buffer not in others:
                side.writes.append((a.region.buffer, a.region.rank, rows_of(a.region, caps)))
                written.add(a.region)
            for r in sources(a):
                # What the task itself has just made it still holds in registers.
                if r.buffer not in others and r not in written:
                    side.reads.append((r.buffer, r.rank, rows_of(r, caps)))
    return sides


def sources(access) -> Iterator[Region]:
    if access.act is Act.NEED:
        yield access.region
    elif access.source is not None:
        yield access.source


def rows_of(r: Region, caps: dict[str, int]) -> tuple[int, int, int, int]:
    """Box in rows of the whole allocation: slots lie behind each other."""
    base = r.slot * caps[r.buffer]
    return base + r.row0, base + r.row1, r.col0, r.col1


# ---- the log's side


def fused_trails(log: Log) -> list[Trail]:
    """Trails of fused calls."""
    return [t for t in log.trails if t.origin.call]


def logged(trails: list[Trail], flags: set[str], buffers: set[str]) -> tuple[dict[Key, Side], list[str]]:
    sides: dict[Key, Side] = {}
    found = []
    for t in trails:
        o = t.origin
        side = sides.setdefault((o.rank, o.call - 1, o.label), Side())
        for e in t.events:
            if isinstance(e, Signal) and e.at.buffer in flags:
                side.signals[(e.at.buffer, e.at.owner, e.index)] += 1
                found += bad_signal(o, e)
            elif isinstance(e, Wait) and e.at.buffer in flags:
                if e.value - o.call >= 0:
                    side.waits.add((e.at.buffer, e.at.owner, e.index))
                if e.sem not in ("acquire", "acq_rel") or e.scope != "sys":
                    what = f"{e.sem} at {e.scope} scope, not acquire at sys"
                    found.append(f"{say(o)}: waits for {e.at.buffer}[{e.index}] {what}")
            elif isinstance(e, Write) and e.at.buffer in buffers:
                side.writes += [(e.at.buffer, e.at.owner, (b.row0, b.row1, b.col0, b.col1)) for b in e.boxes]
            elif isinstance(e, Write) and e.at.buffer in flags:
                found.append(f"{say(o)}: writes {e.at.buffer} with an ordinary store")
            elif isinstance(e, Read) and e.at.buffer in buffers:
                side.reads += [(e.at.buffer, e.at.owner, (b.row0, b.row1, b.col0, b.col1)) for b in e.boxes]
            elif isinstance(e, Copy):
                take_copy(side, o, e, flags, found)
    return sides, found


def bad_signal(o: Origin, e: Signal) -> list[str]:
    what = f"{say(o)}: signals {e.at.buffer}[{e.index}] of rank {e.at.owner}"
    wrong = []
    if e.value != o.call:
        wrong.append(f"{what} with {e.value}; the epoch is {o.call}")
    if e.sem not in ("release", "acq_rel") or e.scope != "sys":
        wrong.append(f"{what} {e.sem} at {e.scope} scope, not release at sys")
    return wrong


def take_copy(side: Side, o: Origin, e: Copy, flags: set[str], found: list[str]) -> None:
    to = e.destination
    if to.buffer in flags:
        for b in e.destination_boxes:
            side.signals[(to.buffer, to.owner, b.col0)] += 1
        if e.value != o.call:
            found.append(f"{say(o)}: a copy sets {to.buffer} of rank {to.owner} to {e.value}; the epoch is {o.call}")
        return
    for place, boxes, into in ((e.source, e.source_boxes, side.reads), (to, e.destination_boxes, side.writes)):
        into += [(place.buffer, place.owner, (b.row0, b.row1, b.col0, b.col1)) for b in boxes]


def say(o: Origin) -> str:
    return f"rank {o.rank}, call {o.call - 1}, {o.label} program {o.program}"


# ---- comparison


def differences(key: Key, plan: Side, log: Side, buffers, spec: str) -> Iterator[str]:
    rank, call, kernel = key
    where = f"rank {rank}, call {call}, {kernel}" + (f" ({spec}:{plan.line})" if plan.line else "")
    for word in sorted(plan.signals.keys() | log.signals.keys()):
        want, got = plan.signals[word], log.signals[word]
        if want != got:
            yield f"{where}: signals {word[0]}[{word[2]}] of rank {word[1]} {got} times, the plan {want}"
    for word in sorted(plan.waits ^ log.waits):
        who = "the plan waits for" if word in plan.waits else "the kernel, not the plan, waits for"
        yield f"{where}: {who} {word[0]}[{word[2]}]"
    if kernel:
        yield from box_differences(where, plan, log, buffers)


def box_differences(where: str, plan: Side, log: Side, buffers) -> Iterator[str]:
    for name in sorted({(b, o) for b, o, _ in plan.writes + log.writes}):
        want, got = paint(plan.writes, name, buffers), paint(log.writes, name, buffers)
        yield from uneven(f"{where}: writes {name[0]} of rank {name[1]}", want, got)
    for name in sorted({(b, o) for b, o, _ in plan.reads}):
        want, got = paint(plan.reads, name, buffers), paint(log.reads, name, buffers)
        yield from uneven(f"{where}: reads {name[0]} of rank {name[1]}", want, got & want)


def paint(boxes, name: tuple[str, int], buffers) -> np.ndarray:
    b = buffers[name[0]]
    width = max([b.cols, *(x[3] for n, o, x in boxes if (n, o) == name)])
    map_ = np.zeros((b.rows * b.slots, width), bool)
    for n, o, (r0, r1, c0, c1) in boxes:
        if (n, o) == name:
            map_[r0:r1, c0:c1] = True
    return map_[:, : b.cols]


def uneven(what: str, want: np.ndarray, got: np.ndarray) -> Iterator[str]:
    sides = (want & ~got, "the plan's but not the kernel's"), (got & ~want, "the kernel's but not the plan's")
    for mask, who in sides:
        if mask.any():
            rows, cols = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
            yield f"{what}: rows {rows[0]}..{rows[-1] + 1}, columns {cols[0]}..{cols[-1] + 1} are {who}"


def unguarded_reads(trails: list[Trail], plan: Plan, buffers) -> list[str]:
    """Reads of a program that come before the waits that the plan puts before them."""
    launches = {lane.name: lane.launch for lane in plan.lanes}
    caps = {b.name: b.rows for b in plan.buffers}
    guards: dict[tuple[int, int, str, str, int], list] = {}
    for task in plan.tasks:
        kernel = kernel_of(task, launches)
        words = {(g.flags, g.owner, g.index) for g in (plan.signals[w] for w in task.waits)}
        if kernel:  # a task without waits too: rows that it reads need none
            for a in task.accesses:
                for r in sources(a):
                    key = (task.rank, task.call, kernel, r.buffer, r.rank)
                    guards.setdefault(key, []).append((rows_of(r, caps), words, task))
    found = []
    for t in trails:
        o, acquired, run = t.origin, set(), set()
        for e in t.events:
            if isinstance(e, Wait) and e.value - o.call >= 0:
                acquired.add((e.at.buffer, e.at.owner, e.index))
                run.add((e.at.buffer, e.at.owner, e.index))
            elif isinstance(e, Add) and e.at.buffer.endswith("_tickets"):
                run = set()  # the next tile or piece begins
            elif isinstance(e, Read):
                near = guards.get((o.rank, o.call - 1, o.label, e.at.buffer, e.at.owner), ())
                hits = [(g, b) for b in e.boxes for g in near if overlap(g[0], b)]
                found += premature(o, e, hits, acquired)
                if hits:
                    found += overcautious(o, e, [g for g, _ in hits], run)
                    run = set()
    return found


def overlap(box: tuple[int, int, int, int], b: Box) -> bool:
    return b.row0 < box[1] and box[0] < b.row1 and b.col0 < box[3] and box[2] < b.col1


def overcautious(o: Origin, e: Read, hits, run: set[Word]) -> Iterator[str]:
    """Waits between taking a ticket and reading must be those of one task: more of them cost overlap."""
    if run and not any(run <= words for _, words, _ in hits):
        _, words, task = max(hits, key=lambda h: len(run & h[1]))
        extra = sorted(run - words)[0]
        yield (
            f"{say(o)}: waits for {extra[0]}[{extra[2]}] before it reads {e.at.buffer} of rank {e.at.owner}, which the "
            f"plan does not ask for (line {task.line})"
        )


def premature(o: Origin, e: Read, pairs, acquired: set[Word]) -> Iterator[str]:
    """A read is right if some task of the plan reads these rows after no more waits than the program has done.
    `pairs`: (guard, box of the read) where they overlap; a guard is (box, words, task)."""
    for b in dict.fromkeys(b for _, b in pairs):
        hits = [g for g, other in pairs if other == b]
        low, high = max(b.row0, min(h[0][0] for h in hits)), min(b.row1, max(h[0][1] for h in hits))
        done = [h for h in hits if h[1] <= acquired]
        if not any(h[0][0] <= low and high <= h[0][1] for h in done) and not covered(low, high, done):
            box, words, task = next(h for h in hits if not h[1] <= acquired)
            missing = sorted(words - acquired)[0]
            yield (
                f"{say(o)}: reads {e.at.buffer} of rank {e.at.owner}, rows {box[0]}..{box[1]}, without waiting for "
                f"{missing[0]}[{missing[2]}] (line {task.line})"
            )


def covered(low: int, high: int, done) -> bool:
    """Do the boxes of these tasks hold rows low..high together?"""
    for (r0, r1, _, _), _, _ in sorted(done, key=lambda h: h[0]):
        if r0 <= low:
            low = max(low, r1)
    return low >= high
