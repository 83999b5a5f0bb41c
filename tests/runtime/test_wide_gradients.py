"""`gradient f -> dw as f32`: what a product over rows accumulates reaches `.grad` unrounded, over several calls."""

import copy
import gc
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from chunkdsl.pipeline import check_source
from chunkdsl.render.module import render_module
from chunkdsl.runtime.layer import take_gradients_in
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


def again(layer):
    return lambda x: checkpoint(layer, x, use_reentrant=False)


def selective(layer):
    def keep(context, operator, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if operator is layer.operation.operator else CheckpointPolicy.PREFER_RECOMPUTE

    kept = dict(use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(keep))
    return lambda x: checkpoint(layer, x, **kept)


def functional(layer):
    return lambda x: torch.func.functional_call(layer, dict(layer.named_parameters()), x)


def autocast(layer):
    def run(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(x.float())

    return run


def compiled(layer):
    return torch.compile(layer, backend="aot_eager", fullgraph=True)


def layer_of(m, **options):
    layer = m.up.as_module(["w", "b"], **options)
    layer.load_dense(dict(zip("wb", steps()[0][1:3], strict=True)))
    return layer


def whole(t):
    return t.full_tensor() if hasattr(t, "full_tensor") else t


HALVES, WIDE = {}, dict(dtype=torch.float32)
LOCAL, LOCAL_WIDE = dict(local=True), dict(local=True, dtype=torch.float32)


@pytest.mark.parametrize(
    ("options", "wraps"),
    [
        (HALVES, (lambda layer: layer, again, selective, functional, autocast)),
        (WIDE, (lambda layer: layer, autocast, compiled)),
        (LOCAL, (lambda layer: layer, selective)),
        (LOCAL_WIDE, (again,)),
    ],
    ids=("halves", "f32", "local halves", "local f32"),
)
def test_parameters_of_a_layer_get_them_as_torch_gives_gradients(alone, options, wraps):
    """Unrounded over several calls, with hooks, and by torch.autograd.grad beside `.grad`."""
    batches, seen = steps(), []
    for wrap in wraps:
        layer = layer_of(alone, **options)
        for p in layer.parameters():
            p.register_hook(lambda g: seen.append(g.dtype))
            p.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.dtype))
        run = wrap(layer)
        for x, _, _, dy in batches:
            run(x).backward(dy)
        assert seen == [torch.float32] * 8
        for p, dw in zip(layer.parameters(), wanted(batches), strict=True):
            assert p.dtype == options.get("dtype", torch.bfloat16) and p.grad.dtype == torch.float32
            assert far(whole(p.grad), dw) < 1e-6
        held = [p.grad.clone() for p in layer.parameters()]
        made = torch.autograd.grad(run(x), list(layer.parameters()), dy)
        for g, kept, p, dw in zip(made, held, layer.parameters(), wanted(batches[1:]), strict=True):
            assert g.dtype == torch.float32 and far(whole(g), dw) < 1e-6 and torch.equal(p.grad, kept)
        seen.clear()


def test_a_compiled_call_rounds_what_it_gives_to_halves_and_no_more(alone):
    """torch's tracer rounds a gradient to the dtype of the graph's input."""
    batches, layer = steps(), layer_of(alone)
    run = compiled(layer)
    for x, _, _, dy in batches:
        run(x).backward(dy)
    for p, dw in zip(layer.parameters(), wanted(batches), strict=True):
        assert p.grad.dtype == torch.float32 and far(whole(p.grad), dw) < 2**-8


def test_what_makes_parameters_anew_keeps_the_dtype_of_their_gradients(alone):
    x, _, _, dy = steps()[0]
    layer = layer_of(alone)
    layer.to("cpu").load_state_dict({n: t.clone() for n, t in layer.state_dict().items()}, assign=True)
    other = copy.deepcopy(layer)
    other.w.requires_grad_(False)
    for one, names in ((layer, "wb"), (other, "b"), (copy.deepcopy(layer).float(), "wb")):
        one(x).backward(dy)
        found = {n: p.grad for n, p in one.named_parameters() if p.grad is not None}
        assert sorted(found) == sorted(names) and {g.dtype for g in found.values()} == {torch.float32}
    twin = copy.deepcopy(layer)  # with what its gradients are at the moment
    assert torch.equal(whole(twin.w.grad), whole(layer.w.grad)) and twin.w.grad is not layer.w.grad
    with pytest.warns(RuntimeWarning, match=r"gradients of w are rounded .* make the layer with dtype=torch.float32"):
        take_gradients_in(SimpleNamespace(dtype=torch.bfloat16), torch.float32, "w")
    weights = {n: p.detach().to_local().requires_grad_() for n, p in layer.named_parameters()}
    alone.up(x, weights["w"], weights["b"]).backward(dy)
    assert weights["w"].grad.dtype == torch.bfloat16  # of whom grad_dtype was not set
    torch.func.functional_call(layer, weights, x).backward(dy)
    assert far(weights["w"].grad, 2 * wanted(steps(1))[0]) < 1e-2


