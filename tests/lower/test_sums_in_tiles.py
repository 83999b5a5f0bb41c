"""`add = in_tiles`: whose tiles add up and what they wait for, what is proven, what is refused, what `plan` says."""

from dataclasses import replace
from pathlib import Path

import pytest

from chunkdsl.check.prove import prove
from chunkdsl.check.worlds import prove_worlds
from chunkdsl.pipeline import check_source
from chunkdsl.plan.plan import Act
from chunkdsl.plan.summary import summarise
from chunkdsl.plan.unroll import unroll
from chunkdsl.plan.within import sum_within
from chunkdsl.report.plan_text import render
from chunkdsl.source import Source

ADD = "add = in_tiles"
KERNEL = Path(__file__).resolve().parents[2] / "specs" / "kernels" / "matmul.py"
SPEC = f"""mesh tp[4] over nvlink
dim M = 0..300
dim H = 64
dim K = 128
tensor x : bf16[M, K @ tp]
tensor w : bf16[H, K @ tp]
tensor s : bf16[M @ tp, K]
tensor u : bf16[M @ tp, H]
tensor g : bf16[H]
tensor p : bf16[M, H] sum tp
kernel mm(A, B) -> C = "{KERNEL}" : matmul_kernel {{
    A = a_ptr : [m, k]
    B = b_ptr : [k, n]
    C = c_ptr : [m, n] sum k
    arg stride_am = A.stride(0)
    arg stride_ak = A.stride(1)
    arg stride_bk = B.stride(0)
    arg stride_bn = B.stride(1)
    arg stride_cm = C.stride(0)
    arg stride_cn = C.stride(1)
    grid = cdiv(m, BM) * cdiv(n, BN)
    const BM = 32, BN = 32, BK = 32, GROUP = 8, num_warps = 4, num_stages = 2
}}
tensor v : bf16[K @ tp, H]
plan hops(t) : reduce_scatter over tp {{
    for i in range(tp - 1) {{ send t[(rank - i - 1) mod tp] to (rank + 1) mod tp adding }}
}}
op f(x, w) -> y {{ y = reduce_scatter(x @ w.T, M) with {{ tile = 16x16x16, chunk = 32 along M, {ADD} }} }}
"""
SCATTER, REDUCE = "reduce_scatter(x @ w.T, M)", "all_reduce(x @ w.T)"


def checked(*changes):
    """(schedule, what is wrong) of the spec with these changes."""
    text = SPEC
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    made = check_source(Source("t.chunk", text))
    return made.schedule, made.report.diagnostics


def test_tiles_of_the_own_shard_come_last_and_wait_for_the_addends_of_the_others():
    schedule, found = checked()
    assert not found
    product, total = schedule.ops[0].launches
    assert total.within == product.name and product.within is None
    made = unroll(schedule, schedule.ops[0], 4, [{"M": 4 * 40}], {"M": 300})
    assert not [t for t in made.tasks if t.kind == "reduce"], "no launch adds up"
    tiles = [t for t in made.tasks if t.kind == "tile" and t.rank == 1]
    others, own = [t for t in tiles if t.signals], [t for t in tiles if not t.signals]
    assert tiles == others + own and not any(t.waits for t in others)
    for t in own:
        heard = [made.signals[i] for i in t.waits]
        assert {s.signaller for s in heard} == {0, 2, 3} and all(s.owner == 1 for s in heard)
        kinds = [a.act for a in t.accesses if a.act in (Act.PUT, Act.ADD)]
        assert kinds == [Act.PUT, Act.ADD, Act.ADD, Act.ADD], "its own addend comes from no buffer"


@pytest.mark.parametrize("total", [SCATTER, f"{SCATTER} + u", REDUCE, f"relu({REDUCE} * 2)"])
@pytest.mark.parametrize("more", ["route = direct, buffers = 1", "via = tma, buffers = 2", "wire = f32, buffers = 3"])
def test_it_is_proven(total, more):
    given = "f(x, w, u)" if total.endswith("u") else "f(x, w)"
    schedule, found = checked((SCATTER, total), ("f(x, w)", given), (ADD, f"{ADD}, {more}"))
    assert not found and schedule.ops[0].launches[1].within
    for verdict in prove_worlds(schedule, (1, 2, 4, 8)):
        assert verdict.proven, verdict


def test_a_product_has_the_sum_that_names_it_wherever_that_lies():
    (op,) = checked()[0].ops
    product, total = op.launches
    other = replace(product, name="f_other")
    apart = replace(op, launches=(product, other, total))
    assert [sum_within(apart, n) for n in apart.launches] == [total, None, None]


def test_it_is_proven_over_two_axes():
    axes = (("tp[4]", "dp[2], tp[2]"), ("K @ tp", "K @ (dp, tp)"), ("w.T, M)", "w.T, M, over = (dp, tp))"))
    schedule, found = checked(*axes)
    assert not found and schedule.ops[0].nested
    for verdict in prove_worlds(schedule, ((2, 2), (1, 2), (2, 4))):
        assert verdict.proven, verdict


