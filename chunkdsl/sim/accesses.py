"""Checks and records accesses: bounds, races, hazards of barriers and proxies, the log. One call for each access.

Nothing here switches between programs or moves bytes.
"""

from __future__ import annotations

import sys
from os.path import basename

import numpy as np

from chunkdsl.interp.rewrite import kernel_line
from chunkdsl.sim.actors import Actor, Program
from chunkdsl.sim.boxes import Cells, cut, cut_range
from chunkdsl.sim.buffers import AddressSpace, Buffer
from chunkdsl.sim.changes import Changes
from chunkdsl.sim.clocks import Clock, Clocks, Kind, Stamp
from chunkdsl.sim.faults import BulkStoreInFlight, MissingProxyFence, Race, UnfencedRelease
from chunkdsl.sim.log import Log, Read, Write
from chunkdsl.sim.shadow import Shadow


class Accesses:
    """The checks of one world. `version` counts changes of memory that somebody polls."""

    def __init__(self, clocks: Clocks, races: bool, tma: bool, log: Log | None) -> None:
        self.clocks = clocks
        self.space = AddressSpace()
        self.races = races
        self.tma = tma
        self.log = log
        self.changes = Changes()

    # ---- programs

    def locate(self, actor: Program, what: str, addresses: np.ndarray, mask: np.ndarray, itemsize: int):
        """[(buffer, boxes)] of an access by a program."""
        found = self.space.locate(addresses, mask, itemsize, actor.rank, f"{what} by {actor.name}{site()}")
        if not (self.races or self.log):
            return [(buffer, []) for buffer, _, _ in found]
        return [(buffer, cut(offsets, part, itemsize, buffer.pitch)) for buffer, offsets, part in found]

    def load(self, actor: Program, parts, itemsize: int, volatile: bool, bulk: bool) -> None:
        for buffer, boxes in parts:
            buffer.polled |= volatile
            if buffer.ranks is None and (len(boxes) > 1 or _area(boxes) > 8):
                actor.exposed = f"the load{site()}"
            if self.races:
                kind = Kind.ATOMIC_SYS if volatile else Kind.PLAIN
                self.read(actor, buffer, boxes, itemsize, kind)
                if bulk and self.tma:
                    self._check_proxy(actor, buffer, boxes, itemsize)
            if self.log and boxes:
                event = Read(self.log.next(), buffer.place, buffer.in_elements(boxes), bulk, volatile)
                actor.trail.events.append(event)

    def store(self, actor: Program, parts, itemsize: int, bulk: bool) -> None:
        for buffer, boxes in parts:
            actor.exposed = f"the {'descriptor ' if bulk else ''}store{site()}"
            if bulk and self.tma:
                actor.bulk = actor.exposed
            self.touch(buffer, boxes)
            if self.races:
                self.write(actor, buffer, boxes, itemsize, Kind.PLAIN)
            if self.log and boxes:
                actor.trail.events.append(Write(self.log.next(), buffer.place, buffer.in_elements(boxes), bulk))

    def check_release(self, actor: Program, target: Buffer) -> None:
        """Faults of a release that would not cover what the program did before."""
        what = f"{actor.name} releases a word of {target}{site()}"
        if actor.bulk:
            raise BulkStoreInFlight(
                f"bulk store in flight: {what}, but {actor.bulk} may not have arrived: "
                "wait with cp.async.bulk.wait_group 0, then tl.debug_barrier(), then release",
                actor.rank,
            )
        if actor.exposed:
            raise UnfencedRelease(
                f"unfenced release: {what} with no tl.debug_barrier() after {actor.exposed}: "
                "other warps may not have finished it",
                actor.rank,
            )

    def _check_proxy(self, actor: Program, buffer: Buffer, boxes: list[Cells], itemsize: int) -> None:
        actor.fenced = self.clocks.grown(actor.fenced)
        late = self._shadow(buffer).unseen(boxes, itemsize, actor.fenced)
        if late:
            raise MissingProxyFence(
                f"missing proxy fence: descriptor load by {actor.name}{site()} of {buffer.describe(boxes)}, "
                f"written by {late.who}, with no fence.proxy.async since the program acquired it",
                actor.rank,
            )

    # ---- anyone

    def read(self, actor: Actor, buffer: Buffer, boxes: list[Cells], itemsize: int, kind: Kind) -> None:
        clock, stamp = self._stamp(actor, kind)
        other = self._shadow(buffer).read(boxes, itemsize, clock, stamp)
        if other:
            self._race("read", stamp, other, buffer, boxes, actor.rank)

    def write(self, actor: Actor, buffer: Buffer, boxes: list[Cells], itemsize: int, kind: Kind) -> None:
        clock, stamp = self._stamp(actor, kind)
        other = self._shadow(buffer).write(boxes, itemsize, clock, stamp)
        if other:
            self._race("write", stamp, other, buffer, boxes, actor.rank)

    def touch(self, buffer: Buffer, boxes: list[Cells]) -> None:
        """A plain store: polls of the buffer may see something new, and release sequences in it end."""
        if buffer.polled:
            self.changes.buffer(buffer.base)
        for offset in [o for o in buffer.words if _inside(o, boxes, buffer.pitch)] if buffer.words else ():
            buffer.words[offset].break_off()

    def range(self, buffer: Buffer, offset: int, nbytes: int) -> list[Cells]:
        return cut_range(offset, nbytes, buffer.pitch)

    def _shadow(self, buffer: Buffer) -> Shadow:
        if buffer.shadow is None:
            buffer.shadow = Shadow(self.clocks, buffer.rows, buffer.pitch, buffer.itemsize)
        return buffer.shadow

    def _stamp(self, actor: Actor, kind: Kind) -> tuple[Clock, int]:
        clock = actor.ready_clock()
        who = actor.name + site() if isinstance(actor, Program) else actor.name
        return clock, self.clocks.stamp(Stamp(actor.component, int(clock[actor.component]), kind, actor.rank, who))

    def _race(self, verb: str, stamp: int, other: Stamp, buffer: Buffer, boxes: list[Cells], rank: int) -> None:
        mine = self.clocks.stamps[stamp]
        scope = ""
        if mine.kind is not Kind.PLAIN and other.kind is not Kind.PLAIN:
            scope = "; both are atomic, but gpu scope does not reach another rank"
        raise Race(
            f"race: {mine.who} makes a {verb} of {buffer.describe(boxes)} and nothing orders it with an access "
            f"by {other.who}{scope}",
            rank,
        )


def site() -> str:
    """` (file.py:12)` of the running kernel's line, for messages."""
    found = kernel_line(sys._getframe(1))
    return f" ({basename(found[0])}:{found[1]})" if found else ""


def _area(boxes: list[Cells]) -> int:
    return sum((r1 - r0) * (c1 - c0) for r0, r1, c0, c1 in boxes)


def _inside(offset: int, boxes: list[Cells], pitch: int) -> bool:
    row, col = divmod(offset, pitch)
    return any(r0 <= row < r1 and c0 <= col < c1 for r0, r1, c0, c1 in boxes)