@pytest.mark.parametrize("options", [WIDE, LOCAL_WIDE], ids=("f32", "local f32"))
@pytest.mark.parametrize("form", [dict(foreach=False), dict(foreach=True), dict(fused=True)], ids=str)
def test_an_optimizer_steps_f32_parameters(alone, options, form):
    (x, w, b, dy), layer = steps()[0], layer_of(alone, **options)
    kinds = [torch.optim.AdamW] + [torch.optim.SGD] * (form != dict(fused=True) or options == LOCAL_WIDE)
    for kind in kinds:  # DTensors have no fused SGD
        layer.load_dense({"w": w, "b": b})
        layer.zero_grad()
        plain = [t.float() for t in (w, b)]
        for t, g in zip(plain, wanted(steps(1)), strict=True):
            t.grad = g.float()
        layer(x).backward(dy)
        for owner in (layer.parameters(), plain):
            kind(owner, 0.1, **form).step()
        assert all(torch.allclose(a, t, atol=1e-6) for a, t in zip(layer.dense().values(), plain, strict=True))


@pytest.mark.parametrize("options", [HALVES, LOCAL], ids=("halves", "local halves"))
def test_halves_with_f32_gradients_are_stepped_by_sgd_or_through_f32_copies(alone, options):
    (x, w, b, dy), layer = steps()[0], layer_of(alone, **options)
    layer(x).backward(dy)
    with pytest.raises(RuntimeError, match=r"dtype|scalar type"):
        torch.optim.AdamW(layer.parameters(), 0.1, fused=True).step()
    master = [p.detach().float() for p in layer.parameters()]
    for copied, p in zip(master, layer.parameters(), strict=True):
        copied.grad = p.grad
    torch.optim.AdamW(master, 0.1).step()
    torch.optim.SGD(layer.parameters(), 0.1).step()
    for p, t, dw in zip(layer.parameters(), (w, b), wanted(steps(1)), strict=True):
        assert far(whole(p.detach()), t.double() - 0.1 * dw) < 2**-7
    with torch.no_grad():
        for copied, p in zip(master, layer.parameters(), strict=True):
            p.copy_(copied)
    assert far(layer.dense()["w"], w.double() - 0.1 * wanted(steps(1))[0].sign()) < 0.1


def test_data_parallel_wrappers_keep_f32_parameters_and_gradients(module, alone):
    """FSDP2 gathers them in bf16 where its policy says so, and rounds the gradient of a call then."""
    x, _, _, dy = steps()[0]
    layer = layer_of(alone, **LOCAL_WIDE)
    DistributedDataParallel(layer)(x).backward(dy)
    for p, dw in zip(layer.parameters(), wanted(steps(1)), strict=True):
        assert p.grad.dtype == torch.float32 and far(p.grad, dw) < 1e-6
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    m = module(mesh=mesh["tp"])
    halves = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for options, limit in ((dict(), 1e-6), (dict(mp_policy=halves), 2**-8)):
        layer = layer_of(m, **WIDE)
        fully_shard(layer, mesh=mesh["dp"], **options)
        layer(x).backward(dy)
        for p, dw in zip(layer.parameters(), wanted(steps(1)), strict=True):
            assert p.grad.dtype == torch.float32 and far(p.grad.full_tensor(), dw) < limit
        torch.optim.AdamW(layer.parameters(), 0.1).step()
    m.close()


def test_the_fallback_takes_float64(alone):
    inputs = [t.double().requires_grad_() for t in steps(1, 3)[0][:3]]
    assert torch.autograd.gradcheck(alone.up.fallback, inputs, fast_mode=True)
