"""Weight gradients overlap with the gather of their rows: tiles walk the shards in their loop and wait before each."""

import re

import pytest
import torch

from chunkdsl.cost.constants import machine
from chunkdsl.cost.simulate import simulate
from chunkdsl.ir.meshes import ranks_of
from chunkdsl.ir.types import Shard
from chunkdsl.pipeline import check_source
from chunkdsl.plan.unroll import unroll
from chunkdsl.render.module import class_name, render_module
from chunkdsl.sim.world import World
from chunkdsl.source import Source
from chunkdsl.verify.inputs import coordinates, cut, draw, join, placements_of, sizes
from chunkdsl.verify.reference import evaluate
from chunkdsl.verify.simulate import run_op
from chunkdsl.verify.verify import load

SPEC = """mesh tp[2] over nvlink
dim M = 1..64
dim H = 32
dim F = 48
tensor x : bf16[M @ tp, H]
tensor w : bf16[F @ cyclic(tp, 16), H]
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
op crossed(x, q) -> y { y = all_gather(x).T @ q with small }
tensor q : bf16[M, F @ tp]
"""
TWO = """mesh dp[2], tp[2]
dim M = 1..64
dim H = 32
dim F = 48
tensor x : bf16[M @ (dp, tp), H]
tensor w : bf16[F @ tp, H]
op up(x, w) -> y { y = all_gather(x, over = tp) @ w.T with { tile = 16x16x16, chunk = 8 along M } }
gradient up -> dx, dw saves x, w
"""


def build(name, spec, worlds):
    checked = check_source(Source(f"{name}.chunk", spec))
    assert not checked.report.diagnostics, [d.message for d in checked.report.diagnostics]
    return checked.program, checked.schedule, render_module(checked.schedule, worlds)


@pytest.fixture(scope="module")
def made():
    return build("rounds", SPEC, (1, 2, 3))


@pytest.fixture(scope="module")
def two_axes():
    return build("two", TWO, ((2, 2),))


def named(made, op):
    """(typed op, its schedule)"""
    return tuple(next(o for o in ops if o.name == op) for ops in (made[0].ops, made[1].ops))


def run(made, folder, op, seed, rows, text=None, world=3):
    _, schedule, whole = made
    typed, scheduled = named(made, op)
    title = class_name(schedule.path)
    calls = [{"M": n} for n in rows]
    module = load(text or whole, folder, title.lower())
    found = run_op(module, title, schedule, scheduled, typed, world, seed, calls, pointers=seed == 1)
    return [f"{r.check}: {r.detail}" for r in found if not r.passed]


@pytest.mark.parametrize(("op", "seed"), [("up_backward", 0), ("packed_backward", 1)])
def test_three_ranks_with_ragged_and_empty_shards_conform(made, tmp_path, op, seed):
    """Bits of exact, values of float64 and the log of the plan: TMA and pointers; of 2 rows one rank has none. Rows of
    the gather are cut as its own, also where those of the result are cyclic."""
    assert run(made, tmp_path, op, seed, (29, 2)) == []


def test_on_one_of_two_axes_the_other_has_cut_the_rows_before(two_axes, tmp_path):
    assert run(two_axes, tmp_path, "up_backward", 0, (5,), world=(2, 2)) == []


@pytest.mark.parametrize(("spec", "ops", "world"), [("made", ("up", "packed"), 2), ("two_axes", ("up",), (2, 2))])
def test_fallback_gradients_are_those_of_autograd_whatever_the_rows(request, tmp_path, spec, ops, world):
    """In float64, of as many rows as no other size has: each collective goes by the rows of its own operand."""
    made = request.getfixturevalue(spec)
    title = class_name(made[1].path)
    module = load(made[2], tmp_path, title.lower())
    cases = [case(made, op, rows, world) for op in ops for rows in (51, 1)]

    def body(machine):
        m, found = getattr(module, title)(machine=machine, mesh=world if isinstance(world, tuple) else None), []
        for typed, _, x, seed, _ in cases:
            mine = [t.double().requires_grad_() for t in x.shards[machine.rank]]
            y = getattr(m, typed.name).fallback(*mine, **x.dims)
            shard = seed
            placements = placements_of(typed.results[0][1].type, world)
            for p, n, at in zip(placements, sizes(world), coordinates(machine.rank, world), strict=True):
                shard = cut(shard, p.dim, n, at, p.layout) if isinstance(p, Shard) else shard
            found.append(torch.autograd.grad(y, mine, shard))
        return found

    ranks = World(ranks_of(world), seed=0).run(body)
    for c, (_, backward, _, _, wanted) in enumerate(cases):
        for i, whole in enumerate(wanted):
            got = join([r[c][i] for r in ranks], backward, i, world)
            torch.testing.assert_close(got, whole, rtol=1e-9, atol=1e-9)


def case(made, op, rows, world):
    """(op, its backward pass, inputs, gradient of the result, gradients of the inputs by autograd)"""
    (typed, scheduled), (backward, of) = named(made, op), named(made, f"{op}_backward")
    assert any(n.rounds for n in of.launches)
    x = draw(typed, scheduled, {"M": rows}, world, rows, False)
    whole = {name: t.double().requires_grad_() for name, t in x.whole.items()}
    ((_, y),) = evaluate(typed, whole).items()
    seed = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(1))
    return typed, backward, x, seed, torch.autograd.grad(y, list(whole.values()), seed)


def test_the_fallback_gathers_the_left_operand_too(made, tmp_path):
    """Of a result that every rank has all rows of."""
    typed, scheduled = named(made, "crossed")
    module = load(made[2], tmp_path, "rounds")
    x = draw(typed, scheduled, {"M": 13}, 2, 0, False)
    mine = [[t.double() for t in shards] for shards in x.shards]
    found = World(2, seed=0).run(lambda k: module.Rounds(machine=k).crossed.fallback(*mine[k.rank], M=13))
    torch.testing.assert_close(join(found, typed, 0, 2), evaluate(typed, x.whole)["y"], rtol=1e-9, atol=1e-9)


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
