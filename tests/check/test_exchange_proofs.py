"""What the proof says of small all-reduces: it is the unrolled plan that allows a form, or refuses it."""

from dataclasses import replace

import pytest

from chunkdsl.check.worlds import prove_op
from chunkdsl.pipeline import check_source
from chunkdsl.plan.plan import Act
from chunkdsl.plan.unroll import unroll
from chunkdsl.source import Source

HEAD = "mesh tp[4]\ndim T = 0..64\ntensor p : bf16[T, 4096] sum tp\n"
GUESS = "validity = speculative, assume = run_to_completion"


def made(policy):
    checked = check_source(Source("small.chunk", f"{HEAD}op f(p) -> y {{ y = all_reduce(p) with {{ {policy} }} }}\n"))
    assert not checked.report.diagnostics
    return checked.schedule, checked.schedule.ops[0]


def codes(schedule, op, world=3):
    return [r.code for r in prove_op(schedule, op, world).refutations]


@pytest.mark.parametrize("policy", [
    "validity = word", "validity = word, buffers = 1", "validity = word, buffers = 3", "validity = flag",
    "validity = flag, buffers = 1", GUESS, "algorithm = two_shot", "algorithm = two_shot, buffers = 1",
    "algorithm = two_shot, buffers = 3", "algorithm = two_shot, validity = flag",
])  # fmt: skip
def test_the_forms_are_proven(policy):
    for world in (1, 2, 5):
        assert codes(*made(policy), world) == []


def normed(policy="algorithm = two_shot"):
    text = f"{HEAD}tensor g : bf16[4096]\nop f(p, g) -> y {{ y = rms_norm(all_reduce(p), g) with {{ {policy} }} }}\n"
    checked = check_source(Source("small.chunk", text))
    assert not checked.report.diagnostics
    return checked.schedule, checked.schedule.ops[0]


def test_two_rounds_whose_rows_stay_whole_are_proven_and_a_fault_of_theirs_is_found():
    from chunkdsl.check.prove import prove

    schedule, op = normed()
    assert [codes(schedule, op, world) for world in (1, 2, 5)] == [[], [], []]
    plan = unroll(schedule, op, 3, [{"T": 2}])
    at = next(i for i, t in enumerate(plan.tasks) if "finishes its rows" in t.name)
    deaf = replace(plan.tasks[at], waits=plan.tasks[at].waits[1:])
    lost = replace(plan.tasks[at - 1], accesses=plan.tasks[at - 1].accesses[:1] + plan.tasks[at - 1].accesses[2:])
    for i, task, code in ((at, deaf, "CD302"), (at - 1, lost, "CD307")):
        faulty = replace(plan, tasks=(*plan.tasks[:i], task, *plan.tasks[i + 1 :]))
        assert code in {r.code for r in prove(faulty, programs=1)}


@pytest.mark.parametrize("validity", ["word", "flag"])
def test_without_the_closing_barrier_two_buffers_are_accepted_and_one_is_refused(validity):
    schedule, op = made(f"validity = {validity}, buffers = 1")
    assert op.closing and codes(schedule, replace(op, closing=False)) == ["CD401"]
    forms = made(f"validity = {validity}")[1].exchange.forms
    two = replace(op, closing=False, slots=2, exchange=replace(op.exchange, forms=forms))
    assert codes(schedule, two) == []


def test_words_with_an_empty_mark_need_three_buffers():
    schedule, op = made("buffers = 3")
    two = replace(op, exchange=replace(op.exchange, forms=tuple(replace(f, slots=2) for f in op.exchange.forms)))
    assert "CD401" in codes(schedule, two)


def test_speculation_without_its_assumption_is_a_race_of_the_plan_too():
    schedule, op = made(GUESS)
    assert codes(schedule, replace(op, exchange=replace(op.exchange, assume="")))[0] == "CD302"


def test_a_wait_or_an_addend_that_is_missing_is_found():
    from chunkdsl.check.prove import prove

    schedule, op = made("validity = word")
    plan = unroll(schedule, op, 3, [{"T": 1}])
    at = next(i for i, t in enumerate(plan.tasks) if t.waits)
    task = plan.tasks[at]
    deaf = replace(plan, tasks=(*plan.tasks[:at], replace(task, waits=task.waits[1:]), *plan.tasks[at + 1 :]))
    assert {r.code for r in prove(deaf, programs=1)} == {"CD302"}
    adds = [a for a in task.accesses if a.act is Act.ADD]
    fewer = replace(task, accesses=tuple(a for a in task.accesses if a is not adds[0]))
    lost = replace(plan, tasks=(*plan.tasks[:at], fewer, *plan.tasks[at + 1 :]))
    assert {r.code for r in prove(lost, programs=1)} == {"CD307"}


def test_a_call_without_rows_exchanges_nothing_and_the_next_one_takes_the_next_slot():
    schedule, op = made("validity = word")
    plan = unroll(schedule, op, 2, [{"T": 1}, {"T": 0}, {"T": 1}], {"T": 64})
    sends = [t for t in plan.tasks if t.signals]
    slots = {t.call: {a.region.slot for a in t.accesses if a.region.buffer == "words0"} for t in sends}
    assert slots == {0: {1}, 2: {0}}


def test_large_payloads_take_words_with_a_mark():
    schedule, op = made("validity = word")
    used = {a.region.buffer for t in unroll(schedule, op, 2, [{"T": 64}]).tasks for a in t.accesses}
    assert "words1" in used and "words0" not in used


def test_the_memory_that_plan_prints_is_what_a_module_allocates(tmp_path):
    import importlib.util

    from chunkdsl.plan.footprint import symmetric_bytes
    from chunkdsl.render.module import render_module

    forms = ("validity = word", "validity = flag, buffers = 1", "algorithm = two_shot", GUESS)
    for i, (schedule, op) in enumerate([*map(made, forms), normed()]):
        path = tmp_path / f"made_{i}.py"
        path.write_text(render_module(schedule, (2,)), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for tokens in (1, 64):
            allocated = module.Small.OPS["f"].symmetric_bytes({"T": tokens}, 5)
            assert symmetric_bytes(schedule, op, 5, {"T": tokens}) == allocated
