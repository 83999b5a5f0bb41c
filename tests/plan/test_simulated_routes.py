"""Random routes as emitted: proof, contract, simulator and plan agree, and no fault behind the proof passes silently.

More examples, by hand: CHUNKDSL_EXAMPLES=50 pytest -n 0 tests/plan/test_simulated_routes.py
"""

import os

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_routes import doubling_route, exchange_route, keeps_contract, path_route, ring_route, tree_route
from simulated_routes import (
    FAULTS,
    OF_BLOCKS,
    SPECS,
    WHOLE,
    along,
    contract_of,
    read_early,
    simulate,
    spoil,
    unrounded,
    wrong,
)

from chunkdsl.check.worlds import route_breaches
from chunkdsl.plan.trace import trace

EXAMPLES = int(os.environ.get("CHUNKDSL_EXAMPLES", "1"))
WORLDS = (2, 3, 4) if EXAMPLES > 1 else (2, 3)
MAKERS = {"tree": (tree_route, (2, 3, 4)), "ring": (ring_route, (2, 3, 4)), "doubling": (doubling_route, (2, 4))}



def maker(spec, kind):
    """What makes random routes for a spec, and for which world sizes: that of `kind` if it suits."""
    if spec == WHOLE:
        return exchange_route, (2, 4)
    return (path_route, (2, 3, 4)) if contract_of(spec) == "all_to_all" else MAKERS[kind]


def drawn(data, spec, kinds=tuple(MAKERS), worlds=WORLDS):
    """(draw, a random route that is right)."""

    def draw(low, high):
        return data.draw(st.integers(low, high))

    make, found = maker(spec, data.draw(st.sampled_from(kinds)))
    worlds = [w for w in found if w in worlds] or found[-1:]
    route = make(draw, contract_of(spec), data.draw(st.sampled_from(worlds)))
    assert route_breaches(along(route, spec)[1], route.world) == []
    return draw, route


@pytest.mark.parametrize("spec", SPECS)
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_contract_proof_and_simulator_agree_on_what_is_right(spec, data):
    draw, route = drawn(data, spec)
    assert keeps_contract(route) and trace(route).breaches == ()
    assert wrong(simulate(route, (2 * route.world + 1, 1), draw(0, 3), kind=spec)) == []


@pytest.mark.parametrize("fault", (*FAULTS, *OF_BLOCKS))
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_what_is_broken_behind_the_proof_fails_in_the_simulator(fault, data):
    adds = ("place", "first", "early", "final", "base", "kept")
    blocks = [s for s in SPECS if contract_of(s) == "all_to_all"]
    some = [s for s in SPECS if s not in blocks and (fault not in adds or s != "all_gather")]
    spec = data.draw(st.sampled_from(blocks if fault in OF_BLOCKS else some))
    passed_on = fault in ("first", "early")  # there is something to pass on from three ranks
    kinds, worlds = (("tree", "ring"), WORLDS[1:]) if passed_on else (tuple(MAKERS), WORLDS)
    draw, route = drawn(data, spec, kinds, worlds)
    broken = spoil(draw, route, fault, spec)
    assume(broken is not None)
    assert wrong(simulate(route, (4 * route.world - 1,), draw(0, 3), kind=spec, broken=broken)), "nothing said so"


@pytest.mark.parametrize("spec", SPECS)
def test_a_transfer_that_does_not_wait_for_what_it_passes_on_is_caught(spec):
    make, worlds = maker(spec, "ring")
    route = make(lambda low, high: high, contract_of(spec), 3 if 3 in worlds else 4)
    assert any("race" in line for line in wrong(simulate(route, (11,), kind=spec, edit=read_early)))


def test_a_sender_that_does_not_go_on_with_what_it_sent_has_other_bits():
    route = exchange_route(lambda low, high: high, "all_reduce", 4)
    assert any("bit by bit" in line for line in wrong(simulate(route, (11,), 1, edit=unrounded)))
