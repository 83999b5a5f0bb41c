"""Gradients of ops beyond one gather and one reduction: packed weights, all_to_all, weights gathered ahead (ZeRO-3),
meshes of two axes."""

from pathlib import Path

import pytest
import torch

from chunkdsl.pipeline import check_source
from chunkdsl.render.module import class_name, render_module
from chunkdsl.sim.world import World
from chunkdsl.source import Source
from chunkdsl.verify.inputs import coordinates, cut, draw, join, placements_of, sizes
from chunkdsl.verify.reference import evaluate
from chunkdsl.verify.simulate import run_op
from chunkdsl.verify.verify import load

ONE = """mesh tp[2] over nvlink
dim M = 1..32
dim H = 16
dim F = 32
tensor x : bf16[M @ tp, H]
tensor n : bf16[M, F @ tp]
tensor t : bf16[2, F @ tp, H]
tensor e : bf16[H, F @ tp]
tensor o : bf16[H, F]
tensor q : bf16[F @ tp, H]
tensor c : bf16[F]
policy small { tile = 16x16x16, chunk = 8 along M, via = ldst, place = own_sms(2) }
op packed(x, t, e) -> y {
    g = all_gather(x)
    h = swiglu(g @ t[0].T, g @ t[1].T) with { tile = 16x16x16 }
    y = reduce_scatter(h @ e.T, M) with small
}
gradient packed -> dx, dt, de saves x
op onto_rows(n, o) -> y { y = all_to_all(n, F -> M) @ o.T with { tile = 16x16x16, via = ldst, chunk = 8 along M } }
gradient onto_rows -> dn, do
op onto_columns(x, o) -> y { y = gelu(all_to_all(x @ o, M -> F)) with { tile = 16x16x16, chunk = 8 along M } }
gradient onto_columns -> dx, do
op ahead(x, q, c) -> y { y = gelu(x @ all_gather(q).T + c) with { tile = 16x16x16, chunk = 8 along F } }
gradient ahead -> dx, dq as f32, dc
tensor g : bf16[H]
op normed(x, g, q, e) -> y {
    h = gelu(all_gather(rms_norm(x, g)) @ q.T) with small
    y = rms_norm(reduce_scatter(h @ e.T, M) + x, g, eps = 0.001) with small
}
gradient normed -> dx, dg as f32, dq, de saves x, h
"""
TWO = """mesh dp[2] over rdma, tp[2] over nvlink
dim M = 1..32
dim H = 16
dim F = 32
tensor x : bf16[M @ (dp, tp), H]
tensor w : bf16[F @ tp, H]
tensor b : bf16[F @ tp]
tensor v : bf16[H, F @ tp]
tensor q : bf16[F @ (dp, tp), H]
policy small { tile = 16x16x16, chunk = 8 along M, via = ldst, place = own_sms(2) }
op mlp(x, w, b, v) -> y {
    h = all_gather(x, over = tp) @ w.T + b with small
    y = reduce_scatter(gelu(h) @ v.T, M, over = tp) + x with small
}
gradient mlp -> dx, dw, db, dv saves x
op both(x, q) -> y { y = relu(all_gather(x, over = (dp, tp)) @ q.T) with small }
gradient both -> dx, dq saves x, q with { route = ring, via = ldst }
tensor xz : bf16[M @ dp, H]
tensor wz : bf16[H @ dp, F]
op ahead(xz, wz) -> y { y = xz @ all_gather(wz, over = dp) with { tile = 16x16x16 } }
gradient ahead -> dxz, dwz
"""
SPECS = {"one": (ONE, 2), "two": (TWO, (2, 2))}
OPS = [("one", name) for name in ("packed", "onto_rows", "onto_columns", "ahead", "normed")]
OPS += [("two", "mlp"), ("two", "both")]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """{name: (program, schedule, class, module)}"""
    folder, found = tmp_path_factory.mktemp("kinds"), {}
    for name, (text, world) in SPECS.items():
        checked = check_source(Source(f"{name}.chunk", text))
        assert not checked.report.diagnostics, [d.message for d in checked.report.diagnostics]
        single = (1, 1) if isinstance(world, tuple) else 1
        module = load(render_module(checked.schedule, (single, world)), folder, name)
        found[name] = checked.program, checked.schedule, getattr(module, class_name(f"{name}.chunk")), module
    return found


def op_of(made, spec, name):
    program, schedule, _, _ = made[spec]
    typed = next(op for op in program.ops if op.name == name)
    return typed, next(op for op in schedule.ops if op.name == name)


