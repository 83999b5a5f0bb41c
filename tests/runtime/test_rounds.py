"""Weight gradients overlap with the gather of their rows: tiles walk the shards in their loop and wait before each."""

import re

import pytest

from chunkdsl.cost.constants import machine
from chunkdsl.cost.simulate import simulate
from chunkdsl.pipeline import check_source
from chunkdsl.plan.unroll import unroll
from chunkdsl.render.module import render_module
from chunkdsl.source import Source
from chunkdsl.verify.simulate import run_op
from chunkdsl.verify.verify import load

SPEC = """mesh tp[2] over nvlink
dim M = 1..64
dim H = 32
dim F = 48
tensor x : bf16[M @ tp, H]
tensor w : bf16[F @ tp, H]
tensor t : bf16[2, F @ tp, H]
policy small { tile = 16x16x16, chunk = 8 along M }
op up(x, w) -> y { y = all_gather(x) @ w.T with small }
gradient up -> dx, dw as f32 saves x, w
op packed(x, t) -> y {
    g = all_gather(x) with { chunk = 3 per shard }
    a = g @ t[0].T with { tile = 16x16x16 }
    c = g @ t[1].T with { tile = 16x16x16 }
    y = swiglu(a, c)
}
gradient packed -> dx, dt saves x, a, c
"""


@pytest.fixture(scope="module")
def made():
    checked = check_source(Source("rounds.chunk", SPEC))
    assert not checked.report.diagnostics, [d.message for d in checked.report.diagnostics]
    return checked.program, checked.schedule, render_module(checked.schedule, (1, 2, 3))


def run(made, folder, op, seed, rows, text=None):
    program, schedule, whole = made
    typed, scheduled = (next(o for o in ops if o.name == op) for ops in (program.ops, schedule.ops))
    module = load(text or whole, folder, "rounds")
    found = run_op(module, "Rounds", schedule, scheduled, typed, 3, seed, [{"M": n} for n in rows], pointers=seed == 1)
    return [f"{r.check}: {r.detail}" for r in found if not r.passed]


@pytest.mark.parametrize(("op", "seed"), [("up_backward", 0), ("packed_backward", 1)])
def test_three_ranks_with_ragged_and_empty_shards_conform(made, tmp_path, op, seed):
    """Bits of exact, values of float64 and the log of the plan: TMA and pointers; of 2 rows one rank has none."""
    assert run(made, tmp_path, op, seed, (29, 2)) == []


def test_a_wait_that_is_left_out_is_found(made, tmp_path):
    text = re.sub(r"\(tl\.cdiv\(tl\.maximum\(deep, 0\), chunk\)\)", "(0)", made[2])
    assert text != made[2]
    found = run(made, tmp_path, "up_backward", 1, (29,), text)
    assert any(said in found[0] for said in ("race", "the plan waits for")), found


def test_the_gather_is_carried_beside_the_product_and_its_rounds_are_predicted_to_overlap():
    """On a large call most of the product runs before the last chunk is here."""
    spec = SPEC.split("op packed")[0].replace("1..64", "1..16384").replace("H = 32", "H = 4096")
    spec = spec.replace("F = 48", "F = 8192").replace("tp[2]", "tp[4]")
    spec = spec.replace("tile = 16x16x16, chunk = 8", "chunk = 512")
    checked = check_source(Source("large.chunk", spec))
    op = next(o for o in checked.schedule.ops if o.name == "up_backward")
    launch = next(n for n in op.launches if n.name == "up_backward_dw")
    assert launch.rounds and [m.via for m in launch.moves] == ["copy_engine"] and launch.over.kept == "shards"
    plan = unroll(checked.schedule, op, 4, [{"M": 16384}])
    mine = [t for t in plan.tasks if t.rank == 0 and "in up_backward_dw" in t.name]
    assert [len(t.waits) for t in mine][:4] == [0, 8, 8, 8] and not any(t.waits for t in mine[4:])
    spans = dict(zip((t.name for t in plan.tasks), simulate(op, plan, machine("h200", "nvlink")), strict=True))
    carried = [spans[t.name] for t in plan.tasks if t.rank == 0 and t.lane == "copies up_backward_x_gathered_move"]
    first, last = spans[mine[0].name], spans[mine[3].name]
    arrived = max(s.end for s in carried)
    assert first.end < arrived, "the first shard is multiplied while others travel"
    assert last.end - arrived < 0.5 * (last.end - first.start), "most of the product runs beside the gather"
