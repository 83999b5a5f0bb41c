"""Sums along plans as emitted: fetched addends, sums that are replaced, all-reduces that do not split into halves.

Calls are ragged, none, one row. Random ones are in tests/plan/test_simulated_routes.py, also at 8 ranks by hand.
"""

import pytest
from emitted import REDUCE, SCATTER, SMALL, built, failures, run

from chunkdsl.check.worlds import prove_op
from chunkdsl.pipeline import check_source
from chunkdsl.source import Source

CUT = SMALL.replace("chunk = 10 along M", "chunk = 4 per shard")
ROOTED = """    for r in range(1, tp) { for s in range(tp) { if rank == r { send t[s] to 0 adding } } }
    for r in range(1, tp) { for s in range(tp) { if rank == 0 { send t[s] to r } } }
"""
# Part h of shard s is added up on rank s + h: part 0 by a ring, part 1 straight.
APART = """    for i in range(1, tp) {
        send t[(rank - i) mod tp] part 0 of 2 to (rank + 1) mod tp adding
        send t[(rank + i - 1) mod tp] part 1 of 2 to (rank + i) mod tp adding
    }
    for i in range(1, tp) {
        send t[rank] part 0 of 2 to (rank + i) mod tp
        fetch t[(rank + i - 1) mod tp] part 1 of 2 from (rank + i) mod tp
    }
"""
EXCHANGE = "    for k in range(log2(tp)) { for s in range(tp) { send t[s] to xor(rank, pow2(k)) adding } }\n"
FETCHED = "    for i in range(tp - 1) { fetch t[(rank - i - 2) mod tp] from (rank - 1) mod tp adding }\n"
# Rank 1 adds, gives the sum back to rank 2, which adds its own shard's last addend and brings it to rank 0.
GIVEN_BACK = """    for s in range(tp) {
        let owner = s
        let near = (owner + 1) mod tp
        let far = (owner + 2) mod tp
        if rank == far { send t[s] to near adding }
        if rank == near { send t[s] to far }
        if rank == owner { fetch t[s] from far adding }
    }
"""
CASES = {
    "rooted": (REDUCE, "all_reduce", ROOTED, SMALL, 4, (37, 0, 1)),
    "parts apart": (REDUCE, "all_reduce", APART, CUT, 3, (37, 2)),
    "exchange": (REDUCE, "all_reduce", EXCHANGE, SMALL, 4, (19,)),
    "fetched": (SCATTER, "reduce_scatter", FETCHED, SMALL, 4, (37, 0)),
    "given back": (SCATTER, "reduce_scatter", GIVEN_BACK, SMALL, 3, (19, 1)),
}


def spec(head, contract, body, small, world):
    text = head.format(t="bf16", p=f"{small}place = own_sms(2), route = p").replace("tp[2]", f"tp[{world}]")
    return f"{text}plan p(t) : {contract} over tp {{\n{body}}}\n"


@pytest.mark.parametrize("name", CASES)
def test_every_rank_has_the_right_bits(name):
    *case, world, sizes = CASES[name]
    rows = run(spec(*case, world), world, sizes, seed=1)
    assert failures(rows) == []
    assert {r.check.split(" ")[0] for r in rows} >= {"simulation", "conformance", "y"}


@pytest.mark.parametrize("name", CASES)
def test_it_is_proven_where_the_contract_holds(name):
    *case, world, _ = CASES[name]
    _, schedule, module, title = built(spec(*case, world))
    assert prove_op(schedule, schedule.ops[0], world).proven and world in getattr(module, title).PROVEN


@pytest.mark.parametrize("name, launches, why", [
    ("rooted", 2, "rank 0 adds up shards 0, 1, 2, 3, and ranks 1, 2, 3 none"),
    ("parts apart", 2, "parts of shard 0 are added up on ranks 0 and 1"),
    ("exchange", 2, "shard 0 is added up on ranks 0, 1, 2, 3"),
])  # fmt: skip
def test_plan_says_why_sums_travel(name, launches, why):
    *case, world, _ = CASES[name]
    (op,) = built(spec(*case, world))[1].ops
    assert [c.why for c in op.choices if c.value == "whole sums travel"] == [f"no two halves: {why}"]
    assert len(op.launches) == launches


def test_addends_that_no_peer_fetches_stay_in_local_memory():
    kinds = {name: {b.name: b.kind for b in built(spec(*CASES[name][:5]))[1].ops[0].buffers} for name in CASES}
    assert {name: found["f_y_partials"] for name, found in kinds.items()} == {
        "rooted": "local", "parts apart": "symmetric", "exchange": "local", "fetched": "symmetric",
        "given back": "symmetric"}  # fmt: skip


def test_ranks_that_group_addends_differently_are_refused_with_both_groupings():
    body = "    for k in range(log2(tp)) { for s in range(tp) { fetch t[s] from (rank + pow2(k)) mod tp adding } }\n"
    (found,) = check_source(Source("p.chunk", spec(REDUCE, "all_reduce", body, SMALL, 4))).report.diagnostics
    assert found.code == "CD326" and "ranks 0 and 1 add up shard 0 in different orders" in found.message
    assert "rank 0: ((0 + 1) + (2 + 3))" in found.help and "rank 1: ((0 + 3) + (1 + 2))" in found.help
