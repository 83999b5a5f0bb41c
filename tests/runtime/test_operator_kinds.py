"""What torch sees of every kind of op, on one CPU rank: two axes, all_to_all, packed weights, weights gathered ahead,
small all-reduces. One table of checks for all of them; gathers and reductions alone are in test_operator.py."""

import copy
import gc
import pickle
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

from chunkdsl.pipeline import check_source
from chunkdsl.render.module import render_module
from chunkdsl.runtime.apart import share_memory
from chunkdsl.runtime.known import Known
from chunkdsl.source import Source
from chunkdsl.verify.verify import load

ONE = """mesh tp[2] over nvlink
dim M = 1..32
dim H = 16
dim F = 32
tensor x : bf16[M @ tp, H]
tensor n : bf16[M, F @ tp]
tensor t : bf16[2, F @ tp, H]
tensor o : bf16[H, F]
tensor q : bf16[F @ tp, H]
tensor p : bf16[M, H] sum tp
tensor r : bf16[M, H]
tensor g : bf16[H]
op packed(x, t) -> y {
    a = all_gather(x)
    y = swiglu(a @ t[0].T, a @ t[1].T)
}
gradient packed -> dx, dt
op dealt(n, o) -> y { y = all_to_all(n, F -> M) @ o.T }
gradient dealt -> dn, do
op ahead(x, q) -> y { y = x @ all_gather(q).T }
gradient ahead -> dx, dq as f32
op small(p, g) -> y { y = rms_norm(all_reduce(p), g) with decode }
gradient small -> dp, dg
op both(x, q) -> y, z {
    y = all_gather(x) @ q.T
    z = relu(y)
}
gradient both -> dx, dq
op updates(p, r inout, g) -> y {
    r = r + all_reduce(p) with decode
    y = rms_norm(r, g)
}
"""
TWO = """mesh dp[2], tp[2] over nvlink
dim M = 1..32
dim H = 16
dim F = 32
tensor x : bf16[M @ (dp, tp), H]
tensor w : bf16[F @ tp, H]
tensor v : bf16[H, F @ tp]
op axes(x, w, v) -> y { y = reduce_scatter(gelu(all_gather(x, over = tp) @ w.T) @ v.T, M, over = tp) }
gradient axes -> dx, dw, dv
"""
SHAPES = {"x": (6, 16), "n": (6, 32), "t": (2, 32, 16), "o": (16, 32), "q": (32, 16), "p": (6, 16), "r": (6, 16),
          "g": (16,), "w": (32, 16), "v": (16, 32)}  # fmt: skip
OPS = ("packed", "dealt", "ahead", "small", "updates", "axes")
TRAINED = ("packed", "dealt", "ahead", "small", "axes")
FLOPS = {"packed": 4 * 6 * 16 * 32, "dealt": 2 * 6 * 32 * 16, "ahead": 2 * 6 * 16 * 32, "axes": 4 * 6 * 16 * 32}

pytestmark = pytest.mark.filterwarnings("ignore:.*runs its fallback:RuntimeWarning")


