"""`auto` of every family of collectives: what is chosen is never predicted slower than its runner-up, on any rank."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkdsl.cost.choose import choose
from chunkdsl.cost.constants import margin
from chunkdsl.cost.machines import machine_for
from chunkdsl.cost.predict import ending
from chunkdsl.cost.simulate import simulate
from chunkdsl.ir.meshes import bindings, ranks_of, scope
from chunkdsl.pipeline import check_source, plan_checked, settle
from chunkdsl.plan.unroll import unroll
from chunkdsl.source import Source

ONE = """mesh tp[{world}] over nvlink
dim M = 1..{rows}
dim T = 1..{rows}
dim D = 1024
tensor x : bf16[M @ tp, 1024]
tensor o : bf16[M, D @ tp]
tensor w : bf16[2048 @ tp, 1024]
tensor v : bf16[1024, 2048 @ tp]
tensor u : bf16[512, D]
tensor h : bf16[M, 2048 @ tp]
tensor p : bf16[T, 1024] sum tp
tensor r : bf16[T, 1024]
"""
TWO = """mesh node[2] over rdma, gpu[{world}] over nvlink
dim M = 1..{rows}
tensor x : bf16[M @ (node, gpu), 1024]
tensor w : bf16[2048 @ (node, gpu), 1024]
tensor h : bf16[M @ node, 2048 @ gpu]
tensor v : bf16[1024, 2048 @ gpu]
"""
OPS = {
    "all_gather": ONE + "op f(x, w) -> y {{ y = all_gather(x) @ w.T }}",
    "reduce_scatter": ONE + "op f(h, v) -> y {{ y = reduce_scatter(h @ v.T, M) }}",
    "all_reduce": ONE + "op f(h, v) -> y {{ y = all_reduce(h @ v.T) }}",
    "all_to_all": ONE + "op f(o, u) -> y {{ y = all_to_all(o, D -> M) @ u.T }}",
    "small all_reduce": ONE + "op f(p) -> y {{ y = all_reduce(p) with {{ validity = word }} }}",
    "small all_reduce, any validity": ONE + "op f(p, r inout) -> y {{ r = r + all_reduce(p)   y = relu(r) }}",
    "two axes": TWO + "op f(x, w) -> y {{ y = all_gather(x, over = (node, gpu)) @ w.T }}",
    "one of two axes": TWO + "op f(h, v) -> y {{ y = reduce_scatter(h @ v.T, M, over = gpu) }}",
}
ARRIVING = {"route", "via", "chunk", "fuse_from"}  # and with programs also place and buffers
KEYS = {  # what is up for choice of each family, where the spec says nothing
    "all_gather": ARRIVING,
    "reduce_scatter": {"route", "place", "chunk", "buffers", "fuse_from"},
    "all_reduce": {"route", "place", "chunk", "buffers", "fuse_from"},
    "all_to_all": ARRIVING,
    "small all_reduce": {"algorithm", "buffers", "fuse_from"},
    "small all_reduce, any validity": {"validity", "buffers", "fuse_from"},
    "two axes": ARRIVING,
    "one of two axes": {"route", "place", "chunk", "buffers", "fuse_from"},
}


def checked_of(family, world, rows):
    checked = check_source(Source("family.chunk", OPS[family].format(world=world, rows=rows)))
    assert not checked.report.failed, [d.message for d in checked.report.diagnostics]
    return checked


def total(schedule, rows):
    op = schedule.ops[0]
    bound = {"M": rows, "T": rows} | bindings(schedule.mesh, schedule.world)
    world = scope(schedule.mesh, op.over, schedule.world)
    plan = unroll(schedule, op, world, [bound])
    return ending(simulate(op, plan, machine_for(schedule, op, bound)))


def keys_of(family, found, world):
    by_program = KEYS[family] is ARRIVING and found["via"].shown == "ldst"
    more = {"place", "buffers"} if by_program else set()
    if world == 2 and KEYS[family] == KEYS["reduce_scatter"]:  # forms.py
        more |= {"algorithm"} if family == "all_reduce" else {"add"}
        more |= {"add"} if "algorithm" in found and found["algorithm"].shown == "two_shot" else set()
    return KEYS[family] | more


@pytest.mark.parametrize("family", OPS)
@settings(max_examples=1, deadline=None)
@given(world=st.sampled_from([2, 4]), rows=st.sampled_from([64, 512, 1024]))
def test_what_is_chosen_is_never_predicted_slower_than_its_runner_up(family, world, rows):
    checked = checked_of(family, world, rows)
    found = {key: s for (_, key), s in choose(checked.program, checked.schedule).items()}
    assert set(found) <= keys_of(family, found, world)
    for key, s in found.items():
        assert s.margin >= 1 / (1 + margin("gain")) ** 4 - 1 or key == "fuse_from", (key, s)
    by_rule = checked.schedule
    settle(checked)
    assert not checked.report.failed
    if "small" not in family:  # there the mean over all payloads is what counts
        assert total(checked.schedule, rows) <= total(by_rule, rows) + 1e-3


@pytest.mark.parametrize("family", OPS)
def test_every_key_has_a_runner_up_and_every_rank_the_same_choice(family):
    checked = checked_of(family, 2, 512)
    found = {key: s for (_, key), s in choose(checked.program, checked.schedule).items()}
    assert set(found) == keys_of(family, found, 2)
    assert all(s.runner_up for key, s in found.items() if key != "fuse_from")
    seen = []
    for rank in (0, ranks_of(checked.schedule.world) - 1):
        again = checked_of(family, 2, 512)
        settle(again)
        (planned,) = plan_checked(again, rank=rank).ops
        seen.append((planned.op.choices, planned.op.gate, planned.op.slots))
    assert seen[0] == seen[1]


def test_gathers_over_two_axes_go_by_tiers_unless_copy_engines_shall_carry_them():
    free = checked_of("two axes", 4, 1024)
    text = OPS["two axes"].format(world=4, rows=1024).replace("@ w.T", "@ w.T with { via = copy_engine }")
    engines = check_source(Source("family.chunk", text))
    for checked, tiers in ((free, True), (engines, False)):
        routes = [s.shown for (_, key), s in choose(checked.program, checked.schedule).items() if key == "route"]
        assert routes[0].startswith("hierarchical(") == tiers


def test_reductions_keep_their_bits():
    """No ring and no tiers, which round or add otherwise; and of small ones two rounds only where nothing follows the
    sum."""
    for family in ("reduce_scatter", "all_reduce", "one of two axes", "small all_reduce, any validity"):
        checked = checked_of(family, 2, 512)
        found = {key: s for (_, key), s in choose(checked.program, checked.schedule).items()}
        assert "algorithm" not in found or family == "all_reduce"
        shown = [text for s in found.values() for text in (s.shown, s.runner_up)]
        assert not any(text.startswith(("ring", "hierarchical")) for text in shown)
