"""What lies in the buffers of an op, as names: what a launch computes, or the sum of what all ranks computed.

A content is (name, mask of addends). Names are compared, never looked into.
"""

from __future__ import annotations

from chunkdsl.plan.body import stagings, written_by
from chunkdsl.plan.schedule import Launch, OpSchedule

Content = tuple[str, int]


class Contents:
    def __init__(self, op: OpSchedule, world: int) -> None:
        self._op, self._all = op, (1 << world) - 1

    def of(self, n: Launch, buffer: str = "") -> Content:
        """What a launch leaves in its destination, or in another `buffer` that it fills."""
        if buffer in written_by(n)[1:]:
            return f"{n.name}: {buffer}", 1
        if n.sums:
            return f"{n.sums.parts.source} sum", self._all
        if n.operands and n.operands[0].arrived and not n.products and not n.moves:
            source = self.maker(n.operands[0].source)
            if source is not None and source.destination.kind == "broadcast":  # copied out of its buffer
                return self.of(source)
        return n.name, 1

    def maker(self, buffer: str) -> Launch | None:
        """The launch whose tiles write a buffer."""
        return next((n for n in self._op.launches if buffer in written_by(n) or _hands(n, buffer)), None)

    def gathered(self, buffer: str) -> Content:
        """What lies in a symmetric buffer that tiles read: staged shards, or what a launch sent to every rank."""
        staged = next((s.source for n in self._op.launches for s in stagings(n) if s.buffer == buffer), None)
        return (staged, 1) if staged is not None else self.of(self.maker(buffer))

    def sum_of(self, n: Launch) -> str:
        """The sum that a launch's partial results end in: that of the next launch that adds."""
        at = self._op.launches.index(n)
        return next(f"{m.sums.parts.source} sum" for m in self._op.launches[at:] if m.sums)


def _hands(n: Launch, buffer: str) -> bool:
    """Do its tiles hand over what ends in this buffer?"""
    return n.destination.deal is not None and n.destination.stage == buffer
