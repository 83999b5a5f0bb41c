"""Which fallbacks are made of a collective and a product alone: everything else goes through `plain`."""

from dataclasses import replace
from pathlib import Path

import pytest

from chunkdsl.pipeline import check_source
from chunkdsl.plan.schedule import Instruction
from chunkdsl.render.straight import straight_steps
from chunkdsl.source import Source

HEAD = """mesh tp[2] over nvlink
dim M = 0..64
dim H = 32
dim F = 64
tensor x : bf16[M @ tp, H]
tensor w : bf16[F @ tp, H]
tensor u : bf16[F @ tp, H]
tensor wt : bf16[H, F @ tp]
tensor a : bf16[M, F @ tp]
tensor v : bf16[H, F @ tp]
tensor vt : bf16[F @ tp, H]
tensor p : bf16[M, H] sum tp
tensor g : bf16[H]
tensor w2 : bf16[1, F @ tp, H]
tensor z : bf16[M @ zigzag(tp), H]
tensor res : bf16[M, H]
"""
FOUND = {
    "f(x, w) -> y { y = all_gather(x) @ w.T": ("gather", "linear"),
    "f(x, wt) -> y { y = all_gather(x) @ wt": ("gather", "mm"),
    "f(a, v) -> y { y = reduce_scatter(a @ v.T, M)": ("linear", "scatter"),
    "f(a, vt) -> y { y = reduce_scatter(a @ vt, M)": ("mm", "scatter"),
    "f(a, v) -> y { y = all_reduce(a @ v.T)": ("linear", "total"),
    "f(p) -> y { y = all_reduce(p) with decode": ("total",),
    "f(p) -> y { y = all_reduce(p)": (),
    "f(x, w2) -> y { y = all_gather(x) @ w2[0].T": (),
    "f(z, w) -> y { y = all_gather(z) @ w.T": (),
    "f(w, x) -> y { y = all_gather(x) @ w.T": (),
    "f(v, a) -> y { y = all_reduce(a @ v.T)": (),
    "f(x, w) -> y { y = gelu(all_gather(x) @ w.T)": (),
    "f(x, w, u) -> y { y = (all_gather(x) @ w.T) * (all_gather(x) @ u.T)": (),
    "f(x, w) -> y { y = cast(all_gather(x) @ w.T, f32)": (),
    "f(a, v, g) -> y { y = reduce_scatter(a @ v.T, M) + g": (),
    "f(a, v, res) -> y { y = all_reduce(a @ v.T) + res": (),
    "f(a, v) -> y { y = 2 * all_reduce(a @ v.T)": (),
    "f(a, v) -> y { y = all_reduce(gelu(a) @ v.T)": (),
    "f(p, res) -> y { y = all_reduce(p) + res with decode": (),
    "f(p) -> y { y = 2 * all_reduce(p) with decode": (),
    "f(p) -> y { y = cast(cast(all_reduce(p), f16), bf16) with decode": (),
    "f(a, v) -> y { y = cast(cast(all_reduce(a @ v.T), f16), bf16)": (),
    "f(x, w) -> y { y = cast(cast(all_gather(x) @ w.T, f16), bf16)": (),
    "f(p) -> y { y = cast(all_reduce(p), f32) with decode": (),
}


GATHER, REDUCE, SMALL = list(FOUND)[0], list(FOUND)[4], list(FOUND)[5]  # noqa: RUF015


def op_of(body):
    checked = check_source(Source("f.chunk", f"{HEAD}op {body} }}\n"))
    assert not checked.report.failed, checked.report.diagnostics
    return checked.schedule.ops[0]


@pytest.mark.parametrize("body", FOUND)
def test_steps(body):
    assert straight_steps(op_of(body)) == FOUND[body]


def test_whatever_else_a_schedule_holds_goes_through_plain():
    gather, reduce, small = map(op_of, (GATHER, REDUCE, SMALL))
    (n,), x = gather.launches, small.exchange
    odd = [replace(n, **{name: "there"}) for name in ("over", "fold", "body", "ahead")]
    odd += [replace(n, **{name: replace(getattr(n, name), deal="there")}) for name in ("destination", "staging")]
    odd += [replace(n, a=replace(n.a, source="x")), replace(n, epilogue=(Instruction("t", "load", ("x",)),))]
    wrong = [replace(gather, launches=(launch,)) for launch in odd]
    wrong += [replace(gather, launches=(n, n)), replace(reduce, launches=(*reduce.launches, reduce.launches[0]))]
    *ahead, last = reduce.launches
    caller_s = replace(last, operands=(replace(last.operands[0], arrived=None),))
    wrong += [replace(reduce, launches=(*ahead, caller_s))]
    wrong += [replace(op, results=op.results * 2) for op in (gather, reduce)]
    wrong += [replace(small, parameters=small.parameters * 2), replace(small, updates=("p",))]
    wrong += [replace(small, exchange=replace(x, stores=x.stores * 2))]
    assert all(map(straight_steps, (gather, reduce, small))) and not any(map(straight_steps, wrong))


def test_shards_that_two_axes_cut_are_joined_by_plain():
    text = (Path("specs") / "two_tier_gather.chunk").read_text()
    checked = check_source(Source("f.chunk", text))
    assert not checked.report.failed and all(op.nested and not straight_steps(op) for op in checked.schedule.ops)
