"""Routes of two tiers: between the ranks of equal inner index along the outer axis, and along the inner axis.

An all-gather exchanges along the outer axis and spreads each shard along the inner axis as soon as it is there: every
byte crosses the outer link once for each node, and the two tiers run side by side, shard by shard. Cut into parts, the
tiers are woven part by part (`_weave`): all programs take up transfers in one order, and a whole shard for the slow
link ahead of the rest would keep them all waiting for that link. A reduce-scatter is
its mirror: it adds up along the inner axis first, the shards of other nodes before its own, and sends each sum along
the outer axis when it is whole. An all-reduce is one after the other.

Source: the two-level algorithms of MPI collectives (Karonis et al., 2000, MPICH-G2; Thakur, Rabenseifner, Gropp, 2005).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from chunkdsl.plan.steps import Piece, Route, Step

TIERS = ("direct", "swizzle", "ring")
OUTER, INNER = 0, 1  # lanes: the tiers do not wait for each other but for data


def hierarchical(
    contract: str, sizes: tuple[int, int], outer: str, inner: str, line: int = 0, parts: int = 1
) -> Route:
    """The route of `contract` (all_gather, reduce_scatter, all_reduce) on a mesh of sizes (outer, inner). `outer` and
    `inner` are the routes within the tiers: direct, swizzle or ring, as for one axis. `parts`: into how many an
    all-gather cuts each shard, to weave the tiers. ValueError for other tiers, and for parts of a sum."""
    if not {outer, inner} <= set(TIERS):
        raise ValueError(f"a tier is one of {', '.join(TIERS)}")
    if parts > 1:
        if contract != "all_gather":
            raise ValueError(f"{contract} is not woven")
        woven = [_weave(n, g, sizes, outer, inner, parts, line) for n, g in product(*map(range, sizes))]
        return Route(f"hierarchical({outer}, {inner})", contract, sizes, tuple(woven))
    parts = {"all_gather": (_gather,), "reduce_scatter": (_scatter,), "all_reduce": (_scatter, _gather)}[contract]
    steps = []
    for n, g in product(*map(range, sizes)):
        mine: list[Step] = []
        for i, half in enumerate(parts):
            for when, lane, shard, peer in sorted(half(n, g, sizes, outer, inner)):
                piece, adds = Piece(shard), half is _scatter
                mine.append(Step("send", piece, piece, peer, adding=adds, when=(i, *when), lane=lane, line=line))
        steps.append(tuple(mine))
    return Route(f"hierarchical({outer}, {inner})", contract, sizes, tuple(steps))


Made = tuple[tuple[int, int, int], int, int, int]  # when, lane, shard, peer


def _gather(n: int, g: int, sizes: tuple[int, int], outer: str, inner: str) -> Iterator[Made]:
    """What rank (n, g) sends. `when`: (rounds of the outer tier that must be over, tier, place in the round)."""
    nodes, gpus = sizes
    for k, (node, shard) in enumerate(_rounds(n, nodes, outer)):
        yield (k, 0, 0), OUTER, shard * gpus + g, node * gpus + g
    for m in range(nodes):
        there = 0 if m == n else 1 + _sent(m, n, nodes, outer)
        for j, (gpu, shard) in enumerate(_rounds(g, gpus, inner)):
            yield (there, 1, j), INNER, m * gpus + shard, n * gpus + gpu


def _weave(
    n: int, g: int, sizes: tuple[int, int], outer: str, inner: str, parts: int, line: int
) -> tuple[Step, ...]:
    """What rank (n, g) sends, in one lane. The steps of the inner tier are spread evenly between those of the outer
    one: those of the own shard first, then what comes from other nodes, in the order in which it comes and not before.
    `when`: (steps of the outer tier that must be over, tier, place in the tier)."""
    nodes, gpus = sizes
    far = [(shard * gpus + g, p, node * gpus + g) for node, shard in _rounds(n, nodes, outer) for p in range(parts)]
    tier = _rounds(g, gpus, inner)
    near = [(0, n * gpus + shard, p, n * gpus + gpu) for gpu, shard in tier for p in range(parts)]
    for m in sorted((m for m in range(nodes) if m != n), key=lambda m: _sent(m, n, nodes, outer)):
        came = 1 + _sent(m, n, nodes, outer) * parts
        near += [(came + p, m * gpus + shard, p, n * gpus + gpu) for p in range(parts) for gpu, shard in tier]
    made = [((i, 0, 0), *step) for i, step in enumerate(far)]
    made += [((max(after, i * len(far) // len(near)), 1, i), *step) for i, (after, *step) in enumerate(near)]
    pieces = [(when, Piece(shard, part, parts), peer) for when, shard, part, peer in sorted(made)]
    return tuple(Step("send", piece, piece, peer, when=when, line=line) for when, piece, peer in pieces)


def _scatter(n: int, g: int, sizes: tuple[int, int], outer: str, inner: str) -> Iterator[Made]:
    """What rank (n, g) adds to others. `when`: (place of the destined node in the order of the outer tier, tier, what
    orders the addends of one sum)."""
    nodes, gpus = sizes
    rounds = _back(n, nodes, outer)
    for k, m in enumerate([*(m for _, m in rounds), n]):
        for j, (gpu, shard) in enumerate(_back(g, gpus, inner)):
            yield (k, 0, g if inner == "direct" else j), INNER, m * gpus + shard, n * gpus + gpu
    for k, (node, m) in enumerate(rounds):
        yield (k, 1, n), OUTER, m * gpus + g, node * gpus + g


def _rounds(at: int, count: int, route: str) -> list[tuple[int, int]]:
    """(peer, shard) of what a rank of one tier of a gather sends, in order."""
    if route == "ring":
        return [((at + 1) % count, (at - k) % count) for k in range(count - 1)]
    return [(peer, at) for peer in _peers(at, count, route)]


def _back(at: int, count: int, route: str) -> list[tuple[int, int]]:
    """(peer, shard) of what a rank of one tier of a reduce-scatter adds to its peers, in order."""
    if route == "ring":
        return [((at + 1) % count, (at - 1 - k) % count) for k in range(count - 1)]
    return [(peer, peer) for peer in _peers(at, count, route)]


def _peers(at: int, count: int, route: str) -> list[int]:
    return [p for p in range(count) if p != at] if route == "direct" else [(at + k) % count for k in range(1, count)]


def _sent(origin: int, to: int, count: int, route: str) -> int:
    """The round of the outer tier in which the shard of `origin` comes to `to`."""
    return (to - origin - 1) % count if route == "ring" else _peers(origin, count, route).index(to)
