"""Weights gathered ahead, `x @ all_gather(w).T` and `x @ all_gather(w)`: products that take their right operand as it
arrives.

Not taken so, but copied out first by a launch whose tiles wait (over_rows): shards of two axes or of a layout, rows of
a run-time number, co-located transfers and routes of plans, a left operand that arrives too, products of which only one
is gathered, several gathers carried by programs, and products whose value other ranks get.
"""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.ir.graph import Value
from chunkdsl.ir.layouts import CONTIGUOUS
from chunkdsl.lower.over_rows import OverRowsLaunches
from chunkdsl.plan.ahead import Ahead
from chunkdsl.plan.schedule import Operand


class AheadLaunches(OverRowsLaunches):
    def _ahead(self, products: list[Value], name: str) -> list[tuple[Value, tuple]] | None:
        """(gathered value, its gather) of each product, if the tiles of their launch can take them as they arrive."""
        rights = [p.args[1] for p in products]
        bases = [r.args[0] if r.kind == "transpose" else r for r in rights]
        if len(self.over) > 1 or len({r.kind for r in rights}) > 1 or any(b.kind != "all_gather" for b in bases):
            return None
        if any(b.type.rank != 2 or self._row_layout(b.args[0]) != CONTIGUOUS for b in bases):
            return None
        if any(not isinstance(self._rows(b), int) for b in bases):
            return None
        if self._arrives(products[0].args[0]):
            return None
        found = [(b, self._gather(b, f"{name}_{self.names.get(b.args[0], 'x')}")) for b in dict.fromkeys(bases)]
        settled = [g[1] for _, g in found]
        carried = [m for m, _, _ in settled if m.programs]
        if any(m.routing is not None or (m.via != "copy_engine" and not m.programs) for m, _, _ in settled):
            return None
        sizes = {(info["chunk"], self._rows(b)) for (b, _), (_, _, info) in zip(found, settled, strict=True)}
        if len(found) > 1 and (carried or len(sizes) > 1):
            return None
        if any(g[0].source in self.wholes or not self._fresh_or_landed(g[1][0]) for _, g in found):
            return None
        by_value = dict(found)
        return [(b, by_value[b]) for b in bases]

    def _fresh_or_landed(self, moves) -> bool:
        return moves.name not in self.carried or self._landed(moves.arrived)

    def _landed(self, arrived: str) -> bool:
        """Have all tiles of an earlier launch together waited for all its chunks?"""
        done = [n for n in self.launches if n.space == "all" or n.over or n.ahead]
        return any(arrived in (n.chunk_flags, *(p.b.arrived for p in n.products)) for n in done)

    def _ahead_operand(self, product: Value, gathered: tuple) -> Operand:
        """The right operand of a product. `arrived`: the flags that tiles wait for, unless it is here."""
        operand, (moves, _, _) = gathered
        right = product.args[1]
        self._aligned(right.args[0] if right.kind == "transpose" else right, product.span)
        arrived = None if moves.name in self.carried else operand.arrived
        name = f"{operand.source}_b"
        return replace(operand, name=name, role="b", transposed=right.kind == "transpose", arrived=arrived)

    def _take_ahead(self, ahead: list[tuple[Value, tuple]], products: list[Value]) -> tuple[Ahead, list, list, dict]:
        """(what the launch says of it, moves, stagings, settled policy of a gather in flight or of any)."""
        fresh = {g[1][0].name: g[1] for _, g in ahead if g[1][0].name not in self.carried}
        self.carried |= set(fresh)
        moves, stagings = [m for m, _, _ in fresh.values()], [s for _, s, _ in fresh.values()]
        onto = "columns" if products[0].args[1].kind == "transpose" else "depth"
        info = next(iter(fresh.values()), ahead[0][1][1])
        return Ahead(self._rows(ahead[0][0]), onto, tuple(stagings[1:])), moves, stagings, info
