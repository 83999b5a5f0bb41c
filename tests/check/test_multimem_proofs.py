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
TEXT += "op f(p) -> y { y = all_reduce(p) with { via = multimem, algorithm = one_shot } }\n"
RESIDUAL = "tensor r : bf16[T, 4096]\ntensor g : bf16[4096]\nop f(p, r inout, g) -> y {\n    r = r + all_reduce(p)"
RESIDUAL += " with { via = multimem, algorithm = one_shot }\n    y = g + r\n}\n"
AFTER = {"sum": TEXT, "residual": TEXT.split("op")[0] + RESIDUAL}
AFTER["norm"] = AFTER["residual"].replace("g + r", "rms_norm(r, g)")


@pytest.fixture(params=["one_shot", "two_shot"])
def algorithm(request):
    return request.param


def made(algorithm="one_shot", after="sum"):
    checked = check_source(Source("switch.chunk", AFTER[after].replace("one_shot", algorithm)))
    assert [d.code for d in checked.report.diagnostics] == ["CD644"]
    return checked.schedule, checked.schedule.ops[0]


def plan_of(schedule, op, world=2):
    return unroll(schedule, op, world, [{"T": 5}, {"T": 1}, {"T": 64}], {"T": 64})


@pytest.mark.parametrize("world", [1, 2, 5])
def test_it_is_proven(world, algorithm):
    assert prove_op(*made(algorithm), world).proven


@pytest.mark.parametrize("after, world", [("residual", 2), ("norm", 5)])
def test_it_is_proven_with_what_follows_the_sum(after, world, algorithm):
    assert prove_op(*made(algorithm, after), world).proven


@pytest.mark.parametrize("after", ["residual", "norm"])
def test_what_follows_the_sum_waits_for_all_of_it(after, algorithm):
    """Without the last wait the results hold what the switch, or another rank, may not have stored yet."""
    plan = plan_of(*made(algorithm, after), world=3)
    index = next(i for i, t in reversed(list(enumerate(plan.tasks))) if t.kind == "reduce" and t.waits)
    tasks = (*plan.tasks[:index], replace(plan.tasks[index], waits=()), *plan.tasks[index + 1 :])
    assert list(prove(plan, programs=1)) == []
    assert "CD302" in {r.code for r in prove(replace(plan, tasks=tasks), programs=1)}


def test_a_row_is_finished_after_its_own_piece_is_stored():
    plan = plan_of(*made("two_shot", "norm"))
    index = next(i for i, t in enumerate(plan.tasks) if "finishes its rows" in t.name)
    task = plan.tasks[index]
    (added,) = task.after
    begin = plan.tasks[added].after
    tasks = (*plan.tasks[:index], replace(task, after=begin), *plan.tasks[index + 1 :])
    assert [r.code for r in prove(replace(plan, tasks=tasks), programs=1)] != []


def test_one_round_with_one_buffer_and_no_barrier_is_refused():
    """In two rounds the second one says that all have read."""
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
def test_a_wait_or_an_addend_that_is_missing_is_found(missing, algorithm):
    plan = plan_of(*made(algorithm))
    index = next(i for i, t in enumerate(plan.tasks) if t.kind == "reduce")
    task = plan.tasks[index]
    change = {"waits": ()} if missing == "waits" else {"accesses": task.accesses[:1]}
    tasks = (*plan.tasks[:index], replace(task, **change), *plan.tasks[index + 1 :])
    found = {r.code for r in prove(replace(plan, tasks=tasks), programs=1)}
    assert list(prove(plan, programs=1)) == [] and ("CD302" if missing == "waits" else "CD307") in found


def test_a_rank_gives_two_buffers_of_one_payload():
    schedule, op = made()
    words = next(m for m in memory(schedule, op, 8, {}) if m.name == "words2")
    assert words.bytes == 2 * 64 * 4096 * 2


def test_in_two_rounds_each_sum_is_made_once_and_stored_at_all():
    plan = plan_of(*made("two_shot"), world=4)
    sums = [(t.rank, a.region.rank) for t in plan.tasks if t.kind == "reduce" and t.call == 2
            for a in t.accesses if a.act is Act.PUT and a.region.buffer == "words2"]  # fmt: skip
    assert set(sums) == {(rank, to) for rank in range(4) for to in range(4)}


def test_a_piece_that_is_taken_before_its_rank_has_stored_it_is_found():
    plan = plan_of(*made("two_shot"))
    index = next(i for i, t in enumerate(plan.tasks) if ": takes" in t.name or "takes words" in t.name)
    tasks = (*plan.tasks[:index], replace(plan.tasks[index], waits=()), *plan.tasks[index + 1 :])
    assert "CD302" in {r.code for r in prove(replace(plan, tasks=tasks), programs=1)}