@pytest.fixture(scope="module")
def ops(tmp_path_factory):
    """{name: op of an instance}"""
    folder = tmp_path_factory.mktemp("kinds")
    store = dist.FileStore(str(folder / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    made = []
    for name, text, world in (("one", ONE, 1), ("two", TWO, (1, 1))):
        checked = check_source(Source(f"{name}.chunk", text))
        assert not checked.report.failed, [d.message for d in checked.report.diagnostics]
        module = load(render_module(checked.schedule, (world,)), folder, name)
        mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp")) if name == "two" else None
        made.append(getattr(module, name.title())(mesh=mesh))
    yield {name: getattr(m, name) for m in made for name in OPS if hasattr(m, name)}
    for m in made:
        m.close()
    made.clear()
    gc.collect()
    dist.destroy_process_group()


def inputs(op, dtype=torch.bfloat16, grad=False):
    g = torch.Generator().manual_seed(0)
    made = [(torch.randn(SHAPES[n], generator=g) * 0.5).to(dtype) for n in op.PARAMETERS]
    return [t.requires_grad_(grad) for t in made]


def called(op, *tensors):
    """Results, and what the call left in tensors that it updates."""
    y = op(*tensors)
    return (y, *(tensors[i] for i, n in enumerate(op.PARAMETERS) if n in op.INOUT))


@pytest.mark.parametrize("name", OPS)
def test_opcheck_passes(ops, name):
    op = ops[name]
    forward = op.partner(op.FORWARD or name)
    if forward is not op or not op.FORWARD:
        torch.library.opcheck(op.operator, (*inputs(op), op.number, None))
    torch.library.opcheck(op.operator_into, (*inputs(op), torch.empty_like(op(*inputs(op))), op.number, None))
    if op.FORWARD:
        torch.library.opcheck(forward.operator, (*inputs(op, grad=True), forward.number, None))
        backward = forward.partner(forward.BACKWARD[0])
        shapes = [[n if isinstance(n, int) else 6 for n, *_ in shape] for _, shape in backward.PARAMETERS.values()]
        made = [torch.randn(s).to(d) for s, (d, _) in zip(shapes, backward.PARAMETERS.values(), strict=True)]
        torch.library.opcheck(backward.operator, (*made, backward.number, None))


@pytest.mark.parametrize("name", OPS)
def test_one_graph_autocast_flops_and_deterministic_mode(ops, name):
    op = ops[name]
    plain = called(op, *inputs(op))

    def step(*tensors):
        return called(op, *(torch.relu(t) for t in tensors))

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    assert all(torch.equal(a, b) for a, b in zip(compiled(*inputs(op)), step(*inputs(op)), strict=True))
    if not op.INOUT:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cast = op(*inputs(op, torch.float32))
        assert cast.dtype == torch.bfloat16 and torch.equal(cast, plain[0])
    with FlopCounterMode(display=False) as counter:
        op(*inputs(op))
    assert counter.get_total_flops() == FLOPS.get(name, 0)
    torch.use_deterministic_algorithms(True)
    try:
        again = called(op, *inputs(op))
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(again, plain, strict=True))


@pytest.mark.parametrize("name", TRAINED)
def test_training_compiles_whole_and_runs_under_checkpoints_and_functional_call(ops, name):
    op = ops[name]

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            _, *weights = inputs(op)
            self.weights = torch.nn.ParameterList(weights)

        def forward(self, x):
            return op(x, *self.weights).float().square()

    def gradients(run, layer):
        x = inputs(op)[0].requires_grad_()
        run(x).sum().backward()
        return [x.grad, *(p.grad for p in layer.parameters())]

    def keep(context, operator, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if operator is op.operator else CheckpointPolicy.PREFER_RECOMPUTE

    wanted = gradients(layer := Layer(), layer)
    selective = dict(use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(keep))
    for wrap in (
        lambda layer: torch.compile(layer, backend="aot_eager", fullgraph=True),
        lambda layer: lambda x: checkpoint(layer, x, use_reentrant=False),
        lambda layer: lambda x: checkpoint(layer, x, **selective),
        lambda layer: lambda x: torch.func.functional_call(layer, dict(layer.named_parameters()), x),
    ):
        found = gradients(wrap(layer := Layer()), layer)
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


SAID = {
    "ahead": "OpLayer(One.ahead(x) -> y, q=bfloat16[32, 16] S(0), ranks=1)",
    "axes": "OpLayer(Two.axes(x) -> y, w=bfloat16[32, 16] S(0), v=bfloat16[16, 32] S(1), ranks=1)",
}


@pytest.mark.parametrize("name", ["ahead", "axes"])
def test_a_layer_compiles_whole_and_copies_share_nothing_but_the_instance(ops, name):
    op = ops[name]
    layer = op.as_module(list(op.PARAMETERS)[1:], seed=1, std=0.5)
    x = inputs(op)[0]
    y = layer(x)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)(x)
    assert type(compiled) is type(y) is torch.Tensor and torch.equal(compiled, y)
    twin = copy.deepcopy(layer)
    twin(x).float().sum().backward()
    assert twin.operation is layer.operation and torch.equal(twin(x), y)
    for (n, p), mine in zip(twin.named_parameters(), layer.parameters(), strict=True):
        assert p is not mine and mine.grad is None and p.grad.dtype == op.gradient_dtypes()[n]
        torch.nn.init.zeros_(p)
    assert torch.equal(layer(x), y) and not torch.equal(twin(x), y)
    assert repr(layer) == SAID[name] and repr(ops["dealt"]) == "One.dealt(n, o) -> y"
    with pytest.raises(TypeError, match=rf"{name} belongs to this process .* save the state_dict"):
        pickle.dumps(layer)
    assert copy.copy(op) is op and copy.deepcopy({"m": op.module})["m"] is op.module
    with pytest.raises(TypeError, match=rf"{name} as a layer takes 1 tensors \(\w+\), not 2"):
        layer(x, x)


@pytest.mark.parametrize("name", OPS)
def test_an_out_in_the_memory_of_an_input_is_refused(ops, name):
    """Behind a call that was right, and before anything is changed; of every kind of op."""
    op = ops[name]
    given = inputs(op)
    out = torch.empty_like(op(*inputs(op)))
    assert op(*given, out=out) is out
    memory = torch.zeros(out.numel() + given[0].numel(), dtype=torch.bfloat16)
    given[0] = memory[: given[0].numel()].view_as(given[0])
    bad = memory[given[0].numel() - 8 :][: out.numel()].view_as(out)
    first, result = next(iter(op.PARAMETERS)), next(iter(op.RESULTS))
    for _ in range(2):
        with pytest.raises(ValueError, match=rf"^{name}: out for {result} shares memory with {first}, "):
            op(*given, out=bad)
    assert not memory.any()
    assert op(*given, out=memory[given[0].numel() :][: out.numel()].view_as(out)) is not None


def test_what_is_updated_in_place_is_given_once(ops, monkeypatch):
    """Also in calls that go straight to the library."""
    op, left = ops["updates"], []
    monkeypatch.setattr(op, "leave_peers", left.append)
    p, r, g = inputs(op)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"updates: r, which is updated in place, shares memory with p"):
            op(p, p, g)
        monkeypatch.setattr(op, "meets", False)
        monkeypatch.setattr(op, "verdict", SimpleNamespace(value=0), raising=False)
        monkeypatch.setitem(op.straight, op.key_of((p, r, g), {}), Known(op.straight_call({"M": 6}, (p, r, g))))
    assert not left  # an argument of this rank, and no reason for its peers to give up
    both = torch.zeros(6, 32, dtype=torch.bfloat16)
    assert not share_memory(both[:, :16], both[:, 16:]) and share_memory(both[:, :16], both[:, 15:])
    assert not share_memory(both[:3], both[3:]) and not share_memory(both[:0], both)
    assert share_memory(both[0].expand(6, 32), both[0].expand(6, 32))


