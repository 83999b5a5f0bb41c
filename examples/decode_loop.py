"""A decode-shaped loop: the layers of a Llama-like model on random weights, tensor-parallel, one step for a few tokens,
with the all-reduces of the module of specs/decode_all_reduce.chunk, and with those of the library.

    torchrun --nproc-per-node 2 examples/decode_loop.py

A layer is attention (projections around a cache of keys and values) and an MLP; each ends in a row-parallel product, an
all-reduce, the residual and an RMSNorm. On GPUs a step is one CUDA graph, and the time of a step with each kind of
all-reduce is printed; without GPUs the module runs its fallback on gloo. Sizes are those of Llama-3.1-8B, of which
--layers and --width take less. Where chunkdsl is not installed, --module names a module that was built elsewhere.

Exit codes: 0 all kinds agree, 1 they do not, 2 it could not run.
"""

import argparse
import statistics
import sys
import time
import warnings
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.distributed as dist
import torch.nn.functional as F
from ranks import CannotRun, add_module_arguments, built_module, load, on_ranks

EPS = 1e-5


@dataclass(frozen=True)
class Shape:
    """A model: Llama-3.1-8B has 32 layers, 32 query and 8 key heads of 128, and an MLP of 14336."""

    hidden: int = 4096
    width: int = 14336
    heads: int = 32
    key_heads: int = 8
    layers: int = 32
    cache: int = 512


