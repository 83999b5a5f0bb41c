"""Weights gathered ahead, ZeRO-3 style, are taken as they arrive: forward and backward the product begins with the
shard that is here and waits for the chunks of the others, in the order in which they come."""

from pathlib import Path

import pytest

from chunkdsl.cost.constants import machine
from chunkdsl.cost.simulate import simulate
from chunkdsl.pipeline import check_source
from chunkdsl.plan.unroll import unroll
from chunkdsl.render.module import render_module
from chunkdsl.source import Source
from chunkdsl.verify.simulate import run_op
from chunkdsl.verify.verify import load

SPEC = """mesh dp[2] over nvlink
dim M = 1..64
dim H = 24
dim F = 40
tensor x : bf16[M @ dp, H]
tensor r : bf16[M, H]
tensor w : bf16[F @ dp, H]
tensor u : bf16[F @ dp, H]
tensor b : bf16[F]
tensor n : bf16[M @ dp, F]
policy engine { tile = 16x16x16, chunk = 8 along F, via = copy_engine }
policy programs { tile = 16x16x16, chunk = 2 per shard, via = ldst, side = pull, place = own_sms(2) }
op up(x, w, b) -> y { y = gelu(x @ all_gather(w).T + b) with programs }
op down(n, w) -> z { z = n @ all_gather(w) with engine }
gradient down -> dn, dw
op glu(x, w, u) -> y { y = swiglu(x @ all_gather(w).T, x @ all_gather(u).T) with engine }
op twice(x, w) -> y, z {
    g = all_gather(w)         with { chunk = 2 per shard, via = ldst, route = ring, place = own_sms(2) }
    y = x @ g.T               with { tile = 16x16x16 }
    z = y @ g                 with { tile = 16x16x16 }
}
op alike(r, w) -> y { y = r @ all_gather(w).T with programs }
"""
WAITS = {
    "up": "if peer != rank:  # the chunks of its columns",
    "down": "if FUSED:\n                if source != rank:",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(program, schedule, module)"""
    checked = check_source(Source("ahead.chunk", SPEC))
    assert not checked.report.diagnostics, [d.message for d in checked.report.diagnostics]
    folder = tmp_path_factory.mktemp("ahead")
    return checked.program, checked.schedule, load(render_module(checked.schedule, (1, 2, 3)), folder, "ahead")


def run(made, name, world, calls, module=None, pointers=False):
    program, schedule, own = made
    typed, scheduled = (next(op for op in part.ops if op.name == name) for part in (program, schedule))
    return run_op(module or own, "Ahead", schedule, scheduled, typed, world, 1, [{"M": m} for m in calls],
                  pointers=pointers)  # fmt: skip


CASES = [("up", 3, False), ("down", 3, False), ("down", 2, True), ("down_backward", 2, False), ("glu", 2, False),
         ("twice", 3, False), ("alike", 2, True)]  # fmt: skip


@pytest.mark.parametrize(("op", "world", "pointers"), CASES)
def test_products_of_what_arrives_have_the_bits_of_exact_and_the_log_of_the_plan(made, op, world, pointers):
    """40 rows on 3 ranks are ragged, and 14 of a shard no multiple of 16 bytes; of 1 row of x ranks have none."""
    found = run(made, op, world, (13, 1) if op == "up" else (13,), pointers=pointers)
    assert [f"{r.check}: {r.detail}" for r in found if not r.passed] == []
    assert {"simulation", "conformance"} <= {r.check for r in found}
    scheduled = next(o for o in made[1].ops if o.name == op)
    assert not [b.name for b in scheduled.buffers if b.name.endswith("_whole")], "nothing is copied out first"


@pytest.mark.parametrize("op", WAITS)
def test_a_product_that_does_not_wait_is_found(made, tmp_path, op):
    text = Path(made[2].__file__).read_text(encoding="utf-8")
    head, kernel = text.split(f"def {op}_{'y' if op == 'up' else 'z'}_tile(")
    assert WAITS[op] in kernel
    torn = head + f"def {op}_{'y' if op == 'up' else 'z'}_tile(" + kernel.replace(
        WAITS[op], WAITS[op].replace("!= rank", "< 0"), 1)  # fmt: skip
    found = run(made, op, 2, (13,), load(torn, tmp_path, f"torn_{op}"))
    assert any(r.check in ("simulation", "conformance") and not r.passed for r in found)


def test_columns_of_one_shard_stored_in_the_place_of_another_are_found(made, tmp_path):
    text = Path(made[2].__file__).read_text(encoding="utf-8")
    assert "edge = (peer * each)" in text
    wrong = load(text.replace("edge = (peer * each)", "edge = ((W - 1 - peer) * each)"), tmp_path, "turned")
    assert any(not r.passed and r.check != "conformance" for r in run(made, "up", 2, (13,), wrong))


def test_an_addend_of_another_shard_of_the_weight_is_found(made, tmp_path):
    """The tiles of a product over rows go by shards of the columns of its left operand."""
    text = Path(made[2].__file__).read_text(encoding="utf-8")
    head, kernel = text.split("def down_backward_dw_partial_tile(")
    place = "across = (owner * "
    assert place in kernel
    wrong = f"{head}def down_backward_dw_partial_tile({kernel.replace(place, 'across = ((W - 1 - owner) * ', 1)}"
    found = run(made, "down_backward", 2, (13,), load(wrong, tmp_path, "turned_left"))
    assert any(not r.passed and r.check != "conformance" for r in found)


@pytest.fixture(scope="module")
def large():
    spec = SPEC.split("policy")[0].replace("1..64", "1..32768").replace("H = 24", "H = 4096")
    spec = spec.replace("F = 40", "F = 8192").replace("dp[2]", "dp[4]")
    spec += "op up(x, w) -> y { y = x @ all_gather(w).T with { chunk = 4 per shard, via = ldst } }\n"
    return check_source(Source("large.chunk", f"{spec}gradient up -> dx, dw saves x, w\n"))


def played(checked, name):
    """(op, plan, span of each task by name) of a call on 4 ranks."""
    op = next(o for o in checked.schedule.ops if o.name == name)
    plan = unroll(checked.schedule, op, 4, [{"M": 32768}])
    return op, plan, dict(zip((t.name for t in plan.tasks), simulate(op, plan, machine("h200", "nvlink")), strict=True))


@pytest.mark.parametrize("name", ["up", "up_backward"])
def test_the_gather_of_a_large_weight_is_predicted_to_overlap_with_its_own_product(large, name):
    """Most of the product runs beside the gather; forward by columns, backward along the depth."""
    op, plan, spans = played(large, name)
    launch = next(n for n in op.launches if n.ahead)
    assert launch.ahead.onto == ("columns" if name == "up" else "depth")
    mine = [t for t in plan.tasks if t.rank == 0 and f"in {launch.name}" in t.name]
    carried = [spans[t.name] for t in plan.tasks if t.rank == 0 and t.lane == launch.moves[0].name]
    assert not mine[0].waits and any(t.waits for t in mine)
    first, last = min(spans[t.name].start for t in mine), max(spans[t.name].end for t in mine)
    arrived = max(s.end for s in carried)
    assert first < arrived, "the own shard is multiplied while others travel"
    assert last - arrived > 0.5 * (last - first), (first, arrived, last)


def test_the_addends_of_a_large_gradient_are_predicted_to_travel_beside_their_product(large):
    """The stores of its tiles are the transfer: what is left behind the product is the sum of the own rows."""
    op, plan, spans = played(large, "up_backward")
    product, total = op.launches[:2]
    assert (product.over.rows, product.space, product.destination.kind) == (product.depth.size, "all", "push")
    mine = [spans[t.name] for t in plan.tasks if t.rank == 0 and f"in {product.name}" in t.name]
    added = [spans[t.name] for t in plan.tasks if t.rank == 0 and f"in {total.name}" in t.name]
    first, last = min(s.start for s in mine), max(s.end for s in mine)
    assert max(s.end for s in added) - last < 0.1 * (last - first)
