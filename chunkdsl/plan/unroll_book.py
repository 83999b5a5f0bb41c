"""Tasks, signals and lanes of a plan in the making: each gets its index here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping

from chunkdsl.plan.geometry import Geometry
from chunkdsl.plan.plan import Access, Lane, Signal, Task
from chunkdsl.plan.schedule import OpSchedule


class Book:
    """`joins[rank]`: the last task of each copy lane that the rank has to join before its call ends."""

    def __init__(self, op: OpSchedule, world: int, bounds: Mapping[str, int]) -> None:
        self.tasks: list[Task] = []
        self.signals: list[Signal] = []
        self.lanes: dict[str, Lane] = {"main": Lane("main", True)}
        self.joins: dict[int, list[int]] = {}
        self._numbers: dict[tuple[str, int, int, int], int] = {}
        self._words = {
            f.name: Geometry.of(f.rows, f.whole, op.pad, bounds, world, 1, f.layout).chunk_cap(f.chunk)
            for f in op.flags
            if f.chunk
        }

    def open(self, lane: str, serial: bool, launch: str = "", programs: int = 0, behind: str = "") -> None:
        """Make a lane unless it is there."""
        if lane not in self.lanes:
            self.lanes[lane] = Lane(lane, serial, launch, programs, behind)

    def task(
        self,
        rank: int,
        lane: str,
        call: int,
        kind: str,
        line: int,
        label: str,
        accesses: tuple[Access, ...] = (),
        after: tuple[int, ...] = (),
        waits: tuple[int, ...] = (),
        signals: tuple[int, ...] = (),
        count: int = 1,
    ) -> int:
        """Index of a new task."""
        name = f"rank {rank}, call {call}: {label}"
        self.tasks.append(Task(name, rank, lane, call, kind, line, accesses, after, waits, signals, count))
        return len(self.tasks) - 1

    def main(self, rank: int, call: int, kind: str, line: int, label: str, **more: tuple) -> int:
        """Index of a new task on the rank's stream."""
        return self.task(rank, "main", call, kind, line, label, **more)

    def signal(self, flags: str, owner: int, index: int, giver: int, call: int, label: str) -> int:
        """Number of a word of `flags` on rank `owner` in this call, which rank `giver` sets."""
        key = flags, owner, index, call
        number = self._numbers.get(key)
        return self._new(key, giver, label) if number is None else number

    def chunk(self, flags: str, owner: int, group: int, chunk: int, giver: int, call: int) -> int:
        """The same for the word of a chunk of shard `group`; each shard has as many words as the largest call needs."""
        key = flags, owner, group * self._words[flags] + chunk, call
        number = self._numbers.get(key)
        return self._new(key, giver, f"({group}, {chunk})") if number is None else number

    def _new(self, key: tuple[str, int, int, int], giver: int, label: str) -> int:
        flags, owner, index, call = key
        number = self._numbers[key] = len(self.signals)
        self.signals.append(Signal(flags, owner, index, giver, call, label))
        return number