@pytest.mark.parametrize(("spec", "op"), OPS)
def test_fused_backward_passes_have_the_bits_of_exact_and_the_log_of_the_plan(made, spec, op):
    _, schedule, _, module = made[spec]
    typed, scheduled = op_of(made, spec, f"{op}_backward")
    rows = (5, 3) if op == "both" else (13,)  # of 3 rows one of four ranks has none
    found = run_op(module, class_name(f"{spec}.chunk"), schedule, scheduled, typed, SPECS[spec][1],
                   1 if op == "mlp" else 0, [{"M": n} for n in rows], pointers=op == "onto_rows")  # fmt: skip
    assert [f"{r.check}: {r.detail}" for r in found if not r.passed] == []
    assert {"simulation", "conformance"} <= {r.check for r in found}


def test_shards_cut_as_if_there_were_one_axis_are_found(made, tmp_path):
    """Planted: of 5 rows 2x2 ranks hold 2, 1, 1, 1 and not 2, 2, 1, 0."""
    _, schedule, _, module = made["two"]
    text = Path(module.__file__).read_text(encoding="utf-8")
    assert "shard_begin(source, depth, W, INNER)" in text
    wrong = load(text.replace("shard_begin(source, depth, W, INNER)", "source * span"), tmp_path, "flat")
    typed, scheduled = op_of(made, "two", "both_backward")
    rows = run_op(wrong, "Two", schedule, scheduled, typed, (2, 2), 0, [{"M": 5}], pointers=True)
    assert any(r.check.startswith("dq = float64") and not r.passed for r in rows)


@pytest.mark.parametrize(("spec", "op"), [*OPS, ("two", "ahead")])
def test_fallback_gradients_are_those_of_whole_tensors_in_float64(made, spec, op):
    """Through autograd, on ragged shards: Partial gradients add up to the whole one."""
    _, _, module, _ = made[spec]
    world = SPECS[spec][1]
    typed, scheduled = op_of(made, spec, op)
    x = draw(typed, scheduled, {"M": 13}, world, 5, False)
    whole = {name: t.requires_grad_() for name, t in x.whole.items()}
    ((_, y),) = evaluate(typed, whole).items()
    seed = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    wanted = torch.autograd.grad(y, list(whole.values()), seed)

    def body(machine):
        m = module(machine=machine, mesh=world if isinstance(world, tuple) else None)
        mine = [t.double().requires_grad_() for t in x.shards[machine.rank]]
        out = getattr(m, op).fallback(*mine, M=13)
        placements = placements_of(typed.results[0][1].type, world)
        shard = seed
        for p, n, at in zip(placements, sizes(world), coordinates(machine.rank, world), strict=True):
            shard = cut(shard, p.dim, n, at) if hasattr(p, "dim") else shard
        return torch.autograd.grad(out, mine, shard)

    found = World(4 if spec == "two" else 2, seed=0).run(body)
    backward, _ = op_of(made, spec, f"{op}_backward")
    for i, expected in enumerate(wanted):
        torch.testing.assert_close(join([r[i] for r in found], backward, i, world), expected, rtol=1e-9, atol=1e-9)


def test_weights_gathered_ahead_travel_once_for_all_products(made):
    """What comes back of them is a reduce_scatter, here of f32 addends."""
    _, schedule, _, _ = made["one"]
    forward, backward = (next(op for op in schedule.ops if op.name == n) for n in ("ahead", "ahead_backward"))
    assert sum(m.kind == "gather" for n in forward.launches for m in n.moves) == 1
    assert sum(m.kind == "gather" for n in backward.launches for m in n.moves) == 1
    assert [(n.ahead.onto, bool(n.chunk_flags)) for n in backward.launches if n.ahead] == [
        ("columns", True), ("depth", False)]  # fmt: skip
    assert [r.dtype for r in backward.results] == ["bf16", "f32", "bf16"]
    assert next(b.dtype for b in backward.buffers if b.name.endswith("dq_stage")) == "f32"


@pytest.mark.parametrize(("spec", "op"), OPS)
def test_gradcheck_of_the_fallback(made, spec, op):
    _, _, module, _ = made[spec]
    typed, scheduled = op_of(made, spec, op)
    alone = (1, 1) if spec == "two" else 1
    x = draw(typed, scheduled, {"M": 3}, alone, 7, False)

    def body(machine):
        m = module(machine=machine, mesh=alone if spec == "two" else None)
        inputs = [t.double().requires_grad_() for t in x.shards[0]]
        return torch.autograd.gradcheck(getattr(m, op).fallback, inputs, fast_mode=True)

    assert World(1).run(body) == [True]
