"""`gradient f -> dw as f32`: what a product over rows accumulates reaches `.grad` unrounded, over several calls."""

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
dim M = 1..32
dim H = 16
dim F = 32
tensor x : bf16[M @ tp, H]
tensor w : bf16[F @ tp, H]
tensor b : bf16[F @ tp]
tensor c : bf16[F]
policy small { tile = 16x16x16, chunk = 8 along M, via = ldst }
op up(x, w, b) -> y { y = all_gather(x) @ w.T + b with small }
gradient up -> dx, dw as f32, db as f32 saves x, w
"""
CUTS = {"x": 0, "w": 0, "b": 0}

pytestmark = pytest.mark.filterwarnings("ignore:.*runs its fallback:RuntimeWarning")


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    checked = check_source(Source("wide.chunk", SPEC))
    assert not checked.report.diagnostics, checked.report.diagnostics
    return load(render_module(checked.schedule, (1, 2)), tmp_path_factory.mktemp("module"), "wide").Wide


def steps(count=2, rows=13):
    """Micro-batches: x, w, b and the gradient of y."""
    g = torch.Generator().manual_seed(0)
    w, b = torch.randn(32, 16, generator=g).bfloat16(), torch.randn(32, generator=g).bfloat16()
    draw = lambda n: torch.randn(rows, n, generator=g).bfloat16()  # noqa: E731
    return [(draw(16), w, b, draw(32)) for _ in range(count)]


def wanted(batches):
    dw = sum(dy.double().T @ x.double() for x, _, _, dy in batches)
    return dw, sum(dy.double().sum(0) for *_, dy in batches)


def far(a, b):
    return float((a.double() - b).norm() / b.norm())


def test_gradients_of_micro_batches_are_f32_with_the_bits_of_exact(module):
    batches = steps()

    def body(machine):
        m, rank = module(machine=machine), machine.rank
        _, w, b, _ = batches[0]
        w, b = cut(w, 0, 2, rank).requires_grad_(), cut(b, 0, 2, rank).requires_grad_()
        w.grad_dtype = b.grad_dtype = torch.float32
        made = []
        for x, _, _, dy in batches:
            mine, dmine = cut(x, 0, 2, rank), cut(dy, 1, 2, rank)
            fused = torch.autograd.grad(m.up(mine, w, b, M=13), (w, b), dmine)
            m.check()
            names = dict(dy=dmine, x=mine, w=w.detach())
            _, *exact = m.up_backward.exact(*(names[n] for n in m.up_backward.PARAMETERS), M=13)
            m.check()
            assert all(f.dtype == torch.float32 and torch.equal(f, e) for f, e in zip(fused, exact, strict=True))
            made.append(fused)
        return [sum(parts) for parts in zip(*made, strict=True)]

    found = World(2, seed=1).run(body)
    for i, whole in enumerate(wanted(batches)):
        made = torch.cat([r[i] for r in found])
        assert far(made, whole) < 1e-6 and far(made.bfloat16(), whole) > 1e-4  # halves would have lost this


@pytest.fixture(scope="module")
def alone(module, tmp_path_factory):
    store = dist.FileStore(str(tmp_path_factory.mktemp("store") / "file"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    made = module()
    yield made
    made.close()
    del made
    gc.collect()
    dist.destroy_process_group()


def test_parameters_of_a_layer_collect_them_too(alone):
    """DTensors: autograd would round on the way to them. Without grad_dtype a gradient has its tensor's dtype."""
    batches = steps()
    layer = alone.up.as_module(["w", "b"])
    layer.load_dense({"w": batches[0][1], "b": batches[0][2]})
    for _ in range(2):
        layer.zero_grad()
        for x, _, _, dy in batches:
            layer(x).backward(dy)
        for p, whole in zip(layer.parameters(), wanted(batches), strict=True):
            assert p.dtype == torch.bfloat16 and p.grad.dtype == torch.float32 and p.grad.placements == p.placements
            assert far(p.grad.full_tensor(), whole) < 1e-6
    weights = {n: p.detach().to_local().requires_grad_() for n, p in layer.named_parameters()}
    x, _, _, dy = batches[0]
    alone.up(x, weights["w"], weights["b"]).backward(dy)
    assert weights["w"].grad.dtype == torch.bfloat16
    torch.func.functional_call(layer, weights, x).backward(dy)
    assert far(weights["w"].grad, 2 * wanted(batches[:1])[0]) < 1e-2


def test_the_fallback_takes_float64(alone):
    inputs = [t.double().requires_grad_() for t in steps(1, 3)[0][:3]]
    assert torch.autograd.gradcheck(alone.up.fallback, inputs, fast_mode=True)
