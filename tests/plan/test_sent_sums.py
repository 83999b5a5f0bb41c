"""Whether ranks end an all-reduce with the same bits: the verdict on its order of additions, against numbers."""

from itertools import groupby
from random import Random

import numpy as np
import pytest
from random_routes import exchange_route, ring_route, tree_route

from chunkdsl.plan.sent_sums import differing
from chunkdsl.plan.steps import Piece, Route, Step
from chunkdsl.plan.trace import trace


def spread(draw, contract, world):
    """Each takes what the rank 1, 2, 4 ... above it has."""
    steps = [
        tuple(Step("fetch", Piece(s), Piece(s), (r + (1 << k)) % world, True, (k, s), line=1 + k)
              for k in range(world.bit_length() - 1) for s in range(world)) for r in range(world)
    ]  # fmt: skip
    return Route("spread", contract, (world,), tuple(steps))


def rounded(x: np.ndarray) -> np.ndarray:
    """f32 values with the 8 bits of a bf16's mantissa; which way ties go does not matter here."""
    return ((x.view(np.uint32) + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def alike(route: Route, seed: int) -> bool:
    """Carry the additions out, with what `sent_sums` says of rounding, on random numbers."""
    drawn = np.random.default_rng(seed).standard_normal((route.world, route.world, 2, 64)).astype(np.float32)
    held = rounded(drawn)  # [rank, shard, part]
    steps = sorted(((r, s) for r, mine in enumerate(route.steps) for s in mine), key=lambda pair: pair[1].when)
    for _, together in groupby(steps, key=lambda pair: pair[1].when):
        writes = []
        for r, s in together:
            holder, reader = (r, s.peer) if s.action == "send" else (s.peer, r)
            each = 2 // s.source.parts
            part = slice(s.source.part * each, (s.source.part + 1) * each)
            held[holder, s.source.shard, part] = rounded(held[holder, s.source.shard, part])
            writes.append((reader, s.source.shard, part, held[holder, s.source.shard, part].copy(), s.adding))
        for reader, shard, part, value, adding in writes:
            held[reader, shard, part] = held[reader, shard, part] + value if adding else value
    return bool((rounded(held) == rounded(held)[:1]).all())


@pytest.mark.parametrize("make, world, same", [
    (exchange_route, 8, True), (exchange_route, 2, True), (ring_route, 5, True), (tree_route, 4, True),
    (tree_route, 5, True), (spread, 2, True), (spread, 4, False), (spread, 8, False),
])  # fmt: skip
def test_the_verdict_is_that_of_numbers(make, world, same):
    for seed in range(4):
        route = make(Random(seed).randint, "all_reduce", world)
        found = trace(route)
        assert found.breaches == ()
        assert (differing(found) is None, alike(route, seed)) == (same, same)


def test_both_groupings_are_shown():
    breach = differing(trace(spread(None, "all_reduce", 4)))
    assert breach.code == "CD326" and breach.line == breach.other_line == 2
    assert "rank 0: ((0 + 1) + (2 + 3))" in breach.counterexample
    assert "rank 1: ((0 + 3) + (1 + 2))" in breach.counterexample
