"""Synchronisation through words: what a release publishes and an acquire learns, by PTX causality order.

A release at a word starts a sequence that later read-modify-writes of the word, by anyone, continue and plain stores
end. An acquire learns the clocks of the sequence it reads from, if each side's scope includes the other: gpu scope
holds within a rank, sys scope everywhere. Relaxed operations give no edge unless a fence stands on their side.
"""

from __future__ import annotations

from chunkdsl.sim.clocks import Clock, Clocks


class Word:
    """The release sequence of one word: a clock for each (releasing rank, sys scope)."""

    __slots__ = ("_released",)

    def __init__(self) -> None:
        self._released: dict[tuple[int, bool], Clock] = {}

    def release(self, clocks: Clocks, rank: int, system: bool, clock: Clock, first: bool) -> None:
        """Publish `clock`. `first` starts a new sequence (a store or a copy), otherwise the old one goes on."""
        if first:
            self._released.clear()
        key = (rank, system)
        old = self._released.get(key)
        self._released[key] = clock.copy() if old is None else clocks.join(old, clock)

    def break_off(self) -> None:
        """A store without release ends the sequence."""
        self._released.clear()

    def seen_from(self, rank: int, system: bool) -> list[Clock]:
        """The clocks that a read by `rank` at gpu or sys scope synchronises with."""
        return [c for (r, s), c in self._released.items() if r == rank or (s and system)]
