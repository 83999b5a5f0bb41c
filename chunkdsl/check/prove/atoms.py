"""Cuts buffers into atoms, boxes that no access of the plan cuts further, and names each access by its atoms.

Coordinate compression per (buffer, rank, slot). What cuts the source of a copy also cuts its destination, so that an
atom of a destination always comes from one atom of the source.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from chunkdsl.plan.plan import Access, Act, Plan, Region

Place = tuple[str, int, int]  # buffer, rank, slot
Content = tuple[str, int, int, int, int]  # what, call, mask, row and column of the tensor minus those of the buffer


@dataclass(slots=True)
class Step:
    """One access in atoms. For COPY and ADD `sources[i]` is where `atoms[i]` comes from and (down, right) what to add
    to the offsets of its content; for PUT and NEED `content` is what is put or needed."""

    act: Act
    atoms: list[int]
    sources: list[int]
    content: Content | None
    down: int
    right: int
    access: Access


class Atoms:
    """`steps[t]` are the steps of task t, accesses without elements left out. `count` atoms in all."""

    def __init__(self, plan: Plan) -> None:
        self._cuts: dict[Place, tuple[set[int], set[int]]] = {}
        copies: list[tuple[Region, Region]] = []
        for task in plan.tasks:
            for access in task.accesses:
                region, source = access.region, access.source
                if region.row0 >= region.row1 or region.col0 >= region.col1:
                    continue
                self._cut(region)
                if source is not None:
                    self._cut(source)
                    copies.append((region, source))
        self._carry(copies)
        self._lines: dict[Place, tuple[list[int], list[int], int]] = {}
        self._starts: list[int] = []
        self._places: list[Place] = []
        self.count = 0
        for place, (rows, cols) in self._cuts.items():
            self._lines[place] = sorted(rows), sorted(cols), self.count
            self._starts.append(self.count)
            self._places.append(place)
            self.count += (len(rows) - 1) * (len(cols) - 1)
        self._found: dict[tuple, list[int]] = {}
        self.steps = [[self._step(a, task.call) for a in task.accesses if not a.region.empty] for task in plan.tasks]

    def box(self, atom: int) -> Region:
        """The place of an atom, for a person."""
        i = bisect_right(self._starts, atom) - 1
        buffer, rank, slot = place = self._places[i]
        rows, cols, start = self._lines[place]
        row, col = divmod(atom - start, len(cols) - 1)
        return Region(buffer, rank, slot, rows[row], rows[row + 1], cols[col], cols[col + 1])

    def _cut(self, r: Region) -> None:
        cuts = self._cuts.get((r.buffer, r.rank, r.slot))
        if cuts is None:
            cuts = self._cuts[r.buffer, r.rank, r.slot] = set(), set()
        cuts[0].add(r.row0)
        cuts[0].add(r.row1)
        cuts[1].add(r.col0)
        cuts[1].add(r.col1)

    def _carry(self, copies: list[tuple[Region, Region]]) -> None:
        """Carry cuts from sources to destinations until there is none left to carry (coordinates are finite)."""
        changed = set(self._cuts)
        while changed:
            lines = {place: tuple(sorted(c) for c in self._cuts[place]) for place in changed}
            changed = set()
            for to, of in copies:
                found = lines.get((of.buffer, of.rank, of.slot))
                if found is None:
                    continue
                bounds = (of.row0, of.row1, to.row0), (of.col0, of.col1, to.col0)
                for cuts, (low, high, there), axis in zip(found, bounds, (0, 1), strict=True):
                    first, last = bisect_right(cuts, low), bisect_left(cuts, high)
                    if first < last:
                        place = to.buffer, to.rank, to.slot
                        mine, new = self._cuts[place][axis], {c - low + there for c in cuts[first:last]}
                        if not new <= mine:
                            mine |= new
                            changed.add(place)

    def _of(self, r: Region) -> list[int]:
        key = r.buffer, r.rank, r.slot, r.row0, r.row1, r.col0, r.col1
        atoms = self._found.get(key)
        if atoms is None:
            rows, cols, start = self._lines[r.buffer, r.rank, r.slot]
            c0, c1, width = bisect_left(cols, r.col0), bisect_left(cols, r.col1), len(cols) - 1
            r0, r1 = bisect_left(rows, r.row0), bisect_left(rows, r.row1)
            atoms = [start + row * width + col for row in range(r0, r1) for col in range(c0, c1)]
            self._found[key] = atoms
        return atoms

    def _step(self, access: Access, call: int) -> Step:
        act, to, of = access.act, access.region, access.source
        atoms = self._of(to)
        if of is None:
            row, col = access.origin
            content = access.what, call, access.mask, row - to.row0, col - to.col0
            return Step(act, atoms, [], content, 0, 0, access)
        sources = self._of(of)
        if len(sources) != len(atoms):
            sources = self._sources(to, of)
        return Step(act, atoms, sources, None, of.row0 - to.row0, of.col0 - to.col0, access)

    def _sources(self, to: Region, of: Region) -> list[int]:
        """The destination is cut finer than the source: for each atom of it the one that it comes from."""
        rows, cols, start = self._lines[of.buffer, of.rank, of.slot]
        there_rows, there_cols, _ = self._lines[to.buffer, to.rank, to.slot]
        down, right, width = of.row0 - to.row0, of.col0 - to.col0, len(cols) - 1
        near_rows = there_rows[bisect_left(there_rows, to.row0) : bisect_left(there_rows, to.row1)]
        near_cols = there_cols[bisect_left(there_cols, to.col0) : bisect_left(there_cols, to.col1)]
        picked_rows = [bisect_right(rows, r + down) - 1 for r in near_rows]
        picked_cols = [bisect_right(cols, c + right) - 1 for c in near_cols]
        return [start + row * width + col for row in picked_rows for col in picked_cols]
