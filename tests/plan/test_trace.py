"""A route against its contract: published algorithms keep it, each kind of fault is found and named."""

from dataclasses import replace
from math import prod

import pytest

from chunkdsl.plan.steps import Piece, Route, Step
from chunkdsl.plan.trace import trace


def route(contract, world, make, axes=None):
    """`make(rank)` yields (when, action, shard, peer, more)."""
    steps = []
    for rank in range(world):
        made = [Step(a, Piece(s), Piece(more.pop("into", s)), p, when=w, line=1, **more)
                for w, a, s, p, more in make(rank)]  # fmt: skip
        steps.append(tuple(made))
    return Route("r", contract, axes or (world,), tuple(steps))


def ring(world):
    return route("all_gather", world, lambda r: [
        ((i,), "send", (r - i) % world, (r + 1) % world, {}) for i in range(world - 1)
    ])  # fmt: skip


def ring_sum(world):
    return route("reduce_scatter", world, lambda r: [
        ((i,), "send", (r - i - 1) % world, (r + 1) % world, {"adding": True}) for i in range(world - 1)
    ])  # fmt: skip


def staggered(world):
    return route("all_to_all", world, lambda r: [
        ((i,), "send", (r + i) % world, (r + i) % world, {"into": r}) for i in range(1, world)
    ])  # fmt: skip


def relayed(world):
    """What is for the rank after the next goes over the next, where it lies in place `world` + rank. Three ranks."""
    return route("all_to_all", world, lambda r: [
        ((0,), "send", (r + 2) % world, (r + 1) % world, {"into": world + r}),
        ((1,), "send", (r + 1) % world, (r + 1) % world, {"into": r}),
        ((2,), "send", world + (r - 1) % world, (r + 1) % world, {"into": (r - 1) % world}),
    ])  # fmt: skip


def total(world):
    """Recursive doubling with addition: each pair exchanges what it has."""
    return route("all_reduce", world, lambda r: [
        ((k, s), "send", s, r ^ 1 << k, {"adding": True}) for k in range(world.bit_length() - 1) for s in range(world)
    ])  # fmt: skip


def two_tier(nodes, gpus):
    """Across nodes first, then each GPU fetches what its neighbours of the node have."""
    world = nodes * gpus

    def make(rank):
        n, g = divmod(rank, gpus)
        for i in range(1, nodes):
            yield (0, i), "send", rank, (n + i) % nodes * gpus + g, {}
        for i in range(1, gpus):
            for m in range(nodes):
                near = (g + i) % gpus
                yield (1, i, m), "fetch", m * gpus + near, n * gpus + near, {"lane": 1}

    return route("all_gather", world, make, (nodes, gpus))


@pytest.mark.parametrize("good", [
    ring(1), ring(2), ring(5), ring_sum(1), ring_sum(4), staggered(5), relayed(3),
    total(8), two_tier(2, 3), two_tier(8, 8),
])  # fmt: skip
def test_published_algorithms_keep_their_contract(good):
    found = trace(good)
    assert found.breaches == ()
    assert sum(map(len, found.flows)) == sum(map(len, good.steps))
    assert prod(good.axes) == good.world
    seen = set()
    for f in found.order:  # whatever a flow moves on came before it
        assert all(id(g) in seen and g.level < f.level for g in f.inputs)
        seen.add(id(f))


def change(r, rank, number, **fields):
    steps = [list(s) for s in r.steps]
    steps[rank][number] = replace(steps[rank][number], **fields)
    return replace(r, steps=tuple(map(tuple, steps)))


def drop(r, rank, number):
    steps = [s if i != rank else (*s[:number], *s[number + 1 :]) for i, s in enumerate(r.steps)]
    return replace(r, steps=tuple(steps))


BROKEN = {
    "a step is missing": (drop(ring(4), 1, 2), "CD323", "rank 2 never gets shard 3"),
    "and what hangs on it": (drop(ring(4), 1, 0), "CD321", "rank 2 does not hold"),
    "another shard": (change(ring(4), 0, 1, source=Piece(0), target=Piece(0)), "CD322", "has it already"),
    "another place": (change(ring(4), 0, 0, target=Piece(2)), "CD323", "the place of shard 2, not of shard 0"),
    "another peer": (change(ring(4), 0, 0, peer=3), "CD321", "rank 1 does not hold"),
    "too early": (change(ring(4), 1, 1, when=(0,)), "CD321", "rank 1 does not hold"),
    "itself": (change(ring(4), 1, 1, peer=1), "CD342", "is its own peer"),
    "no such rank": (change(ring(4), 1, 1, peer=4), "CD340", "names rank 4"),
    "no such part": (change(ring(4), 1, 1, source=Piece(0, 2, 2)), "CD340", "part 2 of 2"),
    "parts that differ": (change(ring(4), 1, 1, source=Piece(0, 0, 2)), "CD323", "to the place of another part"),
    "adds where nothing is added": (change(ring(4), 1, 1, adding=True), "CD323", "adds nothing up"),
    "does not add": (change(ring_sum(4), 1, 1, adding=False), "CD323", "is lost"),
    "adds twice": (change(ring_sum(4), 1, 1, when=(-1,)), "CD323", "lacks the addend"),
    "adds its own again": (change(ring_sum(4), 2, 0, source=Piece(0), target=Piece(0)), "CD324", "counted twice"),
    "wrong piece of an exchange": (change(staggered(4), 0, 0, source=Piece(2)), "CD323", "what rank 0 has for rank 2"),
    "relayed, and not there yet": (change(relayed(3), 0, 0, when=(3,)), "CD321", "does not hold"),
    "a place of the relay taken twice": (change(relayed(3), 0, 1, target=Piece(3)), "CD322", "has it already"),
    "a block passed on to another place": (change(relayed(3), 0, 2, target=Piece(1)), "CD323", "has for rank"),
    "no such place": (change(relayed(3), 0, 0, target=Piece(6)), "CD340", "there are 6"),
    "two additions at once": (
        route("reduce_scatter", 3, lambda r: [((0,), "send", d, d, {"adding": True}) for d in range(3) if d != r]),
        "CD325", "at once"),
    "a circle of lanes": (
        Route("r", "all_gather", (3,), tuple(s[::-1] for s in ring(3).steps)), "CD303",
        "waits for itself"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_fault_is_found_and_named(name):
    broken, code, text = BROKEN[name]
    found = trace(broken).breaches
    assert code in [b.code for b in found], [b.message for b in found]
    assert any(text in f"{b.message}\n{b.counterexample}" for b in found if b.code == code), [b.message for b in found]


def test_a_breach_shows_both_ends():
    broken = change(ring(4), 1, 1, when=(0,), line=7, named=(("i", 1),))
    (first, *_) = trace(broken).breaches
    assert first.line == 7 and first.other_line == 1
    assert "rank 1 at i = 1 (line 7) sends shard 0 to rank 2" in first.counterexample
    assert "rank 0 (line 1) sends shard 0 to rank 1" in first.counterexample
