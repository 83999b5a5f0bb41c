"""Tables of routes without a parametric form: what each rank carries, and in which order shards arrive.

A table has rows for every rank of one world size. Kernels read it from device memory; the same rows make the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chunkdsl.ir.meshes import World
from chunkdsl.plan.routing import Routing
from chunkdsl.plan.schedule import OpSchedule

Rows = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class RouteTable:
    """kind "hops": (peer, shard, part, 1 if it fetches) in the order in which a rank takes them up.
    kind "order": shards in the order of their arrival, one a row."""

    name: str
    kind: str
    routing: Routing

    def rows(self, world: World) -> tuple[Rows, ...]:
        """Rows of each rank."""
        if self.kind == "order":
            return tuple(tuple((shard,) for shard in found) for found in self.routing.arrivals(world))
        flows = self.routing.trace(world).flows
        return tuple(
            tuple((f.step.peer, f.source, f.part, int(f.step.action == "fetch")) for f in mine) for mine in flows
        )

    def words(self, world: World) -> int:
        """Words that every rank allocates."""
        return max(1, *(len(rows) * len(rows[0]) for rows in self.rows(world) if rows), 1)


def hops_name(move: str) -> str:
    return f"{move}_hops"


def order_name(move: str) -> str:
    return f"{move}_order"


def route_tables(op: OpSchedule) -> Iterator[RouteTable]:
    """The tables of an op, each once."""
    visited = {n.visits for n in op.launches if n.visits is not None}
    for n in op.launches:
        for m in n.moves:
            if m.routing is not None and m.routing.form is None:
                yield RouteTable(hops_name(m.name), "hops", m.routing)
                if m.routing in visited:
                    yield RouteTable(order_name(m.name), "order", m.routing)
