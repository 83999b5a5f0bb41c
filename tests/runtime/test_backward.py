"""Gradients through a module's ops: on simulated ranks, in the fallback, and in a compiled step."""

import gc

import pytest
import torch
import torch.distributed as dist

from chunkdsl.pipeline import check_source
from chunkdsl.render.module import render_module
from chunkdsl.sim.world import World
from chunkdsl.source import Source
from chunkdsl.verify.inputs import cut
from chunkdsl.verify.verify import load

SPEC = """mesh tp[2] over nvlink
dim M = 1..64
dim H = 32
dim F = 48
tensor x : bf16[M @ tp, H]
tensor w : bf16[F @ tp, H]
tensor b : bf16[F @ tp]
tensor v : bf16[H, F @ tp]
op mlp(x, w, b, v) -> y {
    u = all_gather(x) @ w.T + b with { tile = 16x16x16, chunk = 8 along M, via = ldst }
    y = reduce_scatter(gelu(u) @ v.T, M) with { tile = 16x16x16, chunk = 8 along M, via = ldst }
}
gradient mlp -> dx, dw, db, dv saves x, u
"""
CUTS = {"x": 0, "w": 0, "b": 0, "v": 1}  # the dimension that is sharded

pytestmark = pytest.mark.filterwarnings("ignore:.*runs its fallback:RuntimeWarning")


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    checked = check_source(Source("grad.chunk", SPEC))
    assert not checked.report.diagnostics, checked.report.diagnostics
    return load(render_module(checked.schedule, (1, 2, 3)), tmp_path_factory.mktemp("module"), "grad").Grad


def whole(rows, dtype=torch.bfloat16, seed=0):
    g = torch.Generator().manual_seed(seed)
    shapes = {"x": (rows, 32), "w": (48, 32), "b": (48,), "v": (32, 48), "dy": (rows, 32)}
    return {n: (torch.randn(s, generator=g, dtype=torch.float64) * 0.5).to(dtype) for n, s in shapes.items()}


def dense(tensors):
    """Gradients of the whole model by autograd, in float64."""
    x, w, b, v = (tensors[n].double().clone().requires_grad_() for n in CUTS)
    y = torch.nn.functional.gelu(x @ w.T + b) @ v.T
    return dict(zip(CUTS, torch.autograd.grad(y, (x, w, b, v), tensors["dy"].double()), strict=True))


def shards(tensors, world, rank):
    mine = [cut(tensors[n], d, world, rank).clone().requires_grad_() for n, d in CUTS.items()]
    return mine, cut(tensors["dy"], 0, world, rank).clone()


def by_autograd(call, tensors, dy):
    return torch.autograd.grad(call(*tensors), tensors, dy)


def by_vjp(call, tensors, dy):
    return torch.func.vjp(call, *(t.detach() for t in tensors))[1](dy)


@pytest.mark.parametrize(("rows", "derived"), [(13, by_autograd), (1, by_vjp)])
def test_fused_gradients_have_the_bits_of_exact_and_the_values_of_the_dense_model(module, rows, derived):
    tensors = whole(rows)
    wanted = dense(tensors)

    def body(machine):
        m = module(machine=machine)
        mine, dy = shards(tensors, 2, machine.rank)
        fused = derived(lambda *t: m.mlp(*t, M=rows), mine, dy)
        m.check()
        _, u = m.mlp_forward.exact(*(t.detach() for t in mine), M=rows)
        x, w, _, v = (t.detach() for t in mine)
        exact = m.mlp_backward.exact(*ordered(m, dict(dy=dy, x=x, w=w, v=v, u=u)), M=rows)
        m.check()
        for f, e in zip(fused, exact, strict=True):
            assert torch.equal(f.view(torch.int16), e.view(torch.int16))
        return fused

    for rank, found in enumerate(World(2, seed=0).run(body)):
        for got, (name, d) in zip(found, CUTS.items(), strict=True):
            expected = cut(wanted[name], d, 2, rank)
            torch.testing.assert_close(got.double(), expected, rtol=0.03, atol=0.03 * float(wanted[name].abs().max()))


