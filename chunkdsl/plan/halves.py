"""An all-reduce route as two: its additions are a reduce-scatter, and its other steps hand the sums out, an all-gather.

A route splits if every part of a shard is added up on one rank alone, each rank adds up one shard, and nothing but
whole sums replaces what a rank has. Which rows are called shard s is free where every rank has all of them; they are
renumbered, so that rank r adds up shard r. Both halves are traced against their own contracts before use. A route that
does not split is carried out as it is, and its sums travel (`sent_sums`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from chunkdsl.check import routes
from chunkdsl.ir.meshes import World, world_text
from chunkdsl.plan.routing import Routing
from chunkdsl.plan.steps import Piece, Route, Step
from chunkdsl.plan.trace import Flow, Trace, trace
from chunkdsl.plan.trace_breaches import Breach, line_of, ranks

WORLDS = (2, 3, 4, 8)  # a module serves several, and carries a plan out in one way


def why_whole(routing: Routing, declared: World) -> str:
    """Why a route without breaches on `declared` ranks does not split there, or on others that it is for; "" if it
    does."""
    worlds = (declared, *(w for w in WORLDS if len(routing.axes) == 1 and w != declared))
    for world in (w for w in worlds if not routing.breaches(w)):
        found = split(routing.trace(world))
        if not isinstance(found, Breach):
            found = next((b for half in found for b in trace(half).breaches), None)
        if found is not None:
            return found.label if world == declared else f"{found.label} on {world_text(world)} ranks"
    return ""


def halves_of(routing: Routing) -> tuple[Routing, Routing]:
    """The routings of both halves of an all-reduce: sums, then results. Where the whole has a breach or does not split,
    both have that breach."""

    @cache
    def parted(world: World) -> tuple[Route, Route] | Breach:
        breaches = routing.breaches(world)
        return breaches[0] if breaches else split(routing.trace(world))

    def half(index: int, contract: str, why: str) -> Routing:
        def make(world: World) -> Route | Breach:
            found = parted(world)
            return found if isinstance(found, Breach) else found[index]

        ways = tuple(w for w in routing.ways if w.adding is (index == 0))
        fetches = any(w.fetch for w in ways) if routing.ways else routing.fetches
        return Routing(routing.name, contract, routing.axes, routing.line, make, why_not=why, fetches=fetches,
                       ways=ways, chunk=routing.chunk)  # fmt: skip

    return half(0, "reduce_scatter", "sums, before results"), half(1, "all_gather", "results, after sums")


def split(found: Trace) -> tuple[Route, Route] | Breach:
    """The two halves of an all-reduce without breaches, or why there are none."""
    route = found.route
    whole, masks = (1 << route.world) - 1, _masks(found)
    for f in found.order:
        if not f.step.adding and masks[f] != whole:
            lost = ranks(whole & ~masks[f])
            lines = [line_of(f.issuer, f.step), f"  what it brings lacks the addend of {lost}"]
            return _breach(route, f.step, "a sum that is not whole replaces another", lines)
    owners: dict[int, int] = {}
    for shard in range(route.world):
        for part in range(found.parts):
            adders = [r for r in range(route.world) if _adds_up(found, masks, r, shard, part) == whole]
            if len(adders) != 1:
                return _several(found, shard, part, adders)
            if owners.setdefault(shard, adders[0]) != adders[0]:
                step = found.arrived[adders[0], shard, part].addends[-1].step
                what = f"parts of shard {shard} are added up on ranks {owners[shard]} and {adders[0]}"
                return _breach(route, step, what, [what])
    doubly = next((r for r in owners.values() if list(owners.values()).count(r) > 1), None)
    if doubly is not None:
        shards = [s for s, r in owners.items() if r == doubly]
        step = found.arrived[doubly, shards[1], 0].addends[-1].step
        idle = ranks(whole & ~sum({1 << r for r in owners.values()}))
        what = f"rank {doubly} adds up shards {', '.join(map(str, shards))}, and {idle} none"
        return _breach(route, step, what, [what])
    return _half(route, owners, "reduce_scatter", True), _half(route, owners, "all_gather", False)


def _masks(found: Trace) -> dict[Flow, int]:
    """The ranks whose addends each flow moves."""
    masks: dict[Flow, int] = {}
    for f in found.order:
        masks[f] = masks[f.base] if f.base else 1 << f.holder
        for a in f.addends:
            masks[f] |= masks[a]
    return masks


def _adds_up(found: Trace, masks: dict[Flow, int], rank: int, shard: int, part: int) -> int:
    """The ranks whose addends a rank has added to its own by the end; 0 where it was brought a sum."""
    held = found.arrived.get((rank, shard, part))
    if held is None or held.base:
        return 1 << rank if held is None else 0
    return sum((masks[a] for a in held.addends), 1 << rank)


def _half(route: Route, owners: dict[int, int], contract: str, adding: bool) -> Route:
    def named(piece: Piece) -> Piece:
        return replace(piece, shard=owners[piece.shard])

    steps = [
        tuple([replace(s, source=named(s.source), target=named(s.target)) for s in mine if s.adding is adding])
        for mine in route.steps
    ]
    return Route(route.name, contract, route.axes, tuple(steps))


def _several(found: Trace, shard: int, part: int, adders: list[int]) -> Breach:
    where = f"shard {shard}" + (f", part {part} of {found.parts}," if found.parts > 1 else "")
    lasts = [found.arrived[rank, shard, part].addends[-1] for rank in adders[:2]]
    step = lasts[-1].step if lasts else found.arrived[0, shard, part].base.step
    what = f"{where} is added up on {ranks(sum(1 << r for r in adders))}" if adders else f"{where} goes round"
    return _breach(found.route, step, what, [what, *(f"  {line_of(f.issuer, f.step)}" for f in lasts)])


def _breach(route: Route, step: Step, what: str, lines: list[str]) -> Breach:
    message = f"plan {route.name} on {world_text(route.axes)} ranks: {what}"
    return Breach(routes.orders_differ.code, message, "\n".join(lines), step.line, what)
