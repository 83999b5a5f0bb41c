"""The copy engine: moves the copy at the head of a lane in one or several steps, each a read and then a write.

A copy of 4 or 8 bytes is one step, and is atomic: it publishes everything its lane has done before at sys scope, as
an aligned word written by a copy engine does for those who acquire it.
"""

from __future__ import annotations

import random

from chunkdsl.sim.accesses import Accesses
from chunkdsl.sim.clocks import Kind
from chunkdsl.sim.lanes import CopyWork, Lane
from chunkdsl.sim.log import Copy, Origin
from chunkdsl.sim.words import Word

_WORDS = (4, 8)


def advance(accesses: Accesses, lane: Lane, work: CopyWork, draw: random.Random) -> None:
    """One scheduler step of `work`, the copy that runs on `lane`."""
    who = f"{work} by {lane.name}"
    if work.nbytes == 0:
        work.done = True
        return
    source, start = accesses.space.span(work.source, work.nbytes, lane.rank, who + ", source")
    target, to = accesses.space.span(work.destination, work.nbytes, lane.rank, who + ", destination")
    word = work.nbytes in _WORDS and not work.data
    whole = word or draw.random() < 0.5
    left = work.nbytes - work.moved
    count = left if whole else min(left, max(16, work.nbytes // 4 // 16 * 16))
    start, to = start + work.moved, to + work.moved
    if accesses.races:
        accesses.read(lane, source, accesses.range(source, start, count), min(source.itemsize, 4), Kind.PLAIN)
        kind = Kind.ATOMIC_SYS if word else Kind.PLAIN
        accesses.write(lane, target, accesses.range(target, to, count), min(target.itemsize, 4), kind)
    accesses.touch(target, accesses.range(target, to, count))
    target.bytes[to : to + count] = source.bytes[start : start + count].copy()
    work.moved += count
    work.done = work.moved == work.nbytes
    if word:
        clock = lane.ready_clock()
        target.words.setdefault(to, Word()).release(accesses.clocks, lane.rank, True, clock, first=True)
        lane.tick()
        accesses.changes.buffer(target.base)
    if work.done and accesses.log:
        _record(accesses, lane, work, source, target)


def _record(accesses: Accesses, lane: Lane, work: CopyWork, source, target) -> None:
    log = accesses.log
    begin, to = work.source - source.base, work.destination - target.base
    event = Copy(
        log.next(),
        source.place,
        source.in_elements(accesses.range(source, begin, work.nbytes)),
        target.place,
        target.in_elements(accesses.range(target, to, work.nbytes)),
        work.nbytes,
        target.word(to, work.nbytes) if work.nbytes in _WORDS and not work.data else None,
    )
    log.copies(Origin(lane.rank, work.call, lane.lane, -1, "copy", -1)).events.append(event)