def test_a_call_that_is_refused_leaves_nothing_to_be_written_later(ops, monkeypatch):
    """Of a tensor that is not contiguous a copy is updated, and goes back to it in this call or never."""
    op = ops["updates"]
    monkeypatch.setattr(op, "meets", False)  # so that known calls are not bound again, as on GPUs
    p, r, g = inputs(op)
    op(p, r, g)
    odd = r.t().contiguous().t()
    with pytest.raises(RuntimeError):
        op(p, odd, g, out=torch.empty(3, dtype=torch.bfloat16))
    odd.fill_(7)
    op(p, r, g)
    assert (odd == 7).all()


def test_out_takes_no_part_in_a_gradient(ops):
    out = torch.empty(6, 32, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match=r"ahead: out= takes no part in a gradient"):
        ops["ahead"](*inputs(ops["ahead"], grad=True), out=out)
    with torch.no_grad():
        assert ops["ahead"](*inputs(ops["ahead"], grad=True), out=out) is out


def lost(t):
    """A loss whose gradient is not contiguous in memory."""
    return t.double().square().sum() + t.sum()


@pytest.mark.parametrize("name", TRAINED)
def test_transforms_give_the_gradients_of_autograd(ops, name):
    """torch.func.grad, vjp and grad_and_value of a call, of its fallback (float64 too) and of a layer; torch.vmap of a
    gradient is that of one element after the other."""
    op, over = ops[name], tuple(range(len(ops[name].PARAMETERS)))
    for call, dtype in ((op, torch.bfloat16), (op.fallback, torch.bfloat16), (op.fallback, torch.float64)):
        wanted = torch.autograd.grad(lost(call(*(given := inputs(op, dtype, grad=True)))), given)
        given = inputs(op, dtype)
        found = torch.func.grad(lambda *t, call=call: lost(call(*t)), over)(*given)
        valued, y = torch.func.grad_and_value(lambda *t, call=call: lost(call(*t)), over)(*given)
        _, back = torch.func.vjp(lambda *t, call=call: lost(call(*t)), *given)
        for made in (found, valued, back(torch.ones_like(y))):
            assert all(torch.equal(a, b) and a.dtype == dtype for a, b in zip(made, wanted, strict=True))
    for options in ({}, dict(local=True), dict(dtype=torch.float32)):
        layer = op.as_module(list(op.PARAMETERS)[1:], seed=1, std=0.5, **options)
        batch = torch.stack([inputs(op)[0] * k for k in (1, 2)])

        def loss(weights, x, layer=layer):
            return lost(torch.func.functional_call(layer, weights, x))

        wanted = []
        for x in batch:
            layer.zero_grad()
            lost(layer(x)).backward()
            wanted.append({n: p.grad.to(p.dtype) for n, p in layer.named_parameters()})
        weights = {n: p.detach() for n, p in layer.named_parameters()}
        found = torch.func.grad(loss)(weights, batch[1])
        each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, batch)
        for n, t in found.items():
            assert type(t) is type(weights[n]) and torch.equal(t, wanted[1][n])
            assert torch.equal(each[n], torch.stack([w[n] for w in wanted]))


