"""Routes of two tiers keep their contracts, cross the outer axis once for each node, and broken ones are refused."""

import cProfile
import itertools
import pstats
from dataclasses import replace

import pytest

from chunkdsl.plan.hierarchical import TIERS, hierarchical
from chunkdsl.plan.steps import Piece
from chunkdsl.plan.trace import trace

SIZES = [(1, 1), (1, 3), (3, 1), (2, 2), (2, 3), (4, 2)]
CONTRACTS = ("all_gather", "reduce_scatter", "all_reduce")


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("tiers", list(itertools.product(TIERS, TIERS)), ids="-".join)
def test_every_route_keeps_its_contract(contract, tiers):
    for sizes in SIZES:
        made = hierarchical(contract, sizes, *tiers)
        assert made.axes == sizes and made.world == sizes[0] * sizes[1]
        assert [b.message for b in trace(made).breaches] == []


def crossings(route):
    """(shard, node it comes to) of every transfer between nodes."""
    gpus = route.axes[1]
    steps = [(rank // gpus, s.peer // gpus, s.source.shard) for rank, mine in enumerate(route.steps) for s in mine]
    return [(shard, to) for of, to, shard in steps if of != to]


@pytest.mark.parametrize("tiers", list(itertools.product(TIERS, TIERS)), ids="-".join)
def test_a_shard_crosses_the_outer_axis_once_for_each_other_node(tiers):
    nodes, gpus = 3, 4
    found = crossings(hierarchical("all_gather", (nodes, gpus), *tiers))
    assert sorted(found) == [(s, n) for s in range(nodes * gpus) for n in range(nodes) if n != s // gpus]
    sums = crossings(hierarchical("reduce_scatter", (nodes, gpus), *tiers))
    assert len(sums) == len(found)  # its mirror: each node sends one sum of every shard of the others


@pytest.mark.parametrize("tiers", list(itertools.product(TIERS, TIERS)), ids="-".join)
def test_between_nodes_peers_have_the_same_inner_index(tiers):
    for contract in CONTRACTS:
        route = hierarchical(contract, (3, 2), *tiers)
        for rank, mine in enumerate(route.steps):
            assert all(s.peer % 2 == rank % 2 or s.peer // 2 == rank // 2 for s in mine)


def test_a_gather_forwards_a_shard_before_the_next_one_comes():
    made = trace(hierarchical("all_gather", (4, 2), "ring", "direct"))
    level = {(f.reader, f.target): f.level for f in made.order}
    forwarded = [f for f in made.flows[0] if f.reader == 1 and f.target == 6]  # what came from node 3 first
    assert [f.level for f in forwarded] == [level[0, 6] + 1]
    assert forwarded[0].level < level[0, 2]  # the last shard comes later


def test_sixty_four_ranks_are_proven_in_work_that_grows_with_their_steps():
    """A second or two; what is counted is calls, as a clock tells more of the machine."""

    def calls_per_step(route):
        profile = cProfile.Profile()
        assert profile.runcall(trace, route).breaches == ()
        return pstats.Stats(profile).total_calls / sum(map(len, route.steps))

    small, large = (calls_per_step(hierarchical("all_gather", w, "swizzle", "direct")) for w in ((4, 4), (8, 8)))
    assert large < 1.5 * small, (small, large)


@pytest.mark.parametrize("tiers", list(itertools.product(TIERS, TIERS)), ids="-".join)
def test_a_woven_gather_keeps_its_contract_and_crosses_once(tiers):
    for sizes, parts in ((s, p) for s in SIZES for p in (2, 5)):
        made = hierarchical("all_gather", sizes, *tiers, parts=parts)
        assert trace(made).breaches == () and trace(made).parts == (parts if made.world > 1 else 1)
        assert sorted(crossings(made)) == sorted(crossings(hierarchical("all_gather", sizes, *tiers)) * parts)


@pytest.mark.parametrize("nodes", [2, 3])
def test_programs_meet_both_tiers_by_turns(nodes):
    """In the order in which a rank's programs take transfers up, the steps of the inner tier stand evenly between
    those of the outer one."""
    gpus = 4
    flows = trace(hierarchical("all_gather", (nodes, gpus), "swizzle", "swizzle", parts=8)).flows[0]
    taken_up = "".join("o" if f.reader // gpus else "i" for f in flows)
    between = [len(run) for run in taken_up.split("o")[1:-1]]
    even = nodes * (gpus - 1) / (nodes - 1)
    assert all(abs(n - even) < 2 for n in between), between


def test_what_comes_over_the_outer_link_is_not_handed_on_before_it_comes():
    flows = trace(hierarchical("all_gather", (2, 4), "swizzle", "swizzle", parts=8)).order
    at = {(f.reader, f.target, f.part): i for i, f in enumerate(flows)}
    assert all(at[f.holder, f.source, f.part] < i for i, f in enumerate(flows) if f.base)


def test_sums_are_not_woven():
    for contract in CONTRACTS[1:]:
        with pytest.raises(ValueError, match="is not woven"):
            hierarchical(contract, (2, 2), "ring", "ring", parts=2)


def mutate(route, change):
    """The route with one step changed, for every step that `change` changes."""
    for rank, mine in enumerate(route.steps):
        for i, step in enumerate(mine):
            for new in change(rank, step, route):
                steps = (*mine[:i], *new, *mine[i + 1 :])
                yield replace(route, steps=(*route.steps[:rank], steps, *route.steps[rank + 1 :]))


def left_out(rank, step, route):
    yield ()


def wrong_peer(rank, step, route):
    other = (step.peer + 1) % route.world
    if other != rank:
        yield (replace(step, peer=other),)


def wrong_place(rank, step, route):
    yield (replace(step, target=Piece((step.target.shard + 1) % route.world)),)


def twice(rank, step, route):
    yield (step, replace(step, when=(*step.when, 1)))


BROKEN = [("all_gather", change) for change in (left_out, wrong_peer, wrong_place, twice)]
BROKEN += [(contract, change) for contract in CONTRACTS[1:] for change in (left_out, wrong_place)]


@pytest.mark.parametrize(("contract", "change"), BROKEN, ids=lambda x: getattr(x, "__name__", x))
def test_a_route_with_one_wrong_step_breaks_its_contract(contract, change):
    """Sums may take other ways and still be whole, so of them not every wrong peer is a breach."""
    broken = list(mutate(hierarchical(contract, (2, 2), "swizzle", "direct"), change))
    assert len(broken) >= 4
    assert all(trace(b).breaches for b in broken)


def test_a_route_with_its_axes_swapped_breaks_nothing_but_the_tiers():
    """Which rank is on which node is not in the contract: the crossings tell."""
    swapped = replace(hierarchical("all_gather", (2, 4), "swizzle", "direct"), axes=(4, 2))
    assert trace(swapped).breaches == ()
    assert len(crossings(swapped)) != len(crossings(hierarchical("all_gather", (4, 2), "swizzle", "direct")))


def test_a_tier_that_nobody_knows_is_a_mistake_of_the_caller():
    with pytest.raises(ValueError, match="a tier is one of direct, swizzle, ring"):
        hierarchical("all_gather", (2, 2), "ring", "sling")
