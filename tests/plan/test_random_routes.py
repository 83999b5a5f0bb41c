"""Random routes: contract, executor and proof agree on those that are right, and none that is wrong slips through."""

from dataclasses import replace
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_routes import (
    FAULTS,
    doubling_route,
    exchange_route,
    keeps_contract,
    path_route,
    plant,
    ring_route,
    tree_route,
)
from simulated_routes import HEAD, PRODUCT, SPECS, WHOLE, along, contract_of

from chunkdsl.check.prove import prove
from chunkdsl.check.worlds import route_breaches
from chunkdsl.pipeline import check_source
from chunkdsl.plan.trace import trace
from chunkdsl.plan.unroll import unroll
from chunkdsl.source import Source


def proof(route, spec=""):
    """What the proof of the explicit plan says of two calls, a full one and a small one."""
    made, op = along(route, spec)
    return prove(unroll(made, op, route.world, [{"M": 61}, {"M": 2}, {"M": 61}]), programs=1)


MAKERS = {"tree": (tree_route, (2, 3, 4, 5)), "ring": (ring_route, (2, 3, 5)), "doubling": (doubling_route, (2, 4, 8)),
          "paths": (path_route, (2, 3, 4, 5)), "exchange": (exchange_route, (2, 4, 8))}  # fmt: skip


def kinds(spec):
    if spec == WHOLE:
        return ["exchange"]
    return ["paths"] if contract_of(spec) == "all_to_all" else ["tree", "ring", "doubling"]


def build(data, kind, contract):
    make, worlds = MAKERS[kind]

    def draw(low, high):
        return data.draw(st.integers(low, high))

    return draw, make(draw, contract, data.draw(st.sampled_from(worlds)))


@pytest.mark.parametrize("kind, spec", [(kind, spec) for spec in SPECS for kind in kinds(spec)])
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_a_route_that_is_right_is_proven(kind, spec, data):
    _, route = build(data, kind, contract_of(spec))
    assert keeps_contract(route)
    assert trace(route).breaches == ()
    _, op = along(route, spec)
    assert route_breaches(op, route.world) == []
    assert proof(route, spec) == []


@pytest.mark.parametrize("contract", [spec for spec in SPECS if spec != PRODUCT])
@pytest.mark.parametrize("fault", FAULTS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_route_that_is_wrong_is_refused(fault, contract, data):
    draw, route = build(data, data.draw(st.sampled_from(kinds(contract))), contract_of(contract))
    broken = plant(draw, route, fault)
    refused = trace(broken).breaches
    assert refused or keeps_contract(broken), "the contract is broken, and nothing said so"
    _, op = along(broken)
    if not refused and not route_breaches(op, broken.world):
        assert proof(broken) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_faults(fault):
    """Each kind of fault breaks a ring: the test above is not about harmless changes."""
    numbers = cycle([0, 1, 2])
    route = ring_route(lambda low, high: high, "all_gather", 4)
    broken = plant(lambda low, high: min(high, next(numbers)), route, fault)
    assert broken != route and trace(broken).breaches


def test_what_the_contract_does_not_see_the_proof_does():
    """A transfer that does not wait for what it forwards: the explicit plan has a race."""
    route = ring_route(lambda low, high: high, "all_gather", 4)
    made, op = along(route)
    plan = unroll(made, op, 4, [{"M": 61}])
    hasty = [replace(t, waits=()) if t.kind == "move" else t for t in plan.tasks]
    assert {r.code for r in prove(replace(plan, tasks=tuple(hasty)))} & {"CD302", "CD305"}


def test_two_tiers_of_64_ranks_are_proven():
    """8 nodes of 8: contract, and the explicit plan of a call."""
    text = HEAD.format(world=64).replace("1..64", "1..1024") + """tensor x : bf16[M @ tp, 64]
tensor w : bf16[64, 1024 @ tp]
plan p(t) : all_gather over tp {
    let place = rank mod 8
    for n in range(1, 8) { send t[rank] to (rank + n * 8) mod tp }
    lane 1 { for i in range(1, 8) { for n in range(8) {
        fetch t[n * 8 + (place + i) mod 8] from rank - place + (place + i) mod 8
    } } }
}
op f(x, w) -> y { y = all_gather(x) @ w with { route = p, tile = 16x16x16, chunk = 1 per shard, place = own_sms(1) } }
"""
    checked = check_source(Source("r.chunk", text))
    assert checked.report.diagnostics == ()
    (op,) = checked.schedule.ops
    assert sum(len(op.launches[0].moves[0].routing.flows(r, 64)) for r in range(64)) == 64 * 63
    assert prove(unroll(checked.schedule, op, 64, [{"M": 1024}]), programs=1) == []
