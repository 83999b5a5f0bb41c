"""What each of four processes checks of modules with DTensors: calls, layers, FSDP2 on dp x tp, parallelize_module."""

import copy

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

TWO_AXES = """mesh dp[2], tp[2]
dim M = 0..64
dim H = 16
dim F = 32
tensor x  : f32[M @ (dp, tp), H]
tensor w  : f32[F @ tp, H]
tensor v  : f32[H, F @ tp]
tensor c  : f32[H]
op mlp(x, w, v, c) -> y { y = reduce_scatter(gelu(all_gather(x, over = tp) @ w.T) @ v.T, M, over = tp) + c }
gradient mlp -> dx, dw, dv, dc
"""
ONE_AXIS = TWO_AXES.replace("dp[2], ", "").replace("(dp, tp)", "tp")
WEIGHTS = ("w", "v", "c")


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def dense(x, weights, dy):
    """(result, gradient of x, gradients of the weights) of the whole model by autograd."""
    x, (w, v, c) = x.clone().requires_grad_(), (weights[n].clone().requires_grad_() for n in WEIGHTS)
    y = torch.nn.functional.gelu(x @ w.T) @ v.T + c
    y.backward(dy)
    return y.detach(), x.grad, {"w": w.grad, "v": v.grad, "c": c.grad}


def refusal(call):
    try:
        call()
    except ValueError as error:
        return str(error)
    raise AssertionError("it was taken")


def check(two, one, mesh):
    g = torch.Generator().manual_seed(3)
    weights = {n: torch.randn(s, generator=g) * 0.3 for n, s in zip(WEIGHTS, ((32, 16), (16, 32), (16,)), strict=True)}
    x, dy = torch.randn(13, 16, generator=g), torch.randn(13, 16, generator=g)
    y, dx, grads = dense(x, weights, dy)
    m = two(mesh=mesh, device="cpu", M=64)
    spread = check_calls(m, mesh, x, dy, weights, (y, dx, grads))
    check_layer(m, mesh, spread, dy, weights, grads)
    check_data_parallel(m, mesh, spread, dy, weights, grads)
    m.close()
    check_submesh(one, mesh, x, dy, weights, grads)


def check_calls(m, mesh, x, dy, weights, wanted):
    """DTensors in, DTensors out; 13 rows are uneven, and nobody says so. Gradients end placed as their tensors are."""
    y, dx, grads = wanted
    assert m.placements["x"] == (Shard(0), Shard(0)) and type(m).placements["w"] == (Replicate(), Shard(0))
    assert m.mlp_backward.placements["dw"][0].is_partial() and set(m.placements) == {"x", *WEIGHTS}
    spread = distribute_tensor(x, mesh, m.placements["x"]).requires_grad_()
    held = {n: distribute_tensor(t, mesh, m.placements[n]).requires_grad_() for n, t in weights.items()}
    for call in (m.mlp, m.mlp.fallback):
        got = call(spread, *held.values())
        assert got.placements == m.mlp.placements["y"] and got.shape == (13, 16)
        close(got.full_tensor(), y)
    got.backward(distribute_tensor(dy, mesh, m.placements["x"]))
    close(spread.grad.full_tensor(), dx)
    for n, t in held.items():
        assert t.grad.placements == t.placements  # summed over dp and, of c, over tp
        close(t.grad.full_tensor(), grads[n])
    wrong = distribute_tensor(x, mesh, [Replicate(), Shard(0)])
    assert "x is placed (R, S(0)), declared as (S(0), S(0)); redistribute it to mlp.placements['x']" in refusal(
        lambda: m.mlp(wrong, *held.values())
    )
    part = distribute_tensor(x, mesh["tp"], [Shard(0)])
    there = f"x is on a mesh of ranks {part.device_mesh.mesh.tolist()}, this instance on [[0, 1], [2, 3]]"
    assert there in refusal(lambda: m.mlp(part, *held.values()))
    assert "M = 12, and x has 13 along it" in refusal(lambda: m.mlp(spread, *held.values(), M=12))
    assert "out= is for local tensors" in refusal(lambda: m.mlp(spread, *held.values(), out=x))
    return spread.detach()


