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
    kind "adding": like hops, (peer, shard, part, place there, place that the sum begins with or -1 for the own addend,
    first place and number of the arrivals to add to it, where the table "rounded" begins to speak of them, 1 if it
    fetches).
    kind "final": the four before the last of these for each part of what a rank has at the end: of the own shard, or of
    every shard.
    kind "rounded": 1 after an addition where the sum is rounded before the next one.
    kind "sums": (moment, holder, reader, part, 1 if it adds) of each transfer of the rank's own shard, for `exact`."""

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
            "adding": "peer, shard, part, place there, place it begins with or -1, first to add, how many, roundings, "
            "1 to fetch",
            "final": "place it begins with or -1, first to add, how many, roundings, of each part at the end",
            "rounded": "1 after an addition if the sum is rounded then",
            "sums": "moment, from, to, part, 1 to add, of each transfer of the own shard",
        }[self.kind]

    def rows(self, world: World) -> tuple[Rows, ...]:
        """Rows of each rank."""
        if self.kind in ("order", "leaving"):
            return tuple(tuple((s,) for s in mine) for mine in self.routing.visits(world, self.kind == "leaving"))
        ranks = range(ranks_of(world))
        flows = [self.routing.flows(rank, world) for rank in ranks]
        if self.kind in ("adding", "final", "sums", "rounded"):
            kept, parts = self.routing.storage(world), range(self.routing.parts(world))
            if self.kind == "final":
                shards = [(rank,) if self.routing.contract == "reduce_scatter" else ranks for rank in ranks]
                return tuple(tuple(kept.final(r, s, part) for s in shards[r] for part in parts) for r in ranks)
            if self.kind == "sums":
                return tuple(tuple(kept.steps(rank)) for rank in ranks)
            if self.kind == "rounded":
                return tuple(tuple((int(digit),) for digit in kept.rounded(rank)) for rank in ranks)
            return tuple(tuple((*_sent(f), kept.place(f), *kept.taken_up(f), _way(f)) for f in mine) for mine in flows)
        if self.kind == "blocks":
            return tuple(tuple(_block(f, self.routing.fetches) for f in mine) for mine in flows)
        return tuple(tuple((*_sent(f), _way(f), *self._via(f)) for f in mine) for mine in flows)

    def _via(self, flow: Flow) -> tuple[int, ...]:
        return (int((flow.step.via or self.otherwise) == "tma"),) if self.otherwise else ()

    def words(self, world: World) -> int:
        """Words that every rank allocates."""
        return max(1, *(sum(map(len, rows)) for rows in self.rows(world)))


def _sent(f: Flow) -> tuple[int, ...]:
    return f.step.peer, f.source, f.part


def _way(f: Flow) -> int:
    return int(f.step.action == "fetch")


def _block(f: Flow, fetches: bool) -> tuple[int, ...]:
    return f.step.peer, f.source, f.target, *f.block, f.part, *([int(f.step.action == "fetch")] if fetches else [])


def hops_name(move: str) -> str:
    return f"{move}_hops"


def order_name(move: str, leaving: bool) -> str:
    return f"{move}_leaving" if leaving else f"{move}_order"


def final_name(move: str) -> str:
    return f"{move}_final"


def rounded_name(move: str) -> str:
    return f"{move}_rounded"


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
                if m.routing.contract == "all_reduce":
                    yield RouteTable(rounded_name(m.name), "rounded", m.routing)
