"""Where what arrives for a sum along a route is kept: every arrival has a place of its own, as large as a shard.

Places of one shard follow one another, in the order in which its arrivals come; parts of a shard share them. So what a
rank holds of a part at any time is one place, or its own addend, and then a run of places that are added to it. Nothing
is kept twice and nothing is overwritten.
"""

from __future__ import annotations

from collections.abc import Iterator

from chunkdsl.plan.trace import Flow, Trace

OWN = -1  # instead of a place: the rank's own addend


class Storage:
    """`places`: as many as the rank has to which most arrives; 1 at least."""

    def __init__(self, found: Trace) -> None:
        self._trace = found
        self._index: dict[Flow, int] = {}
        counts: dict[tuple[int, int], int] = {}  # (rank, shard) -> most arrivals of any part
        came: dict[tuple[int, int, int], int] = {}
        for f in sorted(found.order, key=lambda f: f.step.when):
            where = f.reader, f.target, f.part
            self._index[f] = came.get(where, 0)
            came[where] = self._index[f] + 1
            counts[where[:2]] = max(counts.get(where[:2], 0), came[where])
        self._first: dict[tuple[int, int], int] = {}
        used = [0] * found.route.world
        for (rank, shard), count in sorted(counts.items()):
            self._first[rank, shard] = used[rank]
            used[rank] += count
        self.places = max(1, *used)
        self._sent = {f.addends[-1] for f in found.order if f.addends}
        self._digits: dict[int, str] = {}

    def place(self, flow: Flow) -> int:
        """The place on its reader where a flow arrives."""
        return self._first[flow.reader, flow.target] + self._index[flow]

    def taken_up(self, flow: Flow) -> tuple[int, int, int, int]:
        """What a flow moves: (place that the sum begins with, or OWN; first place that is added; how many are; where
        `rounded` of its issuer speaks of them)."""
        return self._sum(flow.issuer, flow.base, flow.addends)

    def final(self, rank: int, shard: int, part: int) -> tuple[int, int, int, int]:
        """The same of what a rank holds of a part at the end."""
        held = self._trace.arrived.get((rank, shard, part))
        return self._sum(rank, held.base, held.addends) if held else (OWN, 0, 0, 0)

    def _sum(self, by: int, base: Flow | None, addends: tuple[Flow, ...]) -> tuple[int, int, int, int]:
        first = self.place(addends[0]) if addends else 0
        return OWN if base is None else self.place(base), first, len(addends), self.rounds_at(by, addends)

    def rounded(self, rank: int) -> str:
        """A digit for each of the additions that a rank makes, in its transfers and at the end, 1 where the sum is
        rounded before the next one since it was sent like that (`sent_sums`). Equal runs of digits are there once."""
        if rank not in self._digits:
            text = ""
            for run in sorted({self._run(a) for a in self._made(rank)}, key=lambda run: (-len(run), run)):
                text += run if run not in text else ""
            self._digits[rank] = text
        return self._digits[rank]

    def rounds_at(self, rank: int, addends: tuple[Flow, ...]) -> int:
        """Where the digits of these additions begin in what `rounded` says of the rank that makes them."""
        return self.rounded(rank).index(self._run(addends))

    def _made(self, rank: int) -> Iterator[tuple[Flow, ...]]:
        yield from (f.addends for f in self._trace.flows[rank])
        yield from (held.addends for (r, *_), held in self._trace.arrived.items() if r == rank)

    def _run(self, addends: tuple[Flow, ...]) -> str:
        """What is sent, and what is there at the end, is rounded anyway."""
        return "".join("01"[a in self._sent] for a in addends[:-1]) + "0" * bool(addends)

    def steps(self, shard: int) -> Iterator[tuple[int, int, int, int, int]]:
        """(moment, holder, reader, part, 1 if it adds) of every transfer of a shard, in an order in which they may be
        done: those of one moment read before they write."""
        moments: dict[tuple[int, ...], int] = {}
        for f in sorted((f for f in self._trace.order if f.source == shard), key=lambda f: f.step.when):
            yield moments.setdefault(f.step.when, len(moments)), f.holder, f.reader, f.part, int(f.step.adding)
