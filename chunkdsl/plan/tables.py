"""Tables of routes without a parametric form: what each rank carries, and in which order shards arrive.

A table has rows for every rank of one world size. Kernels read it from device memory; the same rows make the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chunkdsl.ir.meshes import World, ranks_of
from chunkdsl.plan.routing import Routing
from chunkdsl.plan.schedule import OpSchedule
from chunkdsl.plan.trace import Flow

Rows = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class RouteTable:
    """kind "hops": (peer, shard, part, 1 if it fetches) in the order in which a rank takes them up; with
    `otherwise` (see Moves) also 1 for TMA.
    kind "blocks": (peer, place from, place to, giver, taker, part) of an all_to_all's blocks, places as in plans;
    also 1 if the rank fetches it, of a plan that fetches any.
    kind "order": shards in the order of the rank's tiles, one a row, as they arrive. kind "leaving": as they leave.
    kind "adding": like hops, (peer, shard, part, place there, first place and number of the arrivals to add here).
    kind "final": (first place, number) of the arrivals that make up the rank's own shard.
    kind "sums": (holder, reader, part) of each addition to the rank's own shard, for `exact`."""

    name: str
    kind: str
    routing: Routing
    otherwise: str = ""

    @property
    def columns(self) -> str:
        """What the numbers of a row are."""
        return {
            "hops": f"peer, shard, part, 1 to fetch{', 1 by TMA' * bool(self.otherwise)}",
            "blocks": f"peer, places from and to, whose input, for whom, part{', 1 to fetch' * self.routing.fetches}",
            "order": "shards as their tiles come",
            "leaving": "shards as their tiles come, which make what leaves",
            "adding": "peer, shard, part, place there, first place here, arrivals to add",
            "final": "first place, arrivals that make up the own shard",
            "sums": "from, to, part of each addition to the own shard",
        }[self.kind]

    def rows(self, world: World) -> tuple[Rows, ...]:
        """Rows of each rank."""
        if self.kind in ("order", "leaving"):
            return tuple(tuple((s,) for s in mine) for mine in self.routing.visits(world, self.kind == "leaving"))
        ranks = range(ranks_of(world))
        flows = [self.routing.flows(rank, world) for rank in ranks]
        if self.kind in ("adding", "final", "sums"):
            kept = self.routing.storage(world)
            if self.kind == "final":
                return tuple((kept.final(rank),) for rank in ranks)
            if self.kind == "sums":
                return tuple(tuple(kept.sums(rank)) for rank in ranks)
            return tuple(
                tuple((f.step.peer, f.source, f.part, kept.place(f), *kept.taken_up(f)) for f in mine) for mine in flows
            )
        if self.kind == "blocks":
            return tuple(tuple(_block(f, self.routing.fetches) for f in mine) for mine in flows)
        return tuple(tuple((*_hop(f), *self._way(f)) for f in mine) for mine in flows)

    def _way(self, flow: Flow) -> tuple[int, ...]:
        return (int((flow.step.via or self.otherwise) == "tma"),) if self.otherwise else ()

    def words(self, world: World) -> int:
        """Words that every rank allocates."""
        return max(1, *(sum(map(len, rows)) for rows in self.rows(world)))


def _hop(f: Flow) -> tuple[int, ...]:
    return f.step.peer, f.source, f.part, int(f.step.action == "fetch")


def _block(f: Flow, fetches: bool) -> tuple[int, ...]:
    return f.step.peer, f.source, f.target, *f.block, f.part, *([int(f.step.action == "fetch")] if fetches else [])


def hops_name(move: str) -> str:
    return f"{move}_hops"


def order_name(move: str, leaving: bool) -> str:
    return f"{move}_leaving" if leaving else f"{move}_order"


def final_name(move: str) -> str:
    return f"{move}_final"


def sums_name(move: str) -> str:
    return f"{move}_sums"


def route_tables(op: OpSchedule) -> Iterator[RouteTable]:
    """The tables of an op, each once."""
    visited = {(n.visits, n.leaving) for n in op.launches if n.visits is not None}
    for n in op.launches:
        for m in n.moves:
            if m.routing is None or not m.routing.tabled:
                continue
            kind = {"gather": "hops", "scatter": "adding", "deal": "blocks"}[m.kind]
            yield RouteTable(hops_name(m.name), kind, m.routing, m.otherwise)
            for leaving in (False, True):
                if (m.routing, leaving) in visited:
                    yield RouteTable(order_name(m.name, leaving), "leaving" if leaving else "order", m.routing)
            if m.kind == "scatter":
                yield RouteTable(final_name(m.name), "final", m.routing)
                yield RouteTable(sums_name(m.name), "sums", m.routing)
