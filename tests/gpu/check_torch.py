"""A module with gradients in the hands of torch, on one process for each GPU (or several that share one): what
docs/training.md says of the fallback, with the fused path.

    chunkdsl build tests/gpu/specs/mlp_grad.chunk -o build/gpu        # and ahead_grad, norm_grad
    CHUNKDSL_GPU_BUILD=build/gpu python tests/gpu/check_torch.py mlp_grad [STEM ...] [--world 2] [--device cpu]

A line for each op and scene; exit code 1 if one fails. `--device cpu` runs the scenes on the fallback.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from check_processes import machine_of, start
from local_ranks import refuse_multicast
from modules import inputs, load, results, same
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

ROWS = 1000  # of all ranks: uneven shards, whose size is told


class Case:
    """An op with its gradient and one set of inputs; `eager`: result and gradients, which every way must give."""

    def __init__(self, m, op) -> None:
        self.m, self.op, self.machine = m, op, op.machine
        self.dims = {k: ROWS for k in op.RANGES}
        self.x = [t.requires_grad_() for t in inputs(op, self.dims, self.machine.rank, 3)]
        y = self.call(*self.x)
        self.dy = torch.randn(y.shape, device=y.device, generator=torch.Generator(y.device).manual_seed(5)).to(y.dtype)
        self.eager = (y, *torch.autograd.grad(y, self.x, self.dy))

    def call(self, *x):
        return self.op(*x, **self.dims)

    def graded(self, call):
        y = call(*self.x)
        return (y, *torch.autograd.grad(y, self.x, self.dy))

    def backward(self, x):
        """(backward op, its arguments), made of what the forward pass keeps by `exact`."""
        forward = getattr(self.m, self.op.FORWARD)
        name, sources = forward.BACKWARD
        run = forward.fallback if self.op.why_not else forward.exact
        taken = {"gradient": [self.dy], "input": x, "output": results(run(*x, **self.dims))}
        return getattr(self.m, name), [taken[kind][i] for kind, i in sources]

    def fresh(self):
        return [t.detach().clone().requires_grad_() for t in self.x]

    def equal(self, found, what) -> None:
        for i, (a, b) in enumerate(zip(found, self.eager, strict=True)):
            assert same(a.detach(), b.detach()), f"{what}: {'result' if i == 0 else f'gradient {i - 1}'} differs"


def exact(c: Case) -> None:
    """Result and gradients have the bits of `exact`, and are close to those of the library's fallback."""
    if c.op.why_not:
        return
    assert same(c.eager[0].detach(), c.op.exact(*c.x, **c.dims).detach())
    backward, given = c.backward([t.detach() for t in c.x])
    wanted = results(backward.exact(*given, **c.dims))
    for i, (a, b) in enumerate(zip(c.eager[1:], wanted, strict=True)):
        assert same(a, b.to(a.dtype)), f"gradient {i} is not that of exact"
    for a, b in zip(c.graded(lambda *x: c.op.fallback(*x, **c.dims)), c.eager, strict=True):
        gap = ((a.float() - b.float()).norm() / b.float().norm().clamp_min(1e-9)).item()
        assert not a.numel() or gap < 2e-2, f"fallback is {gap:.1e} apart"


def opcheck(c: Case) -> None:
    """torch.library.opcheck on this device: schema, fake implementation, autograd, what AOT makes of it. The op, the op
    that its forward pass is (its inputs require gradients, so that the backward op is traced with it), that backward op
    itself, and what writes into a result of the caller's."""
    sizes = [c.dims[k] for k in c.op.RANGES]
    detached = [t.detach() for t in c.x]
    torch.library.opcheck(c.op.operator, (*detached, c.op.number, *sizes))
    forward = getattr(c.m, c.op.FORWARD)
    torch.library.opcheck(forward.operator, (*c.fresh(), forward.number, *sizes))
    backward, given = c.backward(detached)
    torch.library.opcheck(backward.operator, (*given, backward.number, *sizes))
    for op, tensors in ((c.op, detached), (backward, given)):
        outs = [torch.empty_like(t) for t in results(op(*tensors, **c.dims))]
        torch.library.opcheck(op.operator_into, (*tensors, *outs, op.number, *sizes))


