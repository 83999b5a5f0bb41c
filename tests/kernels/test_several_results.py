"""Kernels with several results: fused on simulated ranks, against the untouched kernel, the whole one and the plan."""

import pytest
from evidence_table import compiled
from kernel_specs import HEAD, KERNELS, ROOT, checked
from several_specs import REFUSED, SPECS
from test_fused_kernels import failures

EXCHANGED = "mean_ptr=k_mean_ptr", "mean_ptr=k_rstd_ptr"


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", ["used by later statements", "norm", "attention"])
def test_all_results_are_those_of_the_kernel(name, tmp_path):
    assert failures(SPECS[name], tmp_path, 2) == []


def test_results_that_are_exchanged_are_caught(tmp_path):
    assert failures(SPECS["norm"], tmp_path, 2, EXCHANGED, (53,))


def test_both_stores_compile():
    assert compiled(checked(SPECS["a product and its activation"]), "sm_90") == []


@pytest.mark.parametrize("what", REFUSED)
def test_results_that_do_not_fit(what):
    found = checked(REFUSED[what]).report.diagnostics
    assert len(found) == 1 and what in found[0].message


def test_a_result_that_has_a_name_is_not_computed_again():
    text = HEAD + KERNELS["matmul_2d"] + "op f_op(a, v) -> y { h = f(a, v) y = reduce_scatter(h, M) }"
    made = checked(text)
    assert [bool(n.body) for n in made.schedule.ops[0].launches] == [True, False, False]