def check_layer(m, mesh, spread, dy, weights, grads):
    """Parameters lie on tp; the sum over dp is the caller's, and FSDP2 is such a caller."""
    layer = m.mlp.as_module(WEIGHTS, seed=5, std=0.3)
    drawn = torch.Generator().manual_seed(5)  # whole tensors, whatever the ranks
    for t in layer.dense().values():
        assert torch.equal(t, torch.randn(t.shape, generator=drawn) * 0.3 if t.dim() > 1 else torch.zeros(t.shape))
    layer.load_dense(weights)
    assert all(torch.equal(t, weights[n]) for n, t in layer.dense().items())
    assert all(p.device_mesh.mesh_dim_names == ("tp",) for p in layer.parameters())
    mine, dmine = spread.to_local(), distribute_tensor(dy, mesh, m.placements["x"]).to_local()
    layer(mine, M=13).backward(dmine)
    for n, p in layer.named_parameters():
        assert p.grad.placements == p.placements
        total = p.grad.full_tensor()
        dist.all_reduce(total, group=mesh["dp"].get_group())
        close(total, grads[n])
        local = p.to_local()
        assert local.untyped_storage().nbytes() == local.nbytes  # a shard, not a view of the whole that was drawn
    twin = copy.deepcopy(layer)
    for p, copied in zip(layer.parameters(), twin.parameters(), strict=True):
        assert torch.equal(p.to_local(), copied.to_local()) and torch.equal(p.grad.to_local(), copied.grad.to_local())
        assert p.to_local().data_ptr() != copied.to_local().data_ptr()
    check_transforms(layer, mine, dmine)
    check_deferred(m, mesh, weights)
    layer.zero_grad()
    sharded(layer, mesh)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    layer(spread).backward(distribute_tensor(dy, mesh, m.placements["x"]))
    optimizer.step()
    state = get_model_state_dict(layer, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=False))
    whole = layer.dense()
    for n in WEIGHTS:
        close(whole[n], weights[n] - 0.1 * grads[n])
        if dist.get_rank() == 0:
            close(state[n], whole[n])


def check_transforms(layer, x, dy):
    """torch.func over a layer's DTensor parameters gives what autograd gives."""
    held = dict(layer.named_parameters())
    wanted = dict(zip(held, torch.autograd.grad(layer(x, M=13), list(held.values()), dy), strict=True))
    _, back = torch.func.vjp(lambda held: torch.func.functional_call(layer, held, (x,), {"M": 13}), held)
    for n, g in back(dy)[0].items():
        assert g.placements == held[n].placements and torch.equal(g.to_local(), wanted[n].to_local())


def check_deferred(m, mesh, weights):
    """Layers made on "meta", cut by FSDP, and only then given memory and values: those of the seed, or dense ones."""
    wanted = m.mlp.as_module(WEIGHTS, seed=7).dense()
    for options in ({}, {"local": True}):
        with torch.device("meta"):
            layer = m.mlp.as_module(WEIGHTS, seed=7, **options)
        assert all(p.is_meta for p in layer.parameters())
        fully_shard(layer, mesh=mesh["dp"])
        layer.to_empty(device="cpu")
        layer.reset_parameters()
        assert all(torch.equal(t, wanted[n]) for n, t in layer.dense().items())
        layer.load_dense({n: t.clone().requires_grad_() * 1 for n, t in weights.items()})
        assert all(torch.equal(t, weights[n]) for n, t in layer.dense().items())


def check_data_parallel(m, mesh, spread, dy, weights, grads):
    """DistributedDataParallel over dp takes parameters that are ordinary tensors: shards on tp, whose gradients the
    layer adds up over tp where they need it. It averages over dp, and with no_sync() only in the last micro-batch."""
    layer = m.mlp.as_module(WEIGHTS, local=True)
    layer.load_dense(weights)
    model = DistributedDataParallel(layer, process_group=mesh["dp"].get_group())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    mine, dmine = spread.to_local(), distribute_tensor(dy, mesh, m.placements["x"]).to_local()
    with model.no_sync():
        model(mine, M=13).backward(dmine)
    model(mine, M=13).backward(dmine)
    optimizer.step()
    state = {n: t.clone() for n, t in layer.state_dict().items()}
    assert state["w"].shape == (16, 16) and type(layer.w.data) is torch.Tensor
    for n, t in layer.dense().items():
        close(t, weights[n] - 0.1 * grads[n])
    other = m.mlp.as_module(WEIGHTS, local=True, seed=1)
    other.load_state_dict(state)
    assert all(torch.equal(a, b) for a, b in zip(other.dense().values(), layer.dense().values(), strict=True))


def sharded(layer, mesh):
    """FSDP2 over dp. It averages by default; a loss that is a sum over all tokens wants a sum."""
    fully_shard(layer, mesh=mesh["dp"])
    layer.set_force_sum_reduction_for_comms(True)  # gloo has no sums that scale
    layer.set_gradient_divide_factor(1.0)
    assert all(p.device_mesh.mesh_dim_names == ("dp", "tp") for p in layer.parameters())


def check_submesh(one, mesh, x, dy, weights, grads):
    """A module of one axis on tp of the same mesh, behind a norm that parallelize_module has made sequence parallel."""
    m = one(mesh=mesh["tp"], device="cpu", M=64)
    layer = m.mlp.as_module(WEIGHTS)
    layer.load_dense(weights)
    model = torch.nn.Sequential(torch.nn.LayerNorm(16), layer)
    parallelize_module(model, mesh["tp"], {"0": SequenceParallel(sequence_dim=0)})
    sharded(layer, mesh)
    mine, dmine = (distribute_tensor(t.chunk(2)[mesh["dp"].get_local_rank()], mesh["tp"], [Shard(0)]) for t in (x, dy))
    out = model(mine)
    assert isinstance(out, DTensor) and out.placements == (Shard(0),)
    out.backward(dmine)
    _, _, after_norm = dense(torch.nn.functional.layer_norm(x, (16,)), weights, dy)
    for n, p in layer.named_parameters():
        close(p.grad.full_tensor(), after_norm[n])
    m.close()
