"""A route carried out symbolically: what each step moves, where that came from, and whether the contract holds.

`trace(route)` follows every piece through the steps in the order of `when`, with a bit set of the ranks whose addends
are in it (the semantics are those of `plan/steps`). It is the proof of a route against its contract, for one world
size, and at the same time what unrolling and emission read: which earlier steps a step waits for. Nothing here knows
of rows, chunks or kernels; that the emitted order of waits and signals keeps to this is proven on the explicit plan.

Every write has storage of its own, so an addend that arrives does not disturb a reader of the sum before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from math import lcm

from chunkdsl.plan.steps import Piece, Route, Step
from chunkdsl.plan.trace_breaches import Breach, Breaches
from chunkdsl.plan.trace_order import find_levels

MOST_PARTS = 64  # cuts of a shard
SUMS = ("reduce_scatter", "all_reduce")
CONTRACTS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")


@dataclass(slots=True, eq=False)
class Flow:
    """One step's transfer of one part of a shard, cut as finely as any step of the route cuts.

    `issuer` lists the step; the part goes from shard `source` on rank `holder` to shard `target` on `reader`. What it
    moves is `base` (the flow that put it there; None: the holder's own input) plus `addends`, in that order. `level`
    orders the flows of all ranks so that each comes after those that it waits for.
    """

    issuer: int
    number: int  # of the step in its rank's list
    step: Step
    holder: int
    reader: int
    source: int
    target: int
    part: int
    base: Flow | None = None
    addends: tuple[Flow, ...] = ()
    level: int = 0

    @property
    def block(self) -> tuple[int, int]:
        """Of an all_to_all: the ranks whose input it comes from and that it is for."""
        return self.base.block if self.base else (self.holder, self.source)

    @property
    def inputs(self) -> tuple[Flow, ...]:
        """The flows whose data this one moves on."""
        return self.addends if self.base is None else (self.base, *self.addends)


@dataclass(slots=True, eq=False)
class Held:
    """What a rank holds in a part of a shard: its name, the ranks whose addends are in; the rest as in a flow."""

    what: tuple[int, ...]
    mask: int
    base: Flow | None = None
    addends: tuple[Flow, ...] = ()


@dataclass(frozen=True)
class Trace:
    """`flows[rank]`: those that a rank issues, in the order in which it takes them up. `parts` of every shard.
    `arrived[rank, shard, part]`: what lies there at the end; pieces that nothing wrote are missing. If there are
    `breaches`, the rest is not to be used."""

    route: Route
    parts: int
    flows: tuple[tuple[Flow, ...], ...]
    arrived: dict[tuple[int, int, int], Held]
    breaches: tuple[Breach, ...]
    order: tuple[Flow, ...] = field(default=())  # all flows: each after those whose data it moves on


def trace(route: Route, watch: Callable[[], object] = bool) -> Trace:
    """Follow a route. `Trace.breaches` are empty if and only if the route keeps its contract: then every shard arrives
    at every rank that shall have it, once, every addend is counted once, and no two writes of a piece race.

    `watch` is called in the loops over steps: what it raises ends the work."""
    return _Tracer(route, watch).run()


class _Tracer:
    def __init__(self, route: Route, watch: Callable[[], object]) -> None:
        self.route, self.world, self.watch = route, route.world, watch
        self.found = Breaches(route)
        self.held: dict[tuple[int, int, int], Held] = {}
        self.sums = route.contract in SUMS

    def run(self) -> Trace:
        parts = self._parts()
        if self.found:
            return self._end(1, ())
        flows = [f for rank, steps in enumerate(self.route.steps) for f in self._cut(rank, steps, parts)]
        flows.sort(key=lambda f: f.step.when)
        self._begin(parts)
        for _, group in groupby(flows, key=lambda f: f.step.when):
            self._together(list(group))
        if not self.found:
            self.found.check_end(self.held, parts, self._wanted)
        if not self.found:
            cycle = find_levels(flows, self.watch)
            if cycle:
                self.found.deadlock(cycle)
        return self._end(parts, tuple(flows))

    def _end(self, parts: int, flows: tuple[Flow, ...]) -> Trace:
        mine: list[list[Flow]] = [[] for _ in range(self.world)]
        order = tuple(sorted(flows, key=lambda f: (f.level, f.step.when, f.issuer, f.number, f.part)))
        for f in order:
            mine[f.issuer].append(f)
        arrived = {place: held for place, held in self.held.items() if held.base or held.addends}
        return Trace(self.route, parts, tuple(map(tuple, mine)), arrived, self.found.breaches, order)

    # ---- the form of steps

    def _parts(self) -> int:
        """The least common multiple of all cuts, or 1 with a breach."""
        found, world, parts = self.found, self.world, 1
        places = world * (2 if self.route.contract == "all_to_all" else 1)
        for rank, steps in enumerate(self.route.steps):
            for step in steps:
                self.watch()
                for piece in (step.source, step.target):
                    if not 0 <= piece.shard < places:
                        found.outside(rank, step, f"shard {piece.shard}", f"there are {places}, counted from 0")
                    elif not (piece.parts >= 1 and 0 <= piece.part < piece.parts):
                        found.outside(rank, step, f"part {piece.part} of {piece.parts}", "parts count from 0")
                    else:
                        parts = lcm(parts, piece.parts)
                if not 0 <= step.peer < world:
                    found.outside(rank, step, f"rank {step.peer}", f"there are {world}, counted from 0")
                elif step.peer == rank:
                    found.to_itself(rank, step)
                elif step.adding and not self.sums:
                    found.not_kept(rank, step, f"adds, and {self.route.contract} adds nothing up")
                elif (step.source.part, step.source.parts) != (step.target.part, step.target.parts):
                    found.not_kept(rank, step, "moves one part of a shard to the place of another part")
                if parts > MOST_PARTS:
                    found.too_many_parts(rank, step, parts, MOST_PARTS)
                    return 1
        return parts

    def _cut(self, rank: int, steps: tuple[Step, ...], parts: int) -> Iterator[Flow]:
        for number, step in enumerate(steps):
            self.watch()
            holder, reader = (rank, step.peer) if step.action == "send" else (step.peer, rank)
            for part in finest(step.source, parts):
                yield Flow(rank, number, step, holder, reader, step.source.shard, step.target.shard, part)

    # ---- contents

    def _begin(self, parts: int) -> None:
        """Inputs. A gather's is the own shard, a sum's an addend of every shard; an exchange keeps its own piece."""
        for rank in range(self.world):
            for shard in range(self.world) if self.sums else (rank,):
                self.watch()
                for part in range(parts):
                    what = (rank, rank) if self.route.contract == "all_to_all" else (shard,)
                    self.held[rank, shard, part] = Held(what, 1 << rank if self.sums else 1)

    def _wanted(self) -> Iterator[tuple[int, int, int]]:
        """(rank, shard, mask) of what must be there at the end."""
        all_ranks = (1 << self.world) - 1
        for rank in range(self.world):
            for shard in (rank,) if self.route.contract == "reduce_scatter" else range(self.world):
                self.watch()
                yield rank, shard, all_ranks if self.sums else 1

    def _together(self, flows: list[Flow]) -> None:
        """Steps of equal `when`: all of them read before any of them writes."""
        read = [(f, held) for f in flows if (held := self._read(f)) is not None]
        put: dict[tuple[int, int, int], Flow] = {}
        for f, held in read:
            self.watch()
            place = f.reader, f.target, f.part
            if place in put:
                self.found.race(put[place], f)
                continue
            put[place] = f
            self._write(f, held, place)
        for f, _ in read:
            other = put.get((f.holder, f.source, f.part))
            if other is not None and not other.step.adding and self.route.contract != "all_to_all":
                self.found.overwritten(f, other)

    def _read(self, f: Flow) -> Held | None:
        if self.route.contract == "all_to_all" and f.source < self.world:
            return Held((f.holder, f.source), 1)  # of the input: from this rank, for that one
        held = self.held.get((f.holder, f.source, f.part))
        if held is None:
            self.found.absent(f)
            return None
        f.base, f.addends = held.base, held.addends
        return held

    def _write(self, f: Flow, moved: Held, place: tuple[int, int, int]) -> None:
        before = self.held.get(place)
        if self.route.contract == "all_to_all":
            if f.target < self.world and moved.what != (f.target, f.reader):
                self.found.misdirected(f, *moved.what)
            elif before is not None:
                self.found.again(f, before.base)
            else:
                self.held[place] = Held(moved.what, 1, f)
        elif moved.what != (f.target,):
            self.found.misplaced(f, moved.what[0])
        elif f.step.adding:
            if moved.mask & before.mask:
                self.found.twice(f, before, moved.mask & before.mask)
            self.held[place] = Held(before.what, before.mask | moved.mask, before.base, (*before.addends, f))
        elif not self.sums and before is not None:
            self.found.again(f, before.base)
        elif self.sums and before.mask & ~moved.mask:
            self.found.dropped(f, before.mask & ~moved.mask)
        else:
            self.held[place] = Held(moved.what, moved.mask, f)


def finest(piece: Piece, parts: int) -> range:
    """The finest parts that a piece is made of."""
    each = parts // piece.parts
    return range(piece.part * each, (piece.part + 1) * each)