def test_what_a_larger_call_left_behind_the_last_row_is_not_read(module):
    """Infinities, which a zero beside them does not make harmless."""
    big, few = whole(64), whole(5)
    wanted = dense(few)

    def body(machine):
        m = module(machine=machine)
        for tensors, rows in ((big, 64), (few, 5)):
            mine, dy = shards(tensors, 2, machine.rank)
            if rows == 64:
                mine[0].data.fill_(float("inf"))
                dy.fill_(float("inf"))
            found = torch.autograd.grad(m.mlp(*mine, M=rows), mine, dy)
            m.check()
        return found

    for rank, found in enumerate(World(2, seed=0).run(body)):
        for got, (name, d) in zip(found, CUTS.items(), strict=True):
            expected = cut(wanted[name], d, 2, rank)
            torch.testing.assert_close(got.double(), expected, rtol=0.03, atol=0.03 * float(wanted[name].abs().max()))


def ordered(m, values):
    return [values[name] for name in m.mlp_backward.PARAMETERS]


@pytest.mark.parametrize(("world", "rows"), [(1, 5), (2, 13), (3, 7)])
def test_fallback_gradients_are_those_of_the_dense_model_in_float64(module, world, rows):
    tensors = whole(rows, torch.float64)
    wanted = dense(tensors)

    def body(machine):
        m = module(machine=machine)
        mine, dy = shards(tensors, world, machine.rank)
        m.mlp.fallback(*mine, M=rows).backward(dy)
        return [t.grad for t in mine]

    for rank, found in enumerate(World(world, seed=0).run(body)):
        for got, (name, d) in zip(found, CUTS.items(), strict=True):
            torch.testing.assert_close(got, cut(wanted[name], d, world, rank), rtol=1e-9, atol=1e-9)


@pytest.fixture(scope="module")
def alone(module, tmp_path_factory):
    """An instance on one CPU rank: every call runs its fallback."""
    store = dist.FileStore(str(tmp_path_factory.mktemp("store") / "file"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    made = module()
    yield made
    made.close()
    del made
    gc.collect()
    dist.destroy_process_group()


def test_gradcheck_of_the_fallback(alone):
    mine, _ = shards(whole(3, torch.float64), 1, 0)
    assert torch.autograd.gradcheck(alone.mlp.fallback, mine, fast_mode=True)


def test_a_training_step_compiles_whole(alone):
    tensors = whole(6)

    def step(x, w, b, v):
        return (alone.mlp(x, w, b, v).float() ** 2).sum()

    grads = []
    for run in (step, torch.compile(step, backend="aot_eager", fullgraph=True)):
        mine, _ = shards(tensors, 1, 0)
        run(*mine).backward()
        grads.append([t.grad for t in mine])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_checkpointing_runs_the_forward_pass_again_and_gives_the_same_gradients(alone):
    from torch.utils.checkpoint import checkpoint

    tensors = whole(6)
    grads = []
    for run in (alone.mlp, lambda *t: checkpoint(alone.mlp, *t, use_reentrant=False)):
        mine, dy = shards(tensors, 1, 0)
        run(*mine).backward(dy)
        grads.append([t.grad for t in mine])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_without_gradients_nothing_is_saved(alone):
    mine, _ = shards(whole(4), 1, 0)
    with torch.no_grad():
        assert not alone.mlp(*mine).requires_grad
    y = alone.mlp(*(t.detach() for t in mine))
    assert y.grad_fn is None and isinstance(y, torch.Tensor)


def test_torchs_own_checks_of_the_forward_operator_pass(alone):
    mine, _ = shards(whole(4), 1, 0)
    torch.library.opcheck(alone.mlp_forward.operator, (*mine, alone.mlp_forward.number, None))