def refuted(change, sizes):
    """Codes of what the proof finds where `change` is made to each task of an op with two buffers and no closing
    barrier."""
    schedule, found = checked((ADD, f"{ADD}, buffers = 2"))
    assert not found and not schedule.ops[0].closing
    plan = unroll(schedule, schedule.ops[0], 4, [{"M": m} for m in sizes], {"M": 300})
    assert prove(plan) == []
    changed = replace(plan, tasks=tuple(change(plan, t) for t in plan.tasks))
    assert changed != plan
    return {r.code for r in prove(changed)}


def adds(plan, task):
    return task.kind == "tile" and bool(task.waits)


FAULTS = {
    "waits for nobody": ({"CD302"}, (160, 160), lambda p, t: replace(t, waits=()) if adds(p, t) else t),
    "waits for one rank too few": (
        {"CD302"}, (160, 160), lambda p, t: replace(t, waits=t.waits[:-1]) if adds(p, t) else t),
    # A rank that has no rows waits all the same: else it goes on, and fills a buffer that a call before last reads.
    "without rows it does not wait": (
        {"CD401"}, (300, 2, 300), lambda p, t: replace(t, waits=()) if adds(p, t) and not t.accesses else t),
    "adds an addend twice": ({"CD306"}, (160,), lambda p, t: replace(t, accesses=tuple(
        b for a in t.accesses for b in (a, *[a] * (a.act is Act.ADD)))) if adds(p, t) else t),
    "leaves its own addend out": ({"CD305"}, (160,), lambda p, t: replace(t, accesses=tuple(
        a for a in t.accesses if a.act is not Act.PUT)) if adds(p, t) else t),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_what_an_own_tile_leaves_out_is_found(fault):
    expected, sizes, change = FAULTS[fault]
    codes = refuted(change, sizes)
    assert codes == expected


PUSHED, WHOLE, LAST = "only tiles that are pushed to the shard's owner", "no product of emitted tiles", "come last"
REFUSED = {
    "a ring": (PUSHED, (ADD, f"{ADD}, route = ring")),
    "a co-located ring": (PUSHED, (ADD, f"{ADD}, route = ring, place = co_located")),
    "programs": (PUSHED, (ADD, f"{ADD}, place = own_sms(2)")),
    "fetched": (PUSHED, (ADD, f"{ADD}, side = pull")),
    "along a plan": (PUSHED, (ADD, f"{ADD}, route = hops, place = own_sms(2)")),
    "to every rank": (PUSHED, (SCATTER, REDUCE), (ADD, f"{ADD}, algorithm = one_shot")),
    "the own shard first": (LAST, (ADD, f"{ADD}, order = local_first")),
    "chunk by chunk": (LAST, (ADD, f"{ADD}, order = interleaved")),
    "of what arrives": (
        "wait for what arrives", ("f(x, w)", "f(s, w)"),
        ("x @ w.T", "(all_to_all(s, M -> K) with { order = arrival }) @ w.T"),
    ),
    "by the library": (WHOLE, ("tile = 16x16x16", "compute = library")),
    "by a user's kernel": (WHOLE, ("f(x, w)", "f(x, v)"), ("x @ w.T", "mm(x, v)"), ("tile = 16x16x16, ", "")),
    "of a given tensor": (WHOLE, ("f(x, w)", "f(p)"), ("x @ w.T", "p"), ("tile = 16x16x16, ", "")),
    "of a weight gradient": (
        WHOLE, ("f(x, w)", "f(s, u)"), (SCATTER, "reduce_scatter(s.T @ u, K)"), ("32 along M", "1 per shard"),
    ),
    "of whole rows": ("needs whole rows", ("f(x, w)", "f(x, w, g)"), (SCATTER, f"rms_norm({SCATTER}, g)")),
    "into a zigzag": ("lie apart", (SCATTER, "reduce_scatter(x @ w.T, M @ zigzag(tp))")),
    "into blocks": ("lie apart", (SCATTER, "reduce_scatter(x @ w.T, M @ cyclic(tp, 16))")),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_it_cannot_be_is_refused_with_the_reason_and_added_up_behind(what):
    reason, *changes = REFUSED[what]
    (found,) = checked(*changes)[1]
    assert found.code == "CD601" and ADD in found.message and reason in f"{found.message} {found.help or ''}", found
    schedule, found = checked(*changes, (ADD, "add = behind"))
    assert not found and not any(n.within for n in schedule.ops[0].launches)


def test_it_is_the_choice_of_the_spec_and_said_where_it_is_open():
    (choice,) = (c for c in checked((f", {ADD}", ""))[0].ops[0].choices if c.key == "add")
    assert choice.value == "behind" and choice.why
    open_nowhere = checked((f", {ADD}", ", side = pull"))[0].ops[0].choices
    assert not [c for c in open_nowhere if c.key == "add"], "where there is one way nothing is chosen"
    assert not [c for c in checked()[0].ops[0].choices if c.key == "add"]


def test_a_plan_says_that_own_tiles_add_up():
    schedule, _ = checked((SCATTER, REDUCE))
    op = schedule.ops[0]
    sizes = {"M": 300}
    plan = unroll(schedule, op, 4, [sizes], sizes)
    text = render(schedule, [(op, summarise(schedule, op, plan, 0, sizes, sizes))], {})
    assert "y = all_reduce(x @ w.T)   [own tiles wait for f_y_arrived and add up]" in text
    assert "f_y_sum" not in text and "f_y_out" in text
