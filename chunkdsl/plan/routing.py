"""Where the route of a collective comes from, for any world size: a plan of the spec, a plan file, a hierarchy.

A schedule holds a `Routing` and asks it for the world size that is proven, unrolled or emitted. It evaluates nothing
twice, and adds nothing to what `trace` finds.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from itertools import product

from chunkdsl.check import route_steps, routes
from chunkdsl.ir.meshes import World, ranks_of, world_text
from chunkdsl.ir.policy import ChunkCount, ChunkSize
from chunkdsl.plan.form import Form
from chunkdsl.plan.geometry import Geometry
from chunkdsl.plan.sent_sums import differing
from chunkdsl.plan.steps import Route
from chunkdsl.plan.storage import Storage
from chunkdsl.plan.trace import CONTRACTS, Flow, Trace, trace
from chunkdsl.plan.trace_breaches import Breach, line_of
from chunkdsl.record import record
from chunkdsl.source import Span

TRIED: dict[int, tuple[World, ...]] = {1: (2, 3, 4, 6, 8), 2: ((2, 2), (2, 3), (2, 4), (3, 2), (4, 2))}  # by axes


@record
class Way:
    """How steps of a plan's text or file travel: whether they add, and `via`, None for what the op says. `span` is
    where the spec says it first, `place` where a plan file does, as `FILE:LINE`. `fetch`: the reader issues them."""

    adding: bool
    via: str | None
    span: Span | None = None
    place: str = ""
    fetch: bool = False


class Routing:
    """`make(world)` gives the route for so many ranks, or the breach that says why there is none. Over two axes a
    world is the sizes of both axes (ir/meshes): 2x4 ranks take other ways than 4x2.

    contract  one of CONTRACTS      axes   names of the mesh axes it runs over, outer first
    line      of the spec           form   the parametric form, if the route has one for every world size: then no
                                           table is emitted. `why_not` says why it has none
    fetches   whether any step, at any world size, fetches
    ways      of its steps, at every world size
    chunk     what the `with` of its steps says, the same for all
    watch     called while steps are followed: what it raises ends the work
    """

    def __init__(
        self, name: str, contract: str, axes: tuple[str, ...], line: int, make: Callable[[World], Route | Breach], *,
        form: Form | None = None, why_not: str = "", fetches: bool = True,
        ways: tuple[Way, ...] = (), chunk=None, watch: Callable[[], object] = bool,
    ) -> None:  # fmt: skip
        if contract not in CONTRACTS:
            raise ValueError(f"{contract} is no contract")
        self.name, self.contract, self.axes, self.line = name, contract, axes, line
        self.form, self.why_not, self.fetches = form, why_not, fetches
        self.ways, self.chunk = ways, chunk
        self._make, self._watch = make, watch
        self._by: tuple[bool, str] | None = None  # of a part: whether that of copy engines; the via of silent steps
        self._mine: dict[tuple[int, World], tuple[Flow, ...]] = {}
        self._traces: dict[World, Trace | Breach] = {}
        self._visits: dict[tuple[World, bool], tuple[tuple[int, ...], ...]] = {}
        self._storages: dict[World, Storage] = {}

    def breaches(self, world: World) -> tuple[Breach, ...]:
        """Why the route does not keep its contract on `world` ranks; empty if it does: its proof."""
        found = self._traced(world)
        return (found,) if isinstance(found, Breach) else found.breaches

    def compared(self, breach: Breach) -> Breach:
        """A breach of some world size with those, of a few small ones, on which the route keeps its contract: a pattern
        for powers of two, say. Only where a step names what is not there, or the contract is not kept."""
        if breach.code not in (route_steps.not_there.code, routes.not_kept.code) or self.file:
            return breach
        good = [world_text(world) for world in TRIED[len(self.axes)] if not self.breaches(world)]
        tried = ", ".join(world_text(world) for world in TRIED[len(self.axes)])
        text = f"\ntried on {tried} ranks, the plan holds on {', '.join(good)}" if good else ""
        return replace(breach, counterexample=breach.counterexample + text)

    def differing(self, world: World) -> Breach | None:
        """Why ranks would not end with the same bits of an all-reduce, if they would not."""
        return differing(self.trace(world)) if self.contract == "all_reduce" else None

    def uneven(self, chunk: ChunkSize, world: World) -> Breach | None:
        """Why chunks do not make up the parts that the route cuts shards into, if they do not."""
        parts = self.parts(world)
        if parts == 1 or (isinstance(chunk, ChunkCount) and chunk.count % parts == 0):
            return None
        has = f"{chunk.count} chunks" if isinstance(chunk, ChunkCount) else f"chunks of {chunk.count} rows"
        text = f"plan {self.name} on {world_text(world)} ranks cuts a shard into {parts} parts, and it has {has}"
        return Breach(routes.parts_not_chunks.code, text, text, self.line, f"{parts} parts of a shard")

    @property
    def file(self) -> str:
        """The plan file that it comes from: then lines of its steps are that file's. "" for a plan of the spec."""
        return next((w.place.rpartition(":")[0] for w in self.ways if w.place), "")

    @property
    def replaces(self) -> bool:
        """Whether steps of a sum may put a sum in the place of what a rank has."""
        return not all(way.adding for way in self.ways) if self.ways else self.contract == "all_reduce"

    @property
    def vias(self) -> frozenset[str | None]:
        """What the steps say of `via`; None if some say nothing."""
        return frozenset(way.via for way in self.ways) or frozenset((None,))

    def trace(self, world: World) -> Trace:
        """The route carried out on `world` ranks. ValueError if it has breaches there: ask for those first."""
        found = self._traced(world)
        if isinstance(found, Breach) or found.breaches:
            raise ValueError(f"{self.name} has no route for {world_text(world)} ranks")
        return found

    def flows(self, rank: int, world: World) -> tuple[Flow, ...]:
        """What a rank issues, in order; of a part what this part does."""
        if self._by is None:
            return self.trace(world).flows[rank]
        if (rank, world) not in self._mine:
            copied, otherwise = self._by
            mine = self.trace(world).flows[rank]
            found = tuple(f for f in mine if ((f.step.via or otherwise) == "copy_engine") is copied)
            self._mine[rank, world] = found
        return self._mine[rank, world]

    def part(self, copied: bool, otherwise: str) -> Routing:
        """The steps that copy engines carry, or those that programs do. All else is that of the whole route.
        `otherwise`: the via of steps that say nothing."""
        found = copy(self)
        found._by, found._mine = (copied, otherwise), {}
        return found

    def uncopied(self, world: World) -> Breach | None:
        """Why copy engines cannot carry what this part gives them, if they cannot."""
        if self._by is None or not self._by[0]:
            return None
        for f in (f for rank in range(ranks_of(world)) for f in self.flows(rank, world)):
            step, other = line_of(f.issuer, f.step), f.base
            if other is None and f.holder == f.issuer:
                continue
            why = "it fetches" if other is None else "it waits for what another brings"
            lines = [step, f"  it came with: {line_of(other.issuer, other.step)}"] if other else [step]
            lines += [f"lines are those of {self.file}"] * bool(self.file)
            text = f"plan {self.name} on {world_text(world)} ranks: {step} by copy engine, and {why}"
            places = (self.line, 0) if self.file else (f.step.line, other.step.line if other else 0)
            found = Breach(route_steps.copies_wait.code, text, "\n".join(lines), places[0], why, places[1])
            return replace(found, other_label="it comes here")
        return None

    def chunks(self, chunk: ChunkSize, geometry: Geometry, part: int, world: World) -> range:
        """The chunks that make up a part of a shard, also those that are left out of a small call."""
        if isinstance(chunk, ChunkCount):
            each = chunk.count // self.parts(world)
            return range(part * each, (part + 1) * each)
        return range(geometry.chunks(chunk))

    def part_of(self, chunk: ChunkSize, number: int, world: World) -> int:
        """The part of a shard that a chunk lies in."""
        return number * self.parts(world) // chunk.count if isinstance(chunk, ChunkCount) else 0

    def parts(self, world: World) -> int:
        return self.trace(world).parts

    @property
    def tabled(self) -> bool:
        """Whether what a rank carries is a table, not computed. Sums are: a step must know what to add up first."""
        return self.form is None or self.contract != "all_gather"

    def visits(self, world: World, leaving: bool) -> tuple[tuple[int, ...], ...]:
        """For each rank all shards (of an all_to_all: ranks) in the order of its tiles: as they are there whole, the
        own one first; or `leaving`: as they begin to leave, the own one and those that stay last. Places of a relay are
        no shards."""
        if (world, leaving) not in self._visits:
            order, count = self.trace(world).order, ranks_of(world)
            at: list[dict[int, int]] = [{rank: len(order) if leaving else -1} for rank in range(count)]
            if self.contract == "all_reduce":  # no shard is a rank's own
                at = [{} for _ in at]
            for i, f in enumerate(order):
                if leaving and f.source < count and f.base is None:
                    at[f.holder].setdefault(f.source, i)
                elif not leaving and f.target < count:
                    at[f.reader][f.target] = i
            for found, shard in product(at, range(count)):
                found.setdefault(shard, len(order))
            self._visits[world, leaving] = tuple(tuple(sorted(found, key=found.__getitem__)) for found in at)
        return self._visits[world, leaving]

    def places(self, world: World) -> int:
        """Places of a rank for what arrives for a sum, each as large as a shard. Over two axes as many as the most of
        all pairs of sizes with as many ranks, which share a module's memory; of two tiers as many as ranks."""
        if len(self.axes) == 1:
            return self.storage(world).places
        ranks = ranks_of(world)
        if not self.ways:
            return ranks
        pairs = [(n, ranks // n) for n in range(1, ranks + 1) if ranks % n == 0]
        return max(self.storage(pair).places for pair in pairs if not self.breaches(pair))

    def storage(self, world: World) -> Storage:
        """Where what arrives for a sum is kept."""
        if world not in self._storages:
            self._storages[world] = Storage(self.trace(world))
        return self._storages[world]

    def issuer(self, rank: int, shard: int, part: int, world: World) -> int:
        """The rank whose programs bring a part of a shard of a gather to `rank`."""
        return self.trace(world).arrived[rank, shard, part].base.issuer

    def _traced(self, world: World) -> Trace | Breach:
        if world not in self._traces:
            made = self._make(world)
            self._traces[world] = made if isinstance(made, Breach) else trace(made, self._watch)
        return self._traces[world]
