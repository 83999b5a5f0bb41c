"""What tasks queue for: the programs of a launch, and the links between ranks. Times in microseconds.

Both serve in the order in which they are asked. A later or longer request never makes another one earlier, so a
prediction is monotone: whatever becomes slower makes nothing faster. (Lists that are scheduled by the clock are not:
R. L. Graham, Bounds on multiprocessing timing anomalies, 1969.)
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator

from chunkdsl.cost.constants import Machine


class Programs:
    """`count` programs that take tiles in order; each is busy until its tile is done. Programs that are free at the
    same time stand together, so the work of one call grows with its waves and not with its tiles."""

    def __init__(self, count: int) -> None:
        self.free: list[tuple[float, int]] = [(0.0, count)]

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
    transfer is over when the slowest of the three has let it through. The links of two tiers do not slow each other."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._until: dict[tuple, float] = {}

    def carry(self, at: float, source: int, destination: int, size: float, how: str) -> float:
        """When `size` bytes that are offered at `at` have arrived. `how`: the field of Link that says how fast at most:
        copy_pull, copy_push, programs or tile_stores."""
        link = self.machine.between(source, destination)
        end, gbs = at, getattr(link, how)
        ways = (
            ((link.name, "out", source), gbs),
            ((link.name, "in", destination), gbs),
            ((source, destination), min(gbs, link.pair_gbs)),
        )
        for way, rate in ways:
            self._until[way] = max(at, self._until.get(way, 0.0)) + size / rate * 1e-3
            end = max(end, self._until[way])
        return end
