"""Products that the library computes, chunk by chunk, on simulated ranks: every check of `verify`, and what a call is
made of."""

import pytest
from emitted import GATHER, HEAD, REDUCE, SCATTER, built, failures, run

from chunkdsl.aot.record import RecordingMachine
from chunkdsl.diagnostics import Report
from chunkdsl.lower.gates import values_of
from chunkdsl.lower.program import lower
from chunkdsl.lower.schedule import schedule_program
from chunkdsl.pipeline import check_source
from chunkdsl.plan.settled import Settled, Settlement
from chunkdsl.source import Source
from chunkdsl.syntax.parse import parse

LIBRARY = "compute = library, chunk = 10 along M"
# Both products of a statement by the library, from one gather; a product of what lies here; a sum of several chunks.
MLP = HEAD + """dim G = 48
tensor x : bf16[M @ tp, H]
tensor w : bf16[2, F @ tp, G]
tensor v : bf16[H, F @ tp]
tensor u : bf16[H, G]
op f(x, w, v, u) -> y {
    z = x @ u
    g = all_gather(z) with { chunk = 2 per shard }
    h = swiglu(g @ w[0].T, g @ w[1].T)
    y = reduce_scatter(h @ v.T, M) + x with { chunk = 2 per shard }
}
"""


def by_library(text):
    return text.replace("swiglu(g @ w[0].T, g @ w[1].T)", "swiglu(g @ w[0].T, g @ w[1].T) with { compute = library }"
                        ).replace("x @ u", "x @ u with { compute = library }"
                                  ).replace("+ x with {", "+ x with { compute = library,")  # fmt: skip


@pytest.mark.parametrize("text, world, sizes", [
    (GATHER.format(t="bf16", p=LIBRARY), 2, (37, 1, 37)),  # the last one is played from what the first one noted
    (GATHER.format(t="f32", p=f"{LIBRARY}, side = push, route = direct, order = local_first"), 4, (37, 0)),
    (SCATTER.format(t="bf16", p=LIBRARY), 4, (37, 3)),
    (REDUCE.format(t="bf16", p="compute = library"), 2, (29,)),
    (by_library(MLP), 2, (29,)),
])  # fmt: skip
def test_bits_order_and_values(text, world, sizes):
    assert failures(run(text, world, sizes)) == []


def test_the_library_computes_what_a_backward_pass_multiplies_with_weights():
    text = by_library(MLP).replace("+ x with", "with").replace("tensor u : bf16[H, G]\n", "").replace(
        "op f(x, w, v, u) -> y {\n    z = x @ u with { compute = library }", "op f(x, w, v) -> y {").replace(
        "all_gather(z)", "all_gather(x)") + "gradient f -> dx, dw, dv\n"  # fmt: skip
    backward = check_source(Source("f.chunk", text)).schedule.ops[-1]
    assert {n.library for n in backward.launches if n.products and not n.over} == {True}
    assert {n.library for n in backward.launches if n.over} == {False}
    assert any((c.key, c.value) == ("compute", "generated") for c in backward.choices)


def test_tuning_may_settle_on_it():
    source, report = Source("f.chunk", GATHER.format(t="bf16", p="")), Report(Source("f.chunk", ""))
    program = lower(parse(source, report), source, report)
    product = next(v for v in values_of(program.ops[0]) if v.kind == "matmul")
    settled = Settlement({(product, "compute"): Settled("library", "library", "tuned: 1.1 times as fast")})
    (op,) = schedule_program(program, report, settled).ops
    assert not report.failed and [n.library for n in op.launches] == [True]
    assert [(c.value, c.why) for c in op.choices if c.key == "compute"] == [("library", "tuned: 1.1 times as fast")]
    (op,) = schedule_program(program, report).ops
    assert [n.library for n in op.launches] == [False]


def calls_of(text, world, rows):
    """(kind, what) of each launch, product, copy, fork and join of a fused call on rank 0, in the wrapper's order."""
    _, _, module, title = built(text)
    made = getattr(module, title)(machine=RecordingMachine(0, world), M=64)
    made.f.machine.log.clear()
    tensors = [made.f.machine.empty(made.f.local_shape(shape, {"M": rows}), dtype)
               for dtype, shape in made.f.PARAMETERS.values()]  # fmt: skip
    made.f(*tensors, M=rows)
    return [(kind, what) for kind, what, _ in made.f.machine.log if kind not in ("begin", "end")]


def test_copies_are_enqueued_before_the_calls_that_wait_for_them():
    # Of 20 rows each rank has 10, which are one chunk.
    assert calls_of(GATHER.format(t="bf16", p=LIBRARY), 2, 20) == [
        ("launch", "open_call"), ("launch", "stage_shard"), ("fork", ""), ("copy", str(10 * 48 * 2)), ("copy", "4"),
        ("multiply", "f_y"), ("launch", "await_chunk"), ("multiply", "f_y"), ("join", ""), ("launch", "close_call"),
    ]  # fmt: skip


def test_what_a_call_has_left_is_carried_on_while_the_next_one_runs():
    assert calls_of(SCATTER.format(t="bf16", p=LIBRARY), 2, 20) == [
        ("launch", "open_call"), ("fork", ""), ("multiply", "f_y_partial"), ("fork", ""),
        ("copy", str(10 * 48 * 2)), ("copy", "4"), ("multiply", "f_y_partial"), ("launch", "f_y_sum"), ("join", ""),
        ("launch", "close_call"),
    ]  # fmt: skip
