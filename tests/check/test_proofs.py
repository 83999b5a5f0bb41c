"""Verdicts become findings: errors where a size was asked for, notes elsewhere, one for all sizes that fail alike."""

from dataclasses import replace

import pytest

from chunkdsl import pipeline
from chunkdsl.check import worlds
from chunkdsl.check.explain import load_rules
from chunkdsl.check.proofs import explain_verdicts, proven_sizes, ranks
from chunkdsl.check.prove import Refutation
from chunkdsl.check.worlds import Verdict
from chunkdsl.diagnostics import Severity
from chunkdsl.report.text import render
from chunkdsl.source import Source

SPEC = load_rules()["CD606"].mended
RACE = Refutation("CD302", "a race", "rank 0 writes\nrank 1 reads", 5, "one end", 3, "the other end")


@pytest.fixture
def checked():
    return pipeline.check_source(Source("a.chunk", SPEC))


def explain(checked, verdicts, wanted=()):
    return list(explain_verdicts(verdicts, checked.schedule, checked.report.source, wanted))


def test_a_refutation_is_its_rule_on_its_line_with_the_counterexample(checked):
    (found,) = explain(checked, [Verdict("f", 2, (RACE,)), Verdict("f", 4, (RACE,))], {2, 4})
    assert (found.code, found.name, found.severity) == ("CD302", "unordered-accesses", Severity.ERROR)
    assert found.message == "a race (f on 2 and 4 ranks)" and "rank 0 writes\nrank 1 reads" in found.help
    checked.report.add(found)
    text = render([checked.report])
    assert "a.chunk:5:1: error: CD302" in text and "\n  = help: rank 0 writes\n      rank 1 reads\n" in text


def test_sizes_that_nobody_asked_for_are_notes(checked):
    found = explain(checked, [Verdict("f", 2, (RACE,)), Verdict("f", 3, (), "why"), Verdict("f", 4, (RACE,))], {4})
    assert [(d.code, d.severity.value) for d in found] == [("CD302", "note"), ("CD606", "note"), ("CD302", "error")]
    assert "on 2 ranks" in found[0].message and "on 3 ranks" in found[1].message and "on 4 ranks" in found[2].message


def test_what_is_proven_holds_for_every_op():
    verdicts = [Verdict("f", 1, ()), Verdict("f", 2, ()), Verdict("f", 3, (), "why"), Verdict("g", 1, (RACE,)),
                Verdict("g", 2, ()), Verdict("g", 3, ())]  # fmt: skip
    assert proven_sizes(verdicts) == (2,)
    assert proven_sizes([]) == ()


def test_a_list_of_sizes():
    assert (ranks([1]), ranks([2]), ranks([2, 3]), ranks([2, 3, 5])) == (
        "1 rank", "2 ranks", "2 and 3 ranks", "2, 3 and 5 ranks",
    )  # fmt: skip


def test_a_planted_fault_in_a_schedule_is_found_through_the_pipeline(monkeypatch):
    """Without its closing barrier a call with one buffer overwrites what others still read."""
    checked = pipeline.check_source(Source("a.chunk", SPEC.replace("M)", "M) with { buffers = 1 }")))
    assert checked.schedule.ops[0].closing
    ops = (replace(checked.schedule.ops[0], closing=False),)
    checked.schedule = replace(checked.schedule, ops=ops)
    pipeline.prove(checked, (2,))
    (found,) = checked.report.diagnostics
    assert found.code in ("CD302", "CD401") and found.severity is Severity.ERROR and checked.proven == ()


@pytest.mark.parametrize("which", ["fails", "mended"])
def test_the_example_of_the_rule_on_sizes(which):
    checked = pipeline.check_source(Source("a.chunk", getattr(load_rules()["CD606"], which)))
    assert not checked.report.diagnostics
    pipeline.prove(checked, (checked.schedule.world,))
    assert [d.code for d in checked.report.diagnostics] == (["CD606"] if which == "fails" else [])


def test_a_size_that_is_not_served_is_not_proven(monkeypatch):
    monkeypatch.setattr(worlds, "unroll", lambda *args: 1 // 0)
    checked = pipeline.check_source(Source("a.chunk", load_rules()["CD606"].fails))
    (verdict,) = worlds.prove_worlds(checked.schedule, [3])
    assert verdict.note and not verdict.proven and not verdict.refutations
