"""docs/kernels.md is made of what was run, and a part of it is found again."""

import pytest
from evidence import FUSED, REFUSED
from evidence_table import LIBRARIES, PAGE, ROOT, TARGETS, WORLDS, body_of, facts, load, page, refusal

AGAIN = ("matrix product, grouped order", "two layers in one kernel, gathered and reduced",
         "log-sum-exp of a row, for cross entropy")  # fmt: skip
REFUSED_AGAIN = ("grouped matrix product, rows of a group from a table", "matrix product, parts of K by atomics",
                 "a row, and the scale of another: two results", "softmax of sharded columns")  # fmt: skip
KEPT = load()


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_the_page_is_made_of_what_was_kept():
    assert PAGE.read_text() == page(KEPT, load(LIBRARIES))
    assert list(KEPT["fused"]) == list(FUSED) and list(KEPT["refused"]) == list(REFUSED)


@pytest.mark.parametrize("name", FUSED)
def test_nothing_that_was_run_failed(name):
    row = KEPT["fused"][name]
    assert {k: row[k] for k in (*WORLDS, *TARGETS) if row.get(k)} == {}
    assert "2" in row and set(row["on"]) <= set(row)


@pytest.mark.parametrize("name", AGAIN)
def test_what_is_found_is_found_again(name):
    _, launch = body_of(FUSED[name])
    assert facts(launch).items() <= KEPT["fused"][name].items()


@pytest.mark.parametrize("name", REFUSED_AGAIN)
def test_what_is_refused_is_refused_again(name):
    assert refusal(REFUSED[name]) == KEPT["refused"][name]
