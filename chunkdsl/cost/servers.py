"""What tasks queue for: the programs of a launch, and the links between ranks. Times in microseconds.

Both serve in the order in which they are asked. A later or longer request never makes another one earlier, so a
prediction is monotone: whatever becomes slower makes nothing faster. (Lists that are scheduled by the clock are not:
R. L. Graham, Bounds on multiprocessing timing anomalies, 1969.)
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator

from chunkdsl.cost.constants import Machine


class Programs:
    """`count` programs that take tiles in order; each is busy until its tile is done. Programs that are free at the
    same time stand together, so the work of one call grows with its waves and not with its tiles. `later`: more of
    them, and since when they are free."""

    def __init__(self, count: int, later: Iterable[tuple[float, int]] = ()) -> None:
        self.free: list[tuple[float, int]] = sorted([*([(0.0, count)] if count else []), *later])

    def take(self, tiles: int) -> Iterator[tuple[float, int]]:
        """(free since, how many tiles) for groups of the earliest programs; `give` each back before the next."""
        while tiles:
            since, count = self.free.pop(0)
            if count > tiles:
                insort(self.free, (since, count - tiles))
                count = tiles
            tiles -= count
            yield since, count

    def give(self, end: float, count: int) -> None:
        """`count` programs that were taken are free from `end` on."""
        for i, (since, there) in enumerate(self.free):
            if since == end:
                self.free[i] = (since, there + count)
                return
        insort(self.free, (end, count))


class Links:
    """What leaves a rank over a link, what arrives at it, and what a pair exchanges, each at its own rate, as fluids: a
    transfer is over when the slowest of the three has let it through. The links of two tiers do not slow each other.
    What a launch beside another one carries (`beside`) is served in its gaps: it waits for none of the other's bytes
    that are offered later, but all together take as long as all bytes do."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._until: dict[tuple, float] = {}
        self._busy: dict[tuple, tuple[float, float]] = {}  # since when, for how long in all

    def carry(self, at: float, source: int, destination: int, size: float, how: str, beside: bool = False) -> float:
        """When `size` bytes that are offered at `at` have arrived. `how`: the field of Link that says how fast at most:
        copy_pull, copy_push, programs, tile_stores or warp_stores."""
        link = self.machine.between(source, destination)
        end, gbs = at, getattr(link, how)
        ways = (
            ((link.name, "out", source), gbs),
            ((link.name, "in", destination), gbs),
            ((source, destination), min(gbs, link.pair_gbs)),
        )
        for way, rate in ways:
            since, busy = self._busy.get(way, (at, 0.0))
            since, busy = self._busy[way] = min(since, at), busy + size / rate * 1e-3
            queue = (*way, beside)
            self._until[queue] = max(at, self._until.get(queue, 0.0)) + size / rate * 1e-3
            end = max(end, self._until[queue], since + busy if beside else end)
        return end
