"""An all-reduce in which sums travel: do all ranks end up with the same bits? Judged by the order of additions.

A rank adds what arrives to its own addend, in f32 and in the order of arrival. What it sends is rounded to `wire`, and
it goes on with the rounded value itself, so that both ends have the same; at the end all ranks round. Two ranks have
the same bits if the additions that they make are the same but for the order of the two operands of each: floating-point
addition commutes, and does not associate. That is decided here by giving equal sums equal numbers (hash-consing), for
each part of each shard. Nothing is said of memory or of waits.
"""

from __future__ import annotations

from chunkdsl.check import routes
from chunkdsl.ir.meshes import world_text
from chunkdsl.plan.trace import Flow, Trace
from chunkdsl.plan.trace_breaches import Breach, line_of

LONGEST = 120  # characters of a sum, written out


class _Sums:
    """Numbers of sums: a rank's addend (its rank), `("+", a, b)` with a <= b, or `("round", a)`."""

    def __init__(self, found: Trace) -> None:
        self._numbers: dict[tuple, int] = {}
        self._keys: list[tuple] = []
        self._moved: dict[Flow, int] = {}
        self._rounds = {f.addends[-1] for f in found.order if f.addends}
        for f in found.order:
            self._moved[f] = self._rounded(self.of(f.holder, f.base, f.addends))

    def of(self, rank: int, base: Flow | None, addends: tuple[Flow, ...]) -> int:
        """What a rank has that begins with `base`, or its own addend, and adds these."""
        total = self._number((rank,)) if base is None else self._moved[base]
        for a in addends:
            other = self._moved[a]
            total = self._number(("+", min(total, other), max(total, other)))
            total = self._rounded(total) if a in self._rounds else total
        return total

    def at_the_end(self, rank: int, base: Flow | None, addends: tuple[Flow, ...]) -> int:
        return self._rounded(self.of(rank, base, addends))

    def _rounded(self, number: int) -> int:
        """A single addend is rounded already."""
        return number if self._keys[number][0] != "+" else self._number(("round", number))

    def _number(self, key: tuple) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self._keys)
            self._keys.append(key)
        return self._numbers[key]

    def text(self, number: int) -> str:
        """`((0 + 1) + (2 + 3))`: addends by rank, of two operands that with the lower one first."""
        return self._text(number)[1]

    def _text(self, number: int) -> tuple[int, str]:
        key = self._keys[number]
        if key[0] == "round":
            return self._text(key[1])
        if key[0] != "+":
            return key[0], str(key[0])
        (low, a), (_, b) = sorted((self._text(key[1]), self._text(key[2])))
        return low, f"({a} + {b})"


def differing(found: Trace) -> Breach | None:
    """Why ranks end an all-reduce with different bits, if they do. The trace has no breaches."""
    sums, world = _Sums(found), found.route.world
    for shard in range(world):
        for part in range(found.parts):
            ends = [found.arrived.get((rank, shard, part)) for rank in range(world)]
            numbers = [sums.at_the_end(r, h.base, h.addends) for r, h in enumerate(ends) if h]
            rank = next((r for r, number in enumerate(numbers) if number != numbers[0]), None)
            if rank is not None:
                texts = [sums.text(numbers[0]), sums.text(numbers[rank])]
                return _breach(found, shard, part, rank, texts)
    return None


def _breach(found: Trace, shard: int, part: int, rank: int, texts: list[str]) -> Breach:
    where = f"shard {shard}" + (f", part {part} of {found.parts}," if found.parts > 1 else "")
    what = f"ranks 0 and {rank} add up {where} in different orders, so their bits would differ"
    lines, steps = [what], []
    for r, text in zip((0, rank), texts, strict=True):
        held = found.arrived[r, shard, part]
        last = held.addends[-1] if held.addends else held.base
        lines.append(f"  rank {r}: {text if len(text) <= LONGEST else f'{text[:LONGEST]}...'}")
        lines.append(f"    last by {line_of(last.issuer, last.step)}")
        steps.append(last.step)
    route = found.route
    message = f"plan {route.name} on {world_text(route.axes)} ranks: {what}"
    return Breach(routes.orders_differ.code, message, "\n".join(lines), steps[1].line, "adds up in an order of its own",
                  steps[0].line, "adds up in another order")  # fmt: skip
