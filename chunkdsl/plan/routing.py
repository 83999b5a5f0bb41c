"""Where the route of a collective comes from, for any world size: a plan of the spec, a plan file, a hierarchy.

A schedule holds a `Routing` and asks it for the world size that is proven, unrolled or emitted. It evaluates nothing
twice, and adds nothing to what `trace` finds.
"""

from __future__ import annotations

from collections.abc import Callable

from chunkdsl.check import routes
from chunkdsl.ir.meshes import World, ranks_of, world_text
from chunkdsl.ir.policy import ChunkCount, ChunkSize
from chunkdsl.plan.form import Form
from chunkdsl.plan.geometry import Geometry
from chunkdsl.plan.steps import Route
from chunkdsl.plan.trace import CONTRACTS, Flow, Trace, trace
from chunkdsl.plan.trace_breaches import Breach


class Routing:
    """`make(world)` gives the route for so many ranks, or the breach that says why there is none. Of a hierarchy a
    world is the sizes of both axes (ir/meshes): 2x4 ranks take other ways than 4x2.

    contract  one of CONTRACTS      axes   names of the mesh axes it runs over, outer first
    line      of the spec           form   the parametric form, if the route has one for every world size: then no
                                           table is emitted. `why_not` says why it has none
    fetches   whether any step, at any world size, fetches
    via, chunk   what the `with` of its steps says
    """

    def __init__(
        self, name: str, contract: str, axes: tuple[str, ...], line: int, make: Callable[[World], Route | Breach], *,
        form: Form | None = None, why_not: str = "", fetches: bool = True, via: str | None = None, chunk=None,
    ) -> None:  # fmt: skip
        if contract not in CONTRACTS:
            raise ValueError(f"{contract} is no contract")
        self.name, self.contract, self.axes, self.line = name, contract, axes, line
        self.form, self.why_not, self.fetches = form, why_not, fetches
        self.via, self.chunk = via, chunk
        self._make = make
        self._traces: dict[World, Trace | Breach] = {}
        self._arrivals: dict[World, tuple[tuple[int, ...], ...]] = {}

    def breaches(self, world: World) -> tuple[Breach, ...]:
        """Why the route does not keep its contract on `world` ranks; empty if it does: its proof."""
        found = self._traced(world)
        return (found,) if isinstance(found, Breach) else found.breaches

    def uneven(self, chunk: ChunkSize, world: World) -> Breach | None:
        """Why chunks do not make up the parts that the route cuts shards into, if they do not."""
        parts = self.parts(world)
        if parts == 1 or (isinstance(chunk, ChunkCount) and chunk.count % parts == 0):
            return None
        has = f"{chunk.count} chunks" if isinstance(chunk, ChunkCount) else f"chunks of {chunk.count} rows"
        text = f"plan {self.name} on {world_text(world)} ranks cuts a shard into {parts} parts, and it has {has}"
        return Breach(routes.parts_not_chunks.code, text, text, self.line, f"{parts} parts of a shard")

    def trace(self, world: World) -> Trace:
        """The route carried out on `world` ranks. ValueError if it has breaches there: ask for those first."""
        found = self._traced(world)
        if isinstance(found, Breach) or found.breaches:
            raise ValueError(f"{self.name} has no route for {world_text(world)} ranks")
        return found

    def flows(self, rank: int, world: World) -> tuple[Flow, ...]:
        """What a rank issues, in order."""
        return self.trace(world).flows[rank]

    def chunks(self, chunk: ChunkSize, geometry: Geometry, part: int, world: World) -> range:
        """The chunks that make up a part of a shard. Of a shard that is cut into parts all chunks travel, also those
        that have no rows in a small call."""
        if isinstance(chunk, ChunkCount):
            each = chunk.count // self.parts(world)
            return range(part * each, (part + 1) * each)
        return range(geometry.chunks(chunk))

    def part_of(self, chunk: ChunkSize, number: int, world: World) -> int:
        """The part of a shard that a chunk lies in."""
        return number * self.parts(world) // chunk.count if isinstance(chunk, ChunkCount) else 0

    def parts(self, world: World) -> int:
        return self.trace(world).parts

    def arrivals(self, world: World) -> tuple[tuple[int, ...], ...]:
        """For each rank all shards of a gather in the order in which they are there whole, its own first."""
        if world not in self._arrivals:
            found = self.trace(world)
            last: list[dict[int, int]] = [{rank: -1} for rank in range(ranks_of(world))]
            for i, f in enumerate(found.order):
                last[f.reader][f.target] = i
            self._arrivals[world] = tuple(tuple(sorted(at, key=at.__getitem__)) for at in last)
        return self._arrivals[world]

    def issuer(self, rank: int, shard: int, part: int, world: World) -> int:
        """The rank whose programs bring a part of a shard of a gather to `rank`."""
        return self.trace(world).arrived[rank, shard, part].base.issuer

    def _traced(self, world: World) -> Trace | Breach:
        if world not in self._traces:
            made = self._make(world)
            self._traces[world] = made if isinstance(made, Breach) else trace(made)
        return self._traces[world]
