"""Kernels whose loops over gathered rows stand one behind the other: each waits for what it reads; mutants."""

import pytest
from evidence_table import body_of, compiled
from kernel_specs import ROOT, checked
from loop_specs import PASSES
from test_fused_kernels import failures

FOUND = {
    "attend_in_passes": [(1, 16, ("k_ptr",)), (16, 16, ("k_ptr", "v_ptr"))],
    "attend_pooled": [(1, 16, ("k_ptr",)), (1, 32, ("v_ptr",))],
}
ROWS = (29, 1)  # of a shard, in two calls: two chunks of 24, one
SECOND = "arrivals[1]"
ALL = "((f_op_c_gathered_arrived, f_op_e_gathered_arrived,), epoch, (0, 2,)"
WAITING = (
    f"range(0, turns_of({SECOND})):  # chunk: as its rows arrive\n"
    f"      chunk_from, chunk_to = await_turn(chunk_turn, 0, tl.cdiv(T, BN), 1, {SECOND})"
)
MUTANTS = {
    "the second loop waits for keys alone": (ALL, "((f_op_c_gathered_arrived,), epoch, (0,)"),
    "no wait in the second loop": (WAITING, "range(0, 1):\n      chunk_from, chunk_to = 0, tl.cdiv(T, BN)"),
}


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", FOUND)
def test_each_loop_is_understood_and_waits_after_the_one_before(name, tmp_path):
    body = body_of(PASSES[name])[1].body
    assert [(t.lead, t.each, t.parameters) for t in body.turns] == FOUND[name]
    calls = ROWS if name == "attend_in_passes" else ROWS[:1]
    assert failures(PASSES[name], tmp_path, 2, dims=calls) == []


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name, tmp_path):
    assert failures(PASSES["attend_in_passes"], tmp_path, 2, MUTANTS[name], ROWS[:1])


def test_both_loops_compile():
    assert compiled(checked(PASSES["attend_in_passes"]), "sm_90") == []
