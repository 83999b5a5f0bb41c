"""Random routes that keep their contract, faults planted in them, and an executor of its own that tells the two apart.

The executor knows nothing of traces: it keeps, for each piece, how often each rank's contribution is in it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby, product

from chunkdsl.plan.steps import Piece, Route, Step


def tree_route(draw, contract: str, world: int) -> Route:
    """Every shard goes from its owner along a random spanning tree, or its addends to the owner along one, or both, one
    after the other; an all-reduce has owners in a random order, or any for each part. `draw(low, high)` is a random
    integer."""
    steps: list[list[Step]] = [[] for _ in range(world)]
    cuts = draw(1, 2)
    owners = shuffled(draw, list(range(world))) if contract == "all_reduce" else list(range(world))
    anyone = contract == "all_reduce" and draw(0, 1)
    for shard in range(world):
        for part in range(cuts):
            owner = draw(0, world - 1) if anyone else owners[shard]
            for half in halves(contract):
                order = [owner, *shuffled(draw, [r for r in range(world) if r != owner])]
                links = [(order[draw(0, i - 1)], order[i]) for i in range(1, world)]  # (nearer the owner, farther)
                adding = half == "reduce_scatter"
                links = [(*link, adding) for link in links]
                if adding:
                    links = handed_back(draw, [(far, near) for near, far, _ in reversed(links)])
                for number, (holder, reader, adds) in enumerate(links):
                    piece = Piece(shard, part, cuts)
                    when, lane = (not adding, number, shard, part), draw(0, 1)
                    action, issuer, peer = ("fetch", reader, holder) if draw(0, 1) else ("send", holder, reader)
                    steps[issuer].append(Step(action, piece, piece, peer, adds, when, lane, line=1 + number))
    return Route("tree", contract, (world,), tuple(tuple(sorted(s, key=lambda x: x.when)) for s in steps))


def handed_back(draw, links: list[tuple[int, int]]) -> list[tuple[int, int, bool]]:
    """Additions up a tree. Now and then a rank gives its sum back to one that it has added, which goes on with it."""
    made, last = [], {}
    for far, near in links:
        if far in last and draw(0, 3) == 0:
            made.append((far, last[far], False))
            far = last[far]
        made.append((far, near, True))
        last[near] = far
    return made


def exchange_route(draw, contract: str, world: int) -> Route:
    """Pairs of randomly numbered ranks exchange whole sums, a power of two."""
    names, bits = shuffled(draw, list(range(world))), shuffled(draw, list(range(world.bit_length() - 1)))
    steps: list[list[Step]] = [[] for _ in range(world)]
    for (k, bit), at, shard in product(enumerate(bits), range(world), range(world)):
        action = "fetch" if draw(0, 1) else "send"
        rank, peer = (names[at], names[at ^ 1 << bit]) if action == "send" else (names[at ^ 1 << bit], names[at])
        piece = Piece(shard)
        steps[rank].append(Step(action, piece, piece, peer, True, (k, shard), line=1 + k))
    return Route("exchange", contract, (world,), tuple(tuple(sorted(s, key=lambda x: x.when)) for s in steps))


def halves(contract: str) -> tuple[str, ...]:
    return ("reduce_scatter", "all_gather") if contract == "all_reduce" else (contract,)


def ring_route(draw, contract: str, world: int) -> Route:
    """A ring through the ranks in a random order."""
    order = shuffled(draw, list(range(world)))
    steps = []
    for rank in range(world):
        at = order.index(rank)
        mine = []
        for half in halves(contract):
            adding = half == "reduce_scatter"
            for i in range(world - 1):
                piece = Piece(order[(at - i - adding) % world])
                mine.append(Step("send", piece, piece, order[(at + 1) % world], adding, (not adding, i), line=1))
        steps.append(tuple(mine))
    return Route("ring", contract, (world,), tuple(steps))


def doubling_route(draw, contract: str, world: int) -> Route:
    """Recursive doubling, or recursive halving with additions, or one after the other, among randomly numbered ranks. A
    power of two."""
    names = shuffled(draw, list(range(world)))
    bits = shuffled(draw, list(range(world.bit_length() - 1)))
    steps: list[list[Step]] = [[] for _ in range(world)]
    for at, half in product(range(world), halves(contract)):
        adding = half == "reduce_scatter"
        for k, bit in enumerate(bits):
            partner, done = at ^ 1 << bit, sum(1 << b for b in bits[:k])
            for shard in range(world):
                moves = not (shard ^ partner) & (done | 1 << bit) if adding else not (shard ^ at) & ~done
                if moves:
                    piece, when = Piece(names[shard]), (not adding, k, shard)
                    steps[names[at]].append(Step("send", piece, piece, names[partner], adding, when, line=1))
    return Route("doubling", contract, (world,), tuple(map(tuple, steps)))


def path_route(draw, contract: str, world: int) -> Route:
    """An all_to_all whose blocks go straight, or over other ranks, where they lie in random places of the relay."""
    steps: list[list[Step]] = [[] for _ in range(world)]
    cuts, taken = draw(1, 2), [shuffled(draw, list(range(world, 2 * world))) for _ in range(world)]
    for giver, taker in product(range(world), range(world)):
        if giver == taker:
            continue
        others = shuffled(draw, [r for r in range(world) if r not in (giver, taker)])
        over = [r for r in others[: draw(0, len(others))] if taken[r]]
        at, place = giver, taker
        for number, to in enumerate([*over, taker]):
            there = giver if to == taker else taken[to].pop()
            for part in range(cuts):
                source, target = Piece(place, part, cuts), Piece(there, part, cuts)
                when, lane = (number, giver, taker, part), draw(0, 1)
                action, issuer, peer = ("fetch", to, at) if draw(0, 1) else ("send", at, to)
                steps[issuer].append(Step(action, source, target, peer, False, when, lane, line=1))
            at, place = to, there
    return Route("paths", contract, (world,), tuple(tuple(sorted(s, key=lambda x: x.when)) for s in steps))


def shuffled(draw, items: list) -> list:
    made = list(items)
    for i in range(len(made) - 1, 0, -1):
        j = draw(0, i)
        made[i], made[j] = made[j], made[i]
    return made


FAULTS = ("drop", "shard", "again", "peer", "reorder", "adding", "place")


def plant(draw, route: Route, fault: str) -> Route:
    """One random fault of a kind in a route with steps. It may turn out to be harmless: the executor tells."""
    rank = draw(0, route.world - 1)
    while not route.steps[rank]:
        rank = (rank + 1) % route.world
    number = draw(0, len(route.steps[rank]) - 1)
    step, mine = route.steps[rank][number], list(route.steps[rank])
    other = (step.source.shard + draw(1, route.world - 1)) % route.world
    match fault:
        case "drop":
            del mine[number]
        case "shard":
            piece = replace(step.source, shard=other)
            mine[number] = replace(step, source=piece, target=piece)
        case "place":
            mine[number] = replace(step, target=replace(step.target, shard=other))
        case "again":
            mine.insert(number, replace(step, when=(*step.when, 0)))
        case "peer":
            peer = (step.peer + 1 + draw(0, route.world - 2)) % route.world
            mine[number] = replace(step, peer=peer if peer != rank else (peer + 1) % route.world)
        case "reorder":
            k = draw(0, len(mine) - 1)
            mine[number], mine[k] = replace(mine[k], when=step.when), replace(step, when=mine[k].when)
        case "adding":
            mine[number] = replace(step, adding=not step.adding)
    return replace(route, steps=(*route.steps[:rank], tuple(mine), *route.steps[rank + 1 :]))


def keeps_contract(route: Route) -> bool:
    """By execution: every piece that the contract asks for holds what it should, whatever came on the way."""
    if route.contract == "all_to_all":
        return exchanges(route)
    gather, parts = route.contract == "all_gather", 2
    held: dict[tuple[int, int, int], Counter] = {}
    for rank in range(route.world):
        for shard in (rank,) if gather else range(route.world):
            for part in range(parts):
                held[rank, shard, part] = Counter({(shard, rank): 1})
    steps = [(rank, step) for rank, mine in enumerate(route.steps) for step in mine]
    steps.sort(key=lambda pair: pair[1].when)
    for _, together in groupby(steps, key=lambda pair: pair[1].when):
        values = []
        for rank, step in together:
            holder, reader = (rank, step.peer) if step.action == "send" else (step.peer, rank)
            each = parts // step.source.parts
            for part in range(step.source.part * each, (step.source.part + 1) * each):
                values.append((held.get((holder, step.source.shard, part)), (reader, step.target.shard, part), step))
        for value, place, step in values:
            if value is None:
                return False
            held[place] = held.get(place, Counter()) + value if step.adding else Counter(value)
    for rank in range(route.world):
        for shard in (rank,) if route.contract == "reduce_scatter" else range(route.world):
            want = [(shard, shard)] if gather else [(shard, r) for r in range(route.world)]
            if any(held.get((rank, shard, part)) != Counter(want) for part in range(parts)):
                return False
    return True


def exchanges(route: Route) -> bool:
    """The same of an all_to_all: inputs are apart from results and relays, which follow one another in `put`."""
    world, parts = route.world, 2
    put: dict[tuple[int, int, int], tuple[int, int]] = {}
    steps = sorted(((rank, s) for rank, mine in enumerate(route.steps) for s in mine), key=lambda pair: pair[1].when)
    for rank, step in steps:
        each = parts // step.source.parts
        for part in range(step.source.part * each, (step.source.part + 1) * each):
            here = step.source.shard
            holder, reader = (rank, step.peer) if step.action == "send" else (step.peer, rank)
            block = (holder, here) if here < world else put.get((holder, here, part))
            if block is None:
                return False
            put[reader, step.target.shard, part] = block
    return all(put.get((r, q, part)) == (q, r) for r in range(world) for q in range(world) if q != r for part in (0, 1))
