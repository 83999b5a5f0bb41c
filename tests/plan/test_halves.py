"""An all-reduce route as a reduce-scatter and an all-gather: what splits, what does not and why, rows renumbered."""

from dataclasses import replace

import pytest

from chunkdsl.plan.halves import split
from chunkdsl.plan.hierarchical import hierarchical
from chunkdsl.plan.steps import Piece, Route, Step
from chunkdsl.plan.trace import trace


def route(world, make, parts=1):
    """`make(rank)` yields (when, shard, peer, adding, part)."""
    steps = [
        tuple(Step("send", Piece(s, p, parts), Piece(s, p, parts), peer, adding, when, line=1)
              for when, s, peer, adding, p in make(rank)) for rank in range(world)
    ]  # fmt: skip
    return Route("r", "all_reduce", (world,), tuple(steps))


def ring(world, parts=1, shift=lambda part: 0):
    """Sums of shard s end on rank s + shift(part) - 1."""

    def make(r):
        for p in range(parts):
            for i in range(world - 1):
                yield (0, i, p), (r - i - shift(p)) % world, (r + 1) % world, True, p
            for i in range(world - 1):
                yield (1, i, p), (r + 1 - i - shift(p)) % world, (r + 1) % world, False, p

    return route(world, make, parts)


@pytest.mark.parametrize("whole", [ring(1), ring(2), ring(5), ring(4, 2), ring(3, 1, lambda p: 2),
                                   hierarchical("all_reduce", (2, 3), "ring", "swizzle")])  # fmt: skip
def test_both_halves_keep_their_contracts(whole):
    sums, results = split(trace(whole))
    assert (sums.contract, results.contract) == ("reduce_scatter", "all_gather")
    assert trace(sums).breaches == trace(results).breaches == ()
    assert [sum(map(len, r.steps)) for r in (whole, sums, results)] == [
        sum(map(len, whole.steps)), *(sum(s.adding is adding for mine in whole.steps for s in mine)
                                      for adding in (True, False))]  # fmt: skip


def test_rows_are_renumbered_so_that_each_rank_adds_up_its_own():
    """In the textbook's ring rank r ends with shard r + 1; a rank's last addition is then to its own number."""
    sums, _ = split(trace(ring(4)))
    assert [mine[-1].source.shard for mine in sums.steps] == [1, 2, 3, 0]
    assert all(mine[-1].peer == mine[-1].source.shard for mine in sums.steps)


def doubling(world):
    return route(world, lambda r: [
        ((k, s), s, r ^ 1 << k, True, 0) for k in range(world.bit_length() - 1) for s in range(world)
    ])  # fmt: skip


def star(world):
    """Rank 0 adds up everything."""

    def make(r):
        for s in range(world):
            for p in range(1, world):
                if r == p:
                    yield (0, p, s), s, 0, True, 0
                if r == 0:
                    yield (1, p, s), s, p, False, 0

    return route(world, make)


def replaced(world):
    """Rank 1 gives up its own addend for a sum that has it, but is not whole, and goes on with that."""
    order = [(1, 0, True), (0, 1, False), (2, 1, True), (1, 0, False), (1, 2, False)]
    return route(world, lambda r: [
        ((i, s), s, reader, adding, 0)
        for i, (holder, reader, adding) in enumerate(order) for s in range(world) if r == holder
    ])  # fmt: skip


@pytest.mark.parametrize("whole, why", [
    (doubling(4), "shard 0 is added up on ranks 0, 1, 2, 3"),
    (star(3), "rank 0 adds up shards 0, 1, 2, and ranks 1, 2 none"),
    (ring(4, 2, lambda p: p), "parts of shard 0 are added up on ranks 3 and 0"),
    (replaced(3), "a sum that is not whole replaces another"),
])  # fmt: skip
def test_what_does_not_split_is_refused_with_the_reason(whole, why):
    found = trace(whole)
    assert found.breaches == ()
    breach = split(found)
    assert breach.code == "CD326" and why in breach.message and breach.line == 1


def test_a_half_that_breaks_its_contract_is_not_taken():
    """What splitting relies on is traced again: a result handed out twice keeps all_reduce, but not all_gather."""
    whole = ring(3)
    again = tuple((*mine, replace(mine[-1], when=(2, 0, 0))) for mine in whole.steps)
    found = trace(replace(whole, steps=again))
    assert found.breaches == ()
    assert {b.code for b in trace(split(found)[1]).breaches} == {"CD322"}