class Layer:
    """One layer's share of a rank: every `world`-th part of the heads and of the MLP."""

    def __init__(self, shape: Shape, world: int, device, dtype):
        def weights(rows, cols):
            return torch.randn(rows, cols, device=device, dtype=dtype) * cols**-0.5

        head = shape.hidden // shape.heads
        self.heads, self.key_heads, self.head = shape.heads // world, shape.key_heads // world, head
        self.qkv = weights((self.heads + 2 * self.key_heads) * head, shape.hidden)
        self.out = weights(shape.hidden, self.heads * head) * 0.1
        self.up = weights(2 * shape.width // world, shape.hidden)
        self.down = weights(shape.hidden, shape.width // world) * 0.1
        self.keys = torch.randn(1, self.key_heads, shape.cache, head, device=device, dtype=dtype)
        self.values = torch.randn_like(self.keys)

    def attend(self, x):
        """Addend of the attention of `x` [tokens, hidden], over the cache alone."""
        queries = (x @ self.qkv.T)[:, : self.heads * self.head].view(-1, self.heads, 1, self.head)
        keys, values = (t.expand(x.shape[0], -1, -1, -1) for t in (self.keys, self.values))
        found = F.scaled_dot_product_attention(queries, keys, values, enable_gqa=True)
        return found.reshape(x.shape[0], -1) @ self.out.T

    def feed(self, x):
        """Addend of the MLP."""
        gate, up = (x @ self.up.T).chunk(2, dim=-1)
        return (F.silu(gate) * up) @ self.down.T


class Step:
    """One step of decoding. `reduce(p, residual, scale)` adds p over the ranks to the residual, in place, and returns
    the normalised residual."""

    def __init__(self, shape: Shape, tokens: int, world: int, rank: int, device, dtype):
        torch.manual_seed(1 + rank)
        self.layers = [Layer(shape, world, device, dtype) for _ in range(shape.layers)]
        torch.manual_seed(0)
        self.scale = torch.rand(shape.hidden, device=device, dtype=dtype) + 0.5
        self.start = torch.randn(tokens, shape.hidden, device=device, dtype=dtype)
        self.residual = self.start.clone()

    def run(self, reduce):
        self.residual.copy_(self.start)
        x = F.rms_norm(self.residual, self.scale.shape, self.scale, EPS)
        for layer in self.layers:
            x = reduce(layer.attend(x), self.residual, self.scale)
            x = reduce(layer.feed(x), self.residual, self.scale)
        return x


def with_norm(total):
    """`reduce` from an all-reduce alone: the residual and the norm are launches of their own."""

    def reduce(p, residual, scale):
        residual.add_(total(p))
        return F.rms_norm(residual, scale.shape, scale, EPS)

    return reduce


def kinds(module, world, device, dtype, tokens, hidden):
    """Name -> reduce."""

    def library(p):
        dist.all_reduce(p)
        return p

    found = {"library": with_norm(library), "ours": module.ar_norm, "ours, norm apart": with_norm(module.ar)}
    if device.type == "cuda":
        found |= torch_one_shot(dtype, device, tokens, hidden)
        found["no all-reduce"] = with_norm(lambda p: p)
    return found


def torch_one_shot(dtype, device, tokens, hidden):
    """torch's own all-reduce over symmetric memory, of a copy there."""
    import torch.distributed._symmetric_memory as symm

    name = dist.group.WORLD.group_name
    shared = symm.empty(tokens, hidden, dtype=dtype, device=device)
    symm.rendezvous(shared, name)

    def total(p):
        shared.copy_(p)
        return torch.ops.symm_mem.one_shot_all_reduce(shared, "sum", name)

    return {"torch one_shot": with_norm(total)}


def capture(call):
    """A graph of one step. Warmed up first."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = call()
    return graph, value


def measure(graph, rounds):
    """Microseconds of a replay: the median of `rounds`, of the slower rank."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(rounds + 1)]
    graph.replay()
    torch.cuda.synchronize()
    dist.barrier()
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    times = [a.elapsed_time(b) * 1e3 for a, b in pairwise(events)]
    slowest = torch.tensor(statistics.median(times), device="cuda")
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.item()


def compare(module, shape, tokens, rank, world, device, rounds):
    """(microseconds of a step by kind, relative gaps to the library's result by kind)."""
    dtype = torch.bfloat16
    step = Step(shape, tokens, world, rank, device, dtype)
    times, results = {}, {}
    with torch.inference_mode():
        for name, reduce in kinds(module, world, device, dtype, tokens, shape.hidden).items():
            if device.type == "cuda":
                graph, value = capture(lambda reduce=reduce: step.run(reduce))
                times[name] = measure(graph, rounds)
                module.check()
                results[name] = value.float().clone()
            else:
                started = time.perf_counter()
                results[name] = step.run(reduce).float()
                times[name] = (time.perf_counter() - started) * 1e6
    wanted = results["library"]
    gaps = {n: ((v - wanted).norm() / wanted.norm()).item() for n, v in results.items() if n != "no all-reduce"}
    return times, gaps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_module_arguments(parser, "specs/decode_all_reduce.chunk")
    parser.add_argument("--tokens", default=1, type=int, help="tokens of a step; default: 1")
    parser.add_argument("--layers", type=int, help="default: 32 on GPUs, 2 without")
    parser.add_argument("--width", default=14336, type=int, help="of the MLP; default: 14336")
    parser.add_argument("--rounds", default=50, type=int, help="replays of the graph that are timed; default: 50")
    return on_ranks(run, parser.parse_args())


def run(args, rank, device):
    module = load(built_module(args, rank)).DecodeAllReduce(device=device)
    hidden = module.ar.RESULTS["y"][1][1][0]
    layers = args.layers or (32 if device.type == "cuda" else 2)
    heads = 32 if hidden % 4096 == 0 else 8
    shape = Shape(hidden, args.width, heads, 8, layers)
    world = dist.get_world_size()
    if shape.key_heads % world or shape.width % world:
        raise CannotRun(f"{world} ranks do not divide {shape.key_heads} key heads and an MLP of {shape.width}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        times, gaps = compare(module, shape, args.tokens, rank, world, device, args.rounds)
    if rank == 0:
        report(times, gaps, shape, args.tokens, world, module.ar.why_not)
    module.close()
    return int(max(gaps.values()) > 0.05)


def report(times, gaps, shape, tokens, world, why_not):
    print(f"{shape.layers} layers, hidden {shape.hidden}, MLP {shape.width}, {tokens} tokens, {world} ranks")
    print(f"path     {f'fallback, because {why_not}' if why_not else 'fused'}")
    for name, us in times.items():
        gap = f", {gaps[name]:.1e} from the library's result" if name in gaps else ""
        gain = f", {(times['library'] / us - 1) * 100:+.1f} % tokens a second" if not why_not else ""
        print(f"{name:<18}{us / 1e3:9.3f} ms a step{gain}{gap}")


if __name__ == "__main__":
    sys.exit(main())