def compiled(c: Case) -> None:
    """One graph without breaks, forward and backward, by Inductor."""
    torch._dynamo.reset()
    call = torch.compile(lambda *x: c.call(*x) * 1, fullgraph=True, backend=os.environ.get("BACKEND", "inductor"))
    c.equal(c.graded(call), "compiled")
    c.equal(c.graded(call), "compiled again")


def recorded(c: Case) -> None:
    """What torch.compile(mode="reduce-overhead") makes of it: graphs of its own, of forward and backward pass."""
    if c.machine.device.type != "cuda":
        return
    torch._dynamo.reset()
    call = torch.compile(lambda *x: c.call(*x) * 1, fullgraph=True, mode="reduce-overhead")
    for step in range(4):  # warm, recorded, replayed twice
        torch.compiler.cudagraph_mark_step_begin()
        c.equal(c.graded(call), f"step {step}")
        c.machine.barrier()


def graphed(c: Case) -> None:
    """A CUDA graph of forward and backward pass, replayed with new data."""
    if c.machine.device.type != "cuda":
        return
    x, dy, stream = c.fresh(), c.dy.clone(), torch.cuda.Stream()

    def run():
        y = c.call(*x)
        return (y, *torch.autograd.grad(y, x, dy))

    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    c.machine.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        found = run()
    for seed in (11, 3):
        with torch.no_grad():
            for t, new in zip(x, inputs(c.op, c.dims, c.machine.rank, seed), strict=True):
                t.copy_(new)
        c.machine.barrier()
        graph.replay()
        torch.cuda.synchronize()
    c.equal(found, "replayed")


def checkpointed(c: Case) -> None:
    """Activation checkpointing: all of it again, and a policy that keeps what the op has made."""
    c.equal(c.graded(lambda *x: checkpoint(c.call, *x, use_reentrant=False)), "checkpointed")
    kept = {getattr(c.m, name).operator for name in (c.op.NAME, c.op.FORWARD)}

    def policy(context, operator, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if operator in kept else CheckpointPolicy.PREFER_RECOMPUTE

    def contexts():
        return create_selective_checkpoint_contexts(policy)

    c.equal(c.graded(lambda *x: checkpoint(c.call, *x, use_reentrant=False, context_fn=contexts)), "selective")


def modes(c: Case) -> None:
    """Autocast from f32, deterministic mode, a flop counter."""
    wide = [t.detach().float().requires_grad_() for t in c.x]
    with torch.autocast(c.machine.device.type, dtype=torch.bfloat16):
        y = c.call(*wide)
    found = torch.autograd.grad(y, wide, c.dy)
    c.equal((y, *(g.to(t.dtype) for g, t in zip(found, c.eager[1:], strict=True))), "autocast")
    torch.use_deterministic_algorithms(True)
    try:
        c.equal(c.graded(c.call), "deterministic")
    finally:
        torch.use_deterministic_algorithms(False)
    with FlopCounterMode(display=False) as counter:
        c.call(*c.x)
    assert counter.get_total_flops() > 0 or not c.x[0].numel()


def transformed(c: Case) -> None:
    """torch.func: vjp of the op, grad of a layer's weights, and of each of two batches what one call gives."""
    detached = [t.detach() for t in c.x]
    y, back = torch.func.vjp(c.call, *detached)
    c.equal((y, *back(c.dy)), "vjp")
    layer = c.op.as_module(list(c.op.PARAMETERS)[1:], seed=7)
    weights = {k: p.detach() for k, p in layer.named_parameters()}

    def loss(weights, x):
        return (torch.func.functional_call(layer, weights, (x,), c.dims) * c.dy).float().sum()

    loss(dict(layer.named_parameters()), detached[0]).backward()
    found = torch.func.grad(loss)(weights, detached[0])
    batch = torch.stack([detached[0]] * 2)
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, batch)
    for k, p in layer.named_parameters():
        kept = p.grad.to_local().to(p.dtype)
        assert same(found[k].to_local(), kept), f"grad of a layer: {k}"
        assert all(same(each[k][i].to_local(), kept) for i in range(2)), f"vmap of grad of a layer: {k}"


