"""The parametric form of a route: one loop of `world - 1` steps whose peer and shard are affine in rank and step.

`Affine` is (const + rank * r + step * s) mod the world size. Texts are valid both in Python and in a kernel, where `%`
has the sign of its left operand: they are never negative there.
"""

from __future__ import annotations

from chunkdsl.record import record


@record
class Affine:
    """Value (const + rank * own rank + step * step number) mod world."""

    const: int
    rank: int
    step: int

    def at(self, rank: int, step: int, world: int) -> int:
        return (self.const + self.rank * rank + self.step * step) % world

    def text(self, step: str = "step") -> str:
        """The value as an expression over `rank`, `step` and `W`."""
        negative = sum(max(0, -c) for c in (self.rank, self.step)) + max(0, -self.const)
        terms = [*_term(self.rank, "rank"), *_term(self.step, step)]
        terms += [("-" if self.const < 0 else "+", str(abs(self.const)))] if self.const else []
        terms.sort(key=lambda t: t[0] == "-")
        if negative:
            terms.insert(0, ("+", "W" if negative == 1 else f"{negative} * W"))
        if not terms:
            return "0"
        text = "".join(f" {sign} {term}" for sign, term in terms).removeprefix(" + ")
        return f"({text}) % W"


def _term(factor: int, name: str):
    if factor:
        yield "-" if factor < 0 else "+", name if abs(factor) == 1 else f"{abs(factor)} * {name}"


@record
class Form:
    """At each step a rank moves shard `shard` to (`fetch`: from) `peer`."""

    shard: Affine
    peer: Affine
    fetch: bool

    @property
    def arriving(self) -> Affine:
        """The shard that comes to a rank at a step."""
        if self.fetch:
            return self.shard
        back = self.peer.rank  # 1 or -1: its own inverse
        return Affine(
            self.shard.const - self.shard.rank * back * self.peer.const,
            self.shard.rank * back,
            self.shard.step - self.shard.rank * back * self.peer.step,
        )

    def text(self) -> str:
        """For a person: `step s: sends shard (W + rank - step) % W to (rank + 1) % W`."""
        way = ("fetches", "from") if self.fetch else ("sends", "to")
        return f"each step {way[0]} shard {self.shard.text()} {way[1]} rank {self.peer.text()}"
