"""The accesses to one buffer that a later one may conflict with: the last plain write of each granule, and boxes
read or written atomically since.

Granules have the buffer's item size, at most 4 bytes, and are split when a smaller access comes.
"""

from __future__ import annotations

import numpy as np

from chunkdsl.sim.boxes import Cells
from chunkdsl.sim.clocks import Clock, Clocks, Kind, Stamp


class Shadow:
    """Memory of accesses to a buffer of `rows` rows of `pitch` bytes."""

    def __init__(self, clocks: Clocks, rows: int, pitch: int, itemsize: int) -> None:
        self._clocks = clocks
        self._granule = itemsize if itemsize in (1, 2) else 4
        while pitch % self._granule:
            self._granule //= 2
        self._writes = np.zeros((rows, pitch // self._granule), np.int32)
        self._reads = _Records(clocks)
        self._atomic_writes = _Records(clocks)

    def read(self, boxes: list[Cells], itemsize: int, clock: Clock, stamp: int) -> Stamp | None:
        """Record reads; returns an earlier write that races with one of them."""
        for box in boxes:
            race = self._racing_write(box, itemsize, clock, stamp)
            if race:
                return race
            self._reads.add(box, stamp)
        return None

    def write(self, boxes: list[Cells], itemsize: int, clock: Clock, stamp: int) -> Stamp | None:
        """Record writes; returns an earlier access that races with one of them."""
        plain = self._clocks.stamps[stamp].kind is Kind.PLAIN
        for box in boxes:
            race = self._racing_write(box, itemsize, clock, stamp)
            race = race or _first_race(self._clocks, self._reads.unordered(box, clock), stamp)
            if race:
                return race
            if plain:
                self._cells(box, itemsize)[...] = stamp
                # Whoever races with what is forgotten here races with this write too. An atomic write would not do:
                # it may be allowed to race where the forgotten access is not.
                self._reads.cover(box)
                self._atomic_writes.cover(box)
            else:
                self._atomic_writes.add(box, stamp)
        return None

    def unseen(self, boxes: list[Cells], itemsize: int, clock: Clock) -> Stamp | None:
        """A write of these cells that `clock` does not know, whatever its kind."""
        for box in boxes:
            late = self._late_writes(box, itemsize, clock)
            if late:
                return self._clocks.stamps[late[0]]
        return None

    def _racing_write(self, box: Cells, itemsize: int, clock: Clock, stamp: int) -> Stamp | None:
        return _first_race(self._clocks, self._late_writes(box, itemsize, clock), stamp)

    def _late_writes(self, box: Cells, itemsize: int, clock: Clock) -> list[int]:
        late = self._clocks.unordered(self._cells(box, itemsize), clock)
        return late + self._atomic_writes.unordered(box, clock)

    def _cells(self, box: Cells, itemsize: int) -> np.ndarray:
        while itemsize < self._granule:
            self._writes = np.repeat(self._writes, 2, axis=1)
            self._granule //= 2
        row0, row1, col0, col1 = box
        return self._writes[row0:row1, col0 // self._granule : -(-col1 // self._granule)]


def _first_race(clocks: Clocks, unordered: list[int], stamp: int) -> Stamp | None:
    if not unordered:
        return None
    mine = clocks.stamps[stamp]
    for number in unordered:
        other = clocks.stamps[number]
        if other.component != mine.component and not _both_strong(mine, other):
            return other
    return None


def _both_strong(a: Stamp, b: Stamp) -> bool:
    """PTX: two atomics are morally strong if each one's scope includes the other's thread."""
    same = a.rank == b.rank
    return all(s.kind is not Kind.PLAIN and (same or s.kind is Kind.ATOMIC_SYS) for s in (a, b))


class _Records:
    """Boxes accessed since the last plain write of them, one for each (component, kind, box)."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self._at: dict[tuple, int] = {}
        self._keys: list[tuple | None] = []
        self._free: list[int] = []
        self._table = np.zeros((64, 5), np.int64)  # stamp, row0, row1, col0, col1; stamp 0 is free

    def add(self, box: Cells, stamp: int) -> None:
        made = self._clocks.stamps[stamp]
        key = (made.component, made.kind, box)
        at = self._at.get(key)
        if at is None:
            at = self._free.pop() if self._free else len(self._keys)
            if at == len(self._keys):
                self._keys.append(key)
            if at >= len(self._table):
                self._table = np.concatenate((self._table, np.zeros_like(self._table)))
            self._keys[at] = key
            self._at[key] = at
            self._table[at, 1:] = box
        self._table[at, 0] = stamp

    def unordered(self, box: Cells, clock: Clock) -> list[int]:
        """Stamps of overlapping records that `clock` does not know."""
        if not self._at:
            return []
        hit = self._overlapping(box)
        return self._clocks.unordered(self._table[hit, 0], clock) if hit.size else []

    def cover(self, box: Cells) -> None:
        """Forget records inside a box."""
        if not self._at:
            return
        row0, row1, col0, col1 = box
        for at in self._overlapping(box).tolist():
            _, r0, r1, c0, c1 = self._table[at].tolist()
            if row0 <= r0 and r1 <= row1 and col0 <= c0 and c1 <= col1:
                del self._at[self._keys[at]]
                self._keys[at] = None
                self._table[at, 0] = 0
                self._free.append(at)

    def _overlapping(self, box: Cells) -> np.ndarray:
        row0, row1, col0, col1 = box
        t = self._table[: len(self._keys)]
        return np.flatnonzero((t[:, 0] > 0) & (t[:, 1] < row1) & (t[:, 2] > row0) & (t[:, 3] < col1) & (t[:, 4] > col0))