def test_what_has_no_derivative_says_so_and_is_never_left_out(ops):
    """Second derivatives, forward mode, ops without a gradient item, and batches that have no meaning."""
    op, grad = ops["packed"], torch.func.grad
    x, t = inputs(op)
    layer = op.as_module(["t"])
    for call in (op, op.fallback, lambda x, _: layer(x)):
        with pytest.raises(RuntimeError, match="packed_backward has no gradient"):
            grad(lambda x, call=call: lost(grad(lambda x: lost(call(x, t)))(x)))(x)
        given = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(lost(call(given, t)), given, create_graph=True)
        with pytest.raises(RuntimeError, match="packed_backward has no gradient"):
            first.sum().backward()
    for call in (op, op.fallback):
        with pytest.raises(RuntimeError, match="packed has no derivative in forward mode"):
            torch.func.jvp(lambda x, call=call: call(x, t), (x,), (x,))
        with torch.autograd.forward_ad.dual_level(), pytest.raises(RuntimeError, match="no derivative in forward mode"):
            call(torch.autograd.forward_ad.make_dual(x, x), t)
    back = op.partner(op.FORWARD).partner("packed_backward")
    given = [torch.zeros([n if isinstance(n, int) else 6 for n, *_ in s], dtype=d, requires_grad=True)
             for d, s in back.PARAMETERS.values()]  # fmt: skip
    for call in (back, back.fallback):
        with pytest.raises(RuntimeError, match="packed_backward has no gradient"):
            call(*given)[0].sum().backward()
    with pytest.raises(RuntimeError, match="batch of no elements"):
        torch.func.vmap(op, (0, None))(x[None][:0], t)
    with pytest.raises(RuntimeError, match="updates changes r in place: not under"):
        torch.func.vmap(ops["updates"])(*(torch.stack([t, t]) for t in inputs(ops["updates"])))
    placed = layer.placed("t", inputs(op)[1])
    for call in (op, op.fallback):
        with pytest.raises(TypeError, match=r"packed: transforms of torch\.func do not look into DTensors: pass to_"):
            grad(lambda t, call=call: lost(call(x, t)))(placed)


def test_an_op_that_updates_in_place_has_no_gradient_and_says_so(ops):
    """In every mode; what it updates is never a copy, and autograd is told of it."""
    op = ops["updates"]
    p, r, g = inputs(op)
    for call in (op, op.fallback):
        with pytest.raises(RuntimeError, match="updates changes r in place: not under transforms"):
            torch.func.grad(lambda p, call=call: lost(call(p, r, g)))(p)
        with torch.autograd.forward_ad.dual_level(), pytest.raises(RuntimeError, match=r"not under .* forward mode"):
            call(torch.autograd.forward_ad.make_dual(p, p), r, g)
        for i in range(3):
            given = [t.clone().requires_grad_(i == k) for k, t in enumerate(inputs(op))]
            with pytest.raises(RuntimeError, match="updates has no gradient"):
                call(*given).sum().backward()
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(ValueError, match=r"r is torch\.float32, declared as torch\.bfloat16"):
            op(p, r.float(), g)
        assert torch.equal(op(p.float(), twin := r.clone(), g), op(p, r, g)) and torch.equal(twin, r)


def test_whether_ranks_meet_for_whole_weights_is_no_matter_of_the_shape_of_a_shard(ops):
    """Of a dimension of 1 the first rank's shard has the shape of the whole, and the others have nothing."""
    for local in (False, True):
        layer, met = ops["ahead"].as_module(["q"], local=local), []
        layer.placed = lambda *given, met=met, made=layer.placed: met.append(1) or made(*given)
        assert torch.equal(layer.dense()["q"], next(layer.parameters()).view(32, 16)) if local else layer.dense()
        assert len(met) == local


def test_a_result_that_the_loss_does_not_use_counts_as_zeros(ops):
    """Nothing else is made for it, nor for what is only kept for the backward pass."""
    op = ops["packed"].module.both
    x, q = inputs(op)
    layer = op.as_module(["q"], local=True)
    for call in (op, op.fallback, lambda x, _: layer(x)):
        for used in (0, 1):
            found = torch.func.vjp(lambda x, call=call, used=used: call(x, q)[used], x)[1](torch.ones(6, 32).bfloat16())
            given = x.clone().requires_grad_()
            (first,) = torch.autograd.grad(call(given, q)[used].sum(), given)
            assert torch.equal(first, found[0]) and first.abs().sum() > 0
    wide = x.double().requires_grad_()
    for used, wanted in ((0, wide @ q.double().T), (1, (wide @ q.double().T).relu())):
        (got,) = torch.autograd.grad(op.fallback(wide, q.double())[used].sum(), wide)
        torch.testing.assert_close(got, torch.autograd.grad(wanted.sum(), wide)[0])
