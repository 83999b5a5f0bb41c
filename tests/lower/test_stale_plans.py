"""Work on a plan is given up inside its loops. Looks are counted: nothing depends on a clock."""

from dataclasses import replace

import pytest

from chunkdsl.diagnostics import Report
from chunkdsl.editor.lint import Stale
from chunkdsl.editor.relint import lint
from chunkdsl.editor.structure import Clean
from chunkdsl.lower.program import lower
from chunkdsl.plan.trace import trace
from chunkdsl.source import Source
from chunkdsl.syntax.parse import parse

PLAN = "mesh tp[5]\nplan p(t) : all_gather over tp { for i in range(1, tp) { send t[rank] to (rank + i) mod tp } }\n"
SILENT = "mesh tp[%d]\nplan p(t) : %s over tp {\n    if rank == 9 { send t[rank] to 0 }\n}\n"
STEPS = 5 * 4


class Looks:
    """Counts how often it is asked, and ends the work at look `last`."""

    def __init__(self, last=10**9):
        self.count, self.last = 0, last

    def __call__(self):
        self.count += 1
        if self.count == self.last:
            raise Stale


def routing(watch):
    source = Source("p.chunk", PLAN)
    report = Report(source, watch)
    return lower(parse(source, report), source, report).plans["p"]


def test_carrying_out_and_following_ask_at_every_step():
    looks = Looks()
    made = routing(looks)
    assert looks.count >= 6 * STEPS, "a loop's turn and its step; then forms, parts, contents and levels"
    before = looks.count
    again = made.trace(5)
    assert looks.count == before, "what was followed is not followed again"
    alone = Looks()
    assert trace(again.route, alone).breaches == () and alone.count >= 4 * STEPS


@pytest.mark.parametrize("last", [1, STEPS, 3 * STEPS, 4 * STEPS, 5 * STEPS, 6 * STEPS])
def test_a_plan_gives_way_wherever_it_is(last):
    looks = Looks(last)
    with pytest.raises(Stale):
        lint("x.chunk", PLAN, None, looks, Clean())
    assert looks.count == last


def test_looking_for_what_is_missing_gives_way():
    route = routing(Looks()).trace(5).route
    broken, looks = replace(route, steps=((),) * 5), Looks()
    assert [b.code for b in trace(broken, looks).breaches] == ["CD323"]
    assert looks.count >= 5 * 5
    with pytest.raises(Stale):
        trace(broken, Looks(looks.count))


@pytest.mark.parametrize("contract", ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"])
def test_more_ranks_than_any_plan_can_serve_are_refused_before_anything_is_held(contract):
    looks = Looks()
    found = lint("x.chunk", SILENT % (100_000, contract), None, looks, Clean())
    assert [d.code for part in found.found for _, d in part] == ["CD343"]
    assert looks.count < 100
