"""Whatever `auto` becomes may be written down, and nothing else changes; and no value that was tried is better."""

from functools import cache

import pytest

from chunkdsl.cost.choose import choose
from chunkdsl.cost.constants import margin
from chunkdsl.cost.machines import machine_for
from chunkdsl.cost.predict import ending
from chunkdsl.cost.simulate import simulate
from chunkdsl.diagnostics import Report
from chunkdsl.ir.meshes import bindings, scope
from chunkdsl.lower.schedule import schedule_program
from chunkdsl.pipeline import check_source
from chunkdsl.plan.importers import dump_route
from chunkdsl.plan.unroll import unroll
from chunkdsl.source import Source

HEAD = """mesh tp[3] over nvlink
dim M = 1..3072
tensor x : bf16[M @ tp, 4096]
tensor w : bf16[1536 @ tp, 4096]
tensor a : bf16[M, 3072 @ tp]
tensor v : bf16[1024, 3072 @ tp]
dim D = 768
tensor o : bf16[M, D @ tp]
tensor u : bf16[512, D]
tensor s : bf16[M @ tp, 4096]
tensor q : bf16[D, 4096]
tensor p : bf16[M, 1024] sum tp
plan ring_(t) : all_gather over tp {
    for i in range(tp - 1) { send t[(rank - i) mod tp] to (rank + 1) mod tp }
}
plan halves(t) : all_gather over tp {
    for i in range(tp - 1) {
        let s = (rank - i) mod tp
        let z = (rank + i) mod tp
        send t[s] part 0 of 2 to (rank + 1) mod tp
        send t[z] part 1 of 2 to (rank - 1) mod tp
    }
}
plan sums(t) : reduce_scatter over tp {
    for i in range(tp - 1) { send t[(rank - i - 1) mod tp] to (rank + 1) mod tp adding }
}
plan both(t) : all_reduce over tp {
    for i in range(tp - 1) { send t[(rank - i - 1) mod tp] to (rank + 1) mod tp adding }
    for i in range(tp - 1) { send t[(rank - i) mod tp] to (rank + 1) mod tp }
}
"""
TWO = """mesh node[2] over rdma, gpu[2] over nvlink
dim M = 1..3072
tensor x : bf16[M @ (node, gpu), 1024]
tensor w : bf16[2048 @ (node, gpu), 1024]
"""
GATHER = HEAD + "op f(x, w) -> y { y = all_gather(x) @ w.T with { fuse_from = alwaysMORE } }\n"
SCATTER = HEAD + "op f(a, v) -> y { y = reduce_scatter(a @ v.T, M) with { fuse_from = alwaysMORE } }\n"
REDUCE = HEAD + "op f(a, v) -> y { y = all_reduce(a @ v.T) with { fuse_from = alwaysMORE } }\n"
TIERS = TWO + "op f(x, w) -> y { y = all_gather(x, over = (node, gpu)) @ w.T with { fuse_from = alwaysMORE } }\n"
FAMILIES = {
    "gather": (GATHER, ""),
    "gather by ring": (GATHER, ", route = ring"),
    "gather by tma": (GATHER, ", via = tma"),
    "gather, pushed": (GATHER, ", side = push, chunk = 3 MiB"),
    "gather along a parametric plan": (GATHER, ", route = ring_"),
    "gather along a table of parts": (GATHER, ", route = halves"),
    "gather along a plan file": (GATHER.replace("op f", 'use plan "r.json" as file : all_gather over tp\nop f'),
                                 ", route = file"),
    "gather by tiers": (TIERS, ", route = hierarchical(direct, ring)"),
    "gather over two axes": (TIERS, ""),
    "reduce_scatter": (SCATTER, ""),
    "reduce_scatter over a host link": (SCATTER.replace("nvlink", "pcie"), ""),
    "reduce_scatter by ring": (SCATTER, ", route = ring"),
    "reduce_scatter along a plan": (SCATTER, ", route = sums"),
    "all_reduce": (REDUCE, ""),
    "all_reduce along a plan": (REDUCE, ", route = both"),
    "all_to_all": (HEAD + "op f(o, u) -> y { y = all_to_all(o, D -> M) @ u.T with { fuse_from = alwaysMORE } }\n", ""),
    "all_to_all of a product": (
        HEAD + "op f(s, q) -> y { y = all_to_all(s @ q.T, M -> D) with { fuse_from = alwaysMORE } }\n", ""),
    "small all_reduce": (
        HEAD + "op f(p) -> y { y = all_reduce(p) with { fuse_from = alwaysMORE } }\n", ", validity = word"),
}  # fmt: skip
WRITTEN = ("route", "via", "place", "chunk", "buffers", "algorithm", "validity")  # without the gate, which comes last
STEPS = (  # what else a spec may say, tried or not, which then holds
    ("gather", "place = own_sms(auto)"),
    ("gather", "route = direct"),
    ("gather", "place = co_located"),
    ("reduce_scatter", "place = own_sms(12)"),
    ("reduce_scatter", "chunk = 2 MiB, buffers = 2"),
)


