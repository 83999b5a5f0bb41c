"""Plans whose steps travel in different ways: the table says which go by TMA, and the kernel does what it says.
And blocks of an all_to_all over another rank; onto rows they are in tests/plan/test_simulated_routes.py."""

import pytest
from emitted import GATHER, HEAD, SCATTER, SMALL, failures, run

import chunkdsl.verify.simulate as simulate
from chunkdsl.pipeline import check_source
from chunkdsl.sim.log import Write
from chunkdsl.source import Source

STEPS = """plan p(t) : {} over tp {{
    send t[{}] to (rank + 1) mod tp {} with {{ via = {} }}
    send t[{}] to (rank + 2) mod tp {}
}}
"""


def spec(way, world=3):
    head = GATHER.format(t="bf16", p=f"{SMALL}place = own_sms(1), route = p").replace("tp[2]", f"tp[{world}]")
    return head + STEPS.format("all_gather", "rank", "", way, "rank", "")

BLOCKS = HEAD.replace("tp[2]", "tp[3]") + """dim R = 41
tensor x : bf16[M @ tp, R]
plan p(t) : all_to_all over tp {{
    let next = (rank + 1) mod tp
    let before = (rank + 2) mod tp
    send t[before] to next into t[tp + rank]
    {1}
    send t[tp + before] to next into t[before]
}}
op f(x) -> y {{ y = all_to_all(x, M -> R) with {{ chunk = 10 along M, place = own_sms(2), route = p{0} }} }}
"""
STRAIGHT = "send t[next] to next into t[rank]"


def test_steps_by_tma_store_in_bulk_and_the_others_do_not(monkeypatch):
    logs, compare = [], simulate.compare
    monkeypatch.setattr(simulate, "compare", lambda log, *more: logs.append(log) or compare(log, *more))
    assert failures(run(spec("tma"), 3, (19,))) == []
    found = {
        (e.at.owner - t.origin.rank) % 3: e.bulk
        for t in logs[0].trails if t.origin.label == "f_y" for e in t.events
        if isinstance(e, Write) and e.at.buffer == "f_x_gathered" and e.at.owner != t.origin.rank
    }  # fmt: skip
    assert found == {1: True, 2: False}


def test_blocks_onto_columns_go_over_another_rank():
    assert failures(run(BLOCKS.format("", STRAIGHT), 3, (19,), seed=1)) == []


@pytest.mark.parametrize("text, what", [
    (BLOCKS.format(", via = tma", STRAIGHT), "via = tma"),
    (BLOCKS.format(", side = pull", STRAIGHT), "side = pull"),
    (BLOCKS.format(", place = co_located", STRAIGHT).replace("place = own_sms(2), ", ""), "place = co_located"),
    (SCATTER.format(t="bf16", p=f"{SMALL}place = own_sms(1), route = p").replace("tp[2]", "tp[3]")
     + STEPS.format("reduce_scatter", "(rank + 1) mod tp", "adding", "tma", "(rank + 2) mod tp", "adding"),
     "via = tma"),
])  # fmt: skip
def test_steps_that_cannot_travel_so_are_refused(text, what):
    found = check_source(Source("p.chunk", text)).report.diagnostics
    assert [d.code for d in found] == ["CD601"] and what in found[0].message
