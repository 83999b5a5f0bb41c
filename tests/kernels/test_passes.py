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
def test_each_loop_is_understood(name):
    body = body_of(PASSES[name])[1].body
    assert [(t.lead, t.each, t.parameters) for t in body.turns] == FOUND[name]


@pytest.mark.parametrize("name", FOUND)
def test_its_loops_wait_one_after_the_other(name, tmp_path):
    assert failures(PASSES[name], tmp_path, 2, dims=(53, 1)) == []


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name, tmp_path):
    assert failures(PASSES["attend_in_passes"], tmp_path, 2, MUTANTS[name], (53,))


def test_both_loops_compile():
    assert compiled(checked(PASSES["attend_in_passes"]), "sm_90") == []