@pytest.fixture(scope="module", autouse=True)
def plan_file(tmp_path_factory):
    """A ring of three ranks as a plan file, where the specs of these tests are taken to lie."""
    folder = tmp_path_factory.mktemp("specs")
    parsed = check_source(Source("ring.chunk", GATHER.replace("MORE", "")))
    text = dump_route(parsed.program.plans["ring_"].trace(3).route)
    (folder / "r.json").write_text(text, encoding="utf-8")
    made.folder = folder
    return folder


@cache
def made(family, more=""):
    """(what the model found, by key; the settled op; its predicted time). None where the policy is refused."""
    text, policy = FAMILIES[family]
    checked = check_source(Source(f"{made.folder}/f.chunk", text.replace("MORE", policy + more)))
    if checked.report.failed:
        return None
    found = choose(checked.program, checked.schedule)
    schedule = schedule_program(checked.program, Report(checked.report.source), found)
    (op,) = schedule.ops
    dims = {r.name: r.high for r in schedule.ranges} | bindings(schedule.mesh)
    plan = unroll(schedule, op, scope(schedule.mesh, op.over, schedule.world), [dims])
    us = ending(simulate(op, plan, machine_for(schedule, op, dims)))
    return {key: s for (_, key), s in found.items()}, op, us


def test_own_sms_auto_leaves_the_number_and_nothing_else_to_the_model():
    for family in ("gather", "reduce_scatter"):
        found, op, _ = made(family, ", place = own_sms(auto)")
        assert found["place"].shown.startswith("own_sms(") and found["place"].runner_up.startswith("own_sms(")
        assert found["place"].shown == taken(op)["place"]


def taken(op):
    return {c.key: c.value for c in op.choices}


def writable(found):
    """What was chosen, as a policy would say it."""
    return {k: s.shown for k, s in found.items() if k in WRITTEN and not s.shown.startswith("2, 3")}


def idempotent(family, more, keys):
    found, op, us = made(family, more)
    written = more + "".join(f", {key} = {value}" for key, value in writable(found).items() if key in keys)
    written = written.replace(", place = own_sms(auto)", "") if "place" in keys else written
    again = made(family, written)
    assert again is not None, written
    assert again[2] == pytest.approx(us), written
    left = {key: value for key, value in taken(op).items() if key not in keys}
    assert {key: value for key, value in taken(again[1]).items() if key in left} == left, written


@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_chosen_may_be_written_down_and_nothing_else_changes(family):
    found, _, _ = made(family)
    keys = writable(found)
    assert keys, "a collective of any route has keys that the model settles"
    for key in keys:
        idempotent(family, "", {key})
    idempotent(family, "", set(keys))


@pytest.mark.parametrize("family", [f for f in FAMILIES if "small" not in f])  # those count in the mean
def test_no_value_that_is_tried_is_clearly_better(family):
    """Every runner-up, written down: by less than every key that may be left as the rules have it must earn."""
    found, _, us = made(family)
    limit = (1 + margin("gain")) ** 4
    tried = 0
    for key, s in found.items():
        if key in WRITTEN and s.runner_up and not s.runner_up.startswith("2, 3"):
            other = made(family, f", {key} = {s.runner_up}")
            assert other is None or us <= other[2] * limit, (key, s.runner_up)
            tried += other is not None
    assert tried


@pytest.mark.parametrize(("family", "step"), STEPS)
def test_the_same_holds_of_what_a_spec_leaves_open(family, step):
    found, _, us = made(family, f", {step}")
    for key in writable(found):
        idempotent(family, f", {step}", {key})
    assert made(family)[2] <= us * (1 + margin("gain")) ** 4


def test_a_value_of_one_collective_that_is_written_down_changes_none_of_the_other():
    text = HEAD + """op f(x, w, z) -> y {
    h = gelu(all_gather(x) @ w.T)     with { fuse_from = alwaysONE }
    y = reduce_scatter(h @ z.T, M)    with { fuse_from = alwaysTWO }
}
"""
    text = text.replace("dim D", "tensor z : bf16[1024, 1536 @ tp]\ndim D")

    def settled(one, two):
        checked = check_source(Source("f.chunk", text.replace("ONE", one).replace("TWO", two)))
        return {(v.kind, key): s for (v, key), s in choose(checked.program, checked.schedule).items()}

    free = settled("", "")
    assert len({kind for kind, _ in free}) == 2
    for kind, key in [*free]:
        written = f", {key} = {free[kind, key].shown}"
        again = settled(*((written, "") if kind == "all_gather" else ("", written)))
        other = {k: (s.shown, s.runner_up) for k, s in free.items() if k[0] != kind}
        assert {k: (s.shown, s.runner_up) for k, s in again.items() if k[0] != kind} == other
        assert all(again[k].shown == s.shown for k, s in free.items() if k in again)