def layered(c: Case) -> None:
    """as_module: dense weights in and out, functional_call, a distributed checkpoint, and one compiled graph; with f32
    parameters, whose gradients a compiled graph does not round."""
    names = list(c.op.PARAMETERS)[1:]
    wide = dict(dtype=torch.float32)
    layer = c.op.as_module(names, seed=7, **wide)
    dense = layer.dense()
    other = c.op.as_module(names, seed=8, **wide)
    other.load_dense(dense)
    y = layer(c.x[0], **c.dims)
    assert same(other(c.x[0], **c.dims).detach(), y.detach())
    values = {k: p.detach() for k, p in layer.named_parameters()}
    third = c.op.as_module(names, seed=9, **wide)
    assert same(torch.func.functional_call(third, values, (c.x[0],), c.dims).detach(), y.detach())
    where = [tempfile.mkdtemp()]
    dist.broadcast_object_list(where)
    dcp.save(layer.state_dict(), checkpoint_id=where[0])
    state = third.state_dict()
    dcp.load(state, checkpoint_id=where[0])
    third.load_state_dict(state)
    assert all(torch.equal(a, b) for a, b in zip(third.dense().values(), dense.values(), strict=True))
    y.backward(c.dy)
    torch._dynamo.reset()
    torch.compile(other, fullgraph=True, backend="aot_eager")(c.x[0], **c.dims).backward(c.dy)
    for (k, p), q in zip(layer.named_parameters(), other.parameters(), strict=True):
        assert same(p.grad.to_local(), q.grad.to_local()), f"compiled layer: gradient of {k}"


def hooked(c: Case) -> None:
    """A layer's gradients of two calls, added up in `.grad`: of halves and of f32 parameters, as DTensors and as
    shards, with hooks, and stepped by a fused AdamW where they are f32. All have the bits of the op's own gradients."""
    names = list(c.op.PARAMETERS)[1:]
    dtypes = c.op.gradient_dtypes()
    for options in ({}, dict(dtype=torch.float32), dict(local=True), dict(local=True, dtype=torch.float32)):
        layer, seen = c.op.as_module(names, seed=7, **options), []
        local = {n: getattr(p, "_local_tensor", p).detach() for n, p in layer.named_parameters()}
        halves = [local[n].to(c.op.PARAMETERS[n][0]).requires_grad_() for n in names]
        for n, t in zip(names, halves, strict=True):
            t.grad_dtype = dtypes[n]
        alone = torch.autograd.grad(c.call(c.x[0], *halves), halves, c.dy)
        for p in layer.parameters():
            p.register_hook(lambda g, seen=seen: seen.append(g.dtype))
        for _ in range(2):
            layer(c.x[0], **c.dims).backward(c.dy)
        assert len(seen) == 2 * len(names)
        for n, g in zip(names, alone, strict=True):
            found = getattr(layer, n).grad
            found = found.to_local() if hasattr(found, "to_local") else found
            kept = layer.summed(n, g, False)
            assert found.dtype == torch.promote_types(dtypes[n], getattr(layer, n).dtype), n
            assert same(found, (kept.to(found.dtype) * 2)), f"gradient of {n} with {options}"
        if "dtype" in options:
            torch.optim.AdamW(layer.parameters(), fused=True).step()


def parallel(c: Case) -> None:
    """DistributedDataParallel over all ranks around a layer on one: the mean of the ranks' gradients."""
    mesh = init_device_mesh(c.machine.device.type, (c.machine.world, 1), mesh_dim_names=("dp", "tp"))
    m = type(c.m)(mesh=mesh["tp"], timeout=30.0, **c.dims)
    op = getattr(m, c.op.NAME)
    layer = op.as_module(list(c.op.PARAMETERS)[1:], seed=7, dtype=torch.float32, local=True)
    model = DistributedDataParallel(layer, process_group=mesh["dp"].get_group())
    rows = inputs(op, c.dims, c.machine.rank, 3)[0].clone()
    y = layer(rows, **c.dims)
    own = torch.autograd.grad(y, list(layer.parameters()), torch.ones_like(y))
    y = model(rows, **c.dims)
    y.backward(torch.ones_like(y))
    for (k, p), g in zip(layer.named_parameters(), own, strict=True):
        dist.all_reduce(g)
        gap = (p.grad - g / c.machine.world).norm() / g.norm().clamp_min(1e-9)
        assert gap < 1e-5, f"DistributedDataParallel: gradient of {k} is {gap.item():.1e} apart"
    m.check()
    m.close()


