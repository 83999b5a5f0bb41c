"""What the proof says of small all-reduces in the switch: two buffers and flags are what allows them."""

from dataclasses import replace

import pytest

from chunkdsl.check.prove import prove
from chunkdsl.check.worlds import prove_op
from chunkdsl.pipeline import check_source
from chunkdsl.plan.footprint import memory
from chunkdsl.plan.plan import Act
from chunkdsl.plan.unroll import unroll
from chunkdsl.source import Source

TEXT = "mesh tp[4]\ndim T = 0..64\ntensor p : bf16[T, 4096] sum tp\n"
TEXT += "op f(p) -> y { y = all_reduce(p) with { via = multimem } }\n"


def made():
    checked = check_source(Source("switch.chunk", TEXT))
    assert [d.code for d in checked.report.diagnostics] == ["CD644"]
    return checked.schedule, checked.schedule.ops[0]


def plan_of(schedule, op, world=2):
    return unroll(schedule, op, world, [{"T": 5}, {"T": 1}, {"T": 64}], {"T": 64})


@pytest.mark.parametrize("world", [1, 2, 5])
def test_it_is_proven(world):
    assert prove_op(*made(), world).proven


def test_with_one_buffer_and_no_barrier_it_is_refused():
    schedule, op = made()
    (form,) = op.exchange.forms
    one = replace(op, exchange=replace(op.exchange, forms=(replace(form, slots=1),)))
    assert "CD401" in [r.code for r in prove_op(schedule, one, 3).refutations]


def test_payloads_stay_with_their_ranks_and_all_are_added():
    plan = plan_of(*made())
    staged = [(t, a) for t in plan.tasks for a in t.accesses if t.kind == "stage" and a.act is Act.PUT]
    assert staged and all(a.region.rank == t.rank for t, a in staged)
    added = {(t.rank, a.source.rank) for t in plan.tasks for a in t.accesses if a.act is Act.ADD}
    assert added == {(0, 1), (1, 0)}


@pytest.mark.parametrize("missing", ["waits", "addend"])
def test_a_wait_or_an_addend_that_is_missing_is_found(missing):
    plan = plan_of(*made())
    index = next(i for i, t in enumerate(plan.tasks) if t.kind == "reduce")
    task = plan.tasks[index]
    change = {"waits": ()} if missing == "waits" else {"accesses": task.accesses[:1]}
    tasks = (*plan.tasks[:index], replace(task, **change), *plan.tasks[index + 1 :])
    found = {r.code for r in prove(replace(plan, tasks=tasks), programs=1)}
    assert list(prove(plan, programs=1)) == [] and found == ({"CD302"} if missing == "waits" else {"CD307"})


def test_a_rank_gives_two_buffers_of_one_payload():
    schedule, op = made()
    words = next(m for m in memory(schedule, op, 8, {}) if m.name == "words2")
    assert words.bytes == 2 * 64 * 4096 * 2
