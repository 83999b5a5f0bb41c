"""What a module's op is timed against: NCCL with cuBLAS (the op's own `fallback`, but for a bare all-reduce, where it
is the collective itself), and torch's ops over symmetric memory. Times nothing.

Each is a function without arguments that does one call and returns its result, so that results can be compared too.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist


def peers_of(stem: str, op, x: list[torch.Tensor], dims: dict[str, int], torchs: bool) -> dict[str, Callable]:
    """The library's way, and with `torchs` torch's. Collective where symmetric memory is made for them."""
    if stem == "small_ar":
        return {"library": bare(x[0].clone())} | (all_reduces(x[0].shape, lambda into: into) if torchs else {})
    calls = {"library": lambda: op.fallback(*x, **dims)}
    if torchs:
        calls |= {"ag_gemm": gathered, "gemm_rs": scattered, "gemm_ar": reduced}[stem](*x)
    return calls


def bare(p: torch.Tensor) -> Callable:
    """In place, as NCCL does it best; the values do not matter."""

    def call():
        dist.all_reduce(p)
        return p

    p.zero_()
    return call


def gathered(x: torch.Tensor, w: torch.Tensor) -> dict[str, Callable]:
    name = dist.group.WORLD.group_name
    return {"torch fused": lambda: torch.ops.symm_mem.fused_all_gather_matmul(x, [w.t()], 0, name)[1][0]}


def scattered(a: torch.Tensor, w: torch.Tensor, res: torch.Tensor) -> dict[str, Callable]:
    name = dist.group.WORLD.group_name
    return {"torch fused": lambda: torch.ops.symm_mem.fused_matmul_reduce_scatter(a, w.t(), "sum", 0, name) + res}


def reduced(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> dict[str, Callable]:
    """Torch has no fused op for it: a product into symmetric memory, then either all-reduce."""

    def product(into):
        return torch.mm(x, w.t(), out=into)

    found = all_reduces((x.shape[0], w.shape[0]), product)
    return {name: lambda call=call: call() + b for name, call in found.items()}


def all_reduces(shape, fill: Callable) -> dict[str, Callable]:
    """Torch's two all-reduces of a symmetric tensor of `shape`, which `fill` fills first."""
    import torch.distributed._symmetric_memory as symm

    name = dist.group.WORLD.group_name
    into = symm.empty(*shape, dtype=torch.bfloat16, device="cuda")
    symm.rendezvous(into, name)
    into.zero_()

    def one_shot():
        fill(into)
        return torch.ops.symm_mem.one_shot_all_reduce(into, "sum", name)

    def two_shot():
        fill(into)
        return torch.ops.symm_mem.two_shot_all_reduce_(into, "sum", name)

    return {"torch one_shot": one_shot, "torch two_shot": two_shot}