def sharded(c: Case) -> None:
    """FSDP2 around a layer, data parallel over all ranks: the op runs on one rank, its weights are cut again."""
    mesh = init_device_mesh(c.machine.device.type, (c.machine.world, 1), mesh_dim_names=("dp", "tp"))
    m = type(c.m)(mesh=mesh["tp"], timeout=30.0, **c.dims)
    layer = getattr(m, c.op.NAME).as_module(list(c.op.PARAMETERS)[1:], seed=7)
    wanted = {k: p.detach().to_local().clone() for k, p in layer.named_parameters()}
    rows = inputs(getattr(m, c.op.NAME), c.dims, 0, 3)[0].clone()
    y = layer(rows, **c.dims)
    dy = torch.ones_like(y)
    grads = torch.autograd.grad(y, list(layer.parameters()), dy)
    fully_shard(layer, mesh=mesh["dp"])
    again = layer(rows, **c.dims)
    assert same(again.detach(), y.detach())
    again.backward(dy)
    for (k, p), g in zip(layer.named_parameters(), grads, strict=True):
        assert p.full_tensor().shape == wanted[k].shape and torch.equal(p.full_tensor(), wanted[k])
        g = g.to_local().float()
        gap = (p.grad.full_tensor().float() - g).norm() / g.norm().clamp_min(1e-9)
        assert gap < 2e-2, f"FSDP2: gradient of {k} is {gap.item():.1e} apart"
    m.check()
    m.close()


SCENES = (exact, opcheck, compiled, recorded, graphed, checkpointed, modes, transformed, layered, hooked, sharded,
          parallel)  # fmt: skip


def main_rank(rank: int, world: int, args) -> None:
    warnings.filterwarnings("ignore")
    if args.device == "cpu":
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
        dist.init_process_group("gloo", rank=rank, world_size=world)
        options = dict(device="cpu")
    else:
        start(rank, world, args.port)
    wrong, begin = 0, time.monotonic()
    for stem in args.stems:
        cls = load(stem)
        if args.device != "cpu":
            options = dict(machine=machine_of(None))  # closed with its instance
        m = cls(timeout=30.0, **{k: min(high, 2048) for k, (_, high, _) in cls.RANGES.items()}, **options)
        for name in cls.OPS:
            op = getattr(m, name)
            if not getattr(op, "FORWARD", None):  # not an op of a gradient item, or what such an op calls
                continue
            c = Case(m, op)
            path = "fallback" if op.why_not else "fused"
            for scene in SCENES:
                if args.scenes and scene.__name__ not in args.scenes.split(","):
                    continue
                try:
                    scene(c)
                    said = "ok"
                except Exception as error:
                    said = f"{type(error).__name__}: {str(error)[:600]}"
                    wrong += 1
                    if args.trace:
                        traceback.print_exc()
                said = [said] * world
                dist.all_gather_object(said, said[rank])
                if rank == 0:
                    verdict = "ok" if set(said) == {"ok"} else f"NOT: {said}"
                    print(f"{stem}.{name} {world} ranks, {path}: {scene.__name__} {verdict} "
                          f"({time.monotonic() - begin:.0f} s)", flush=True)  # fmt: skip
        m.check()
        m.close()
    sys.stdout.flush()
    os._exit(wrong > 0)


def main() -> int:
    refuse_multicast()
    parser = argparse.ArgumentParser()
    parser.add_argument("stems", nargs="+")
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scenes", default="")
    parser.add_argument("--port", type=int, default=29541)
    parser.add_argument("--trace", action="store_true")
    args = parser.parse_args()
    try:
        mp.spawn(main_rank, args=(args.world, args), nprocs=args.world)
    except mp.ProcessExitedException:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
