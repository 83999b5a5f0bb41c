"""Where the addends of a sum along a route are kept until they are added: every arrival has a place of its own.

A rank has as many places as there are ranks, each as large as a shard. Those of one shard follow one another, in the
order in which its addends are added; parts of a shard share them. Nothing is kept twice and nothing is overwritten.
"""

from __future__ import annotations

from collections.abc import Iterator

from chunkdsl.plan.trace import Flow, Trace


class Storage:
    """`misfit`: why there are not enough places, or "". With one, the rest is not to be used."""

    def __init__(self, found: Trace) -> None:
        self._trace, world = found, found.route.world
        self._counts: dict[tuple[int, int], int] = {}  # (rank, shard) -> most addends of any part
        self._index: dict[Flow, int] = {}
        for (rank, shard, _), held in sorted(found.arrived.items(), key=lambda item: item[0]):
            self._counts[rank, shard] = max(self._counts.get((rank, shard), 0), len(held.addends))
            self._index |= {f: i for i, f in enumerate(held.addends)}
        self._first: dict[tuple[int, int], int] = {}
        used = [0] * world
        for (rank, shard), count in self._counts.items():
            self._first[rank, shard] = used[rank]
            used[rank] += count
        self.misfit = self._find_misfit(used)

    def _find_misfit(self, used: list[int]) -> str:
        found = self._trace
        if any(f.step.action == "fetch" for f in found.order):
            return "a step fetches addends, which only their own rank can read"
        if not all(f.step.adding for f in found.order):
            return "a step replaces a sum, and there is no memory for both"
        for rank, count in enumerate(used):
            if count > len(used):
                return f"{count} shards of addends arrive at rank {rank}, there is memory for {len(used)}"
        for rank in range(len(used)):
            counts = {len(found.arrived[rank, rank, part].addends) if (rank, rank, part) in found.arrived else 0
                      for part in range(found.parts)}  # fmt: skip
            if len(counts) > 1:
                return f"one part of shard {rank} is added up from more arrivals than another"
        return ""

    def place(self, flow: Flow) -> int:
        """The place on its reader where a flow arrives."""
        return self._first[flow.reader, flow.target] + self._index[flow]

    def taken_up(self, flow: Flow) -> tuple[int, int]:
        """(first place, number) of the arrivals that a flow adds to the holder's own addend."""
        return self._first.get((flow.holder, flow.source), 0), len(flow.addends)

    def final(self, rank: int) -> tuple[int, int]:
        """(first place, number) of the arrivals that make up the rank's result."""
        return self._first.get((rank, rank), 0), self._counts.get((rank, rank), 0)

    def sums(self, shard: int) -> Iterator[tuple[int, int, int]]:
        """(holder, reader, part) of every addition to a shard, in an order in which it may be done."""
        return ((f.holder, f.reader, f.part) for f in self._trace.order if f.source == shard)
