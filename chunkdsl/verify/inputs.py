"""Random inputs of an op: global tensors, and what each rank passes of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from chunkdsl.ir.graph import Op
from chunkdsl.ir.layouts import CONTIGUOUS, Layout
from chunkdsl.ir.meshes import World, coordinates, ranks_of, sizes
from chunkdsl.ir.types import (
    Partial,
    Placement,
    Replicate,
    Shard,
    Share,
    SymSize,
    TensorType,
    evaluate,
)
from chunkdsl.plan.schedule import Extent, OpSchedule

TORCH = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
TORCH |= {"i32": torch.int32, "i64": torch.int64}  # tables of users' kernels


@dataclass(frozen=True)
class Inputs:
    """`shards[rank]` in the op's order of parameters. `whole`: global tensors, addends summed, float64. `captured`: the
    call has the gate of those that a CUDA graph captures."""

    dims: dict[str, int]
    shards: list[list[torch.Tensor]]
    whole: dict[str, torch.Tensor]
    captured: bool = False


def draw(op: Op, schedule: OpSchedule, dims: Mapping[str, int], world: World, seed: int, integers: bool) -> Inputs:
    """Inputs for one call: small integers (sums stay exact in every dtype) or normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    shards: list[list[torch.Tensor]] = [[] for _ in range(ranks_of(world))]
    whole = {}
    for param, declared in zip(op.params, schedule.parameters, strict=True):
        shape = tuple(evaluate(s, dims) for s in whole_shape(declared.shape))
        placements = placements_of(param.value.type, world)
        copies = math.prod(n for p, n in zip(placements, sizes(world), strict=True) if isinstance(p, Partial))
        drawn = [numbers(shape, TORCH[declared.dtype], generator, integers) for _ in range(copies)]
        whole[param.name] = torch.stack([d.double() for d in drawn]).sum(0)
        for rank, held in enumerate(shards):
            at = coordinates(rank, world)
            addend = 0
            for p, n, i in zip(placements, sizes(world), at, strict=True):
                addend = addend * n + i if isinstance(p, Partial) else addend
            tensor = drawn[addend].clone()
            for p, n, i in zip(placements, sizes(world), at, strict=True):
                if isinstance(p, Shard):
                    tensor = cut(tensor, p.dim, n, i, declared.shape[p.dim].layout)
            held.append(tensor)
    return Inputs(dict(dims), shards, whole)


def whole_shape(shape: tuple[Extent, ...]) -> list[SymSize]:
    """Global sizes of a declared tensor."""
    found = []
    for extent in shape:
        size = extent.size
        while isinstance(size, Share):
            size = size.size
        found.append(size)
    return found


def placements_of(type: TensorType, world: World) -> tuple[Placement, ...]:
    """One placement for each mesh axis; Replicate where there is no mesh."""
    return type.placements or (Replicate(),) * len(sizes(world))


def numbers(shape, dtype, generator, integers: bool) -> torch.Tensor:
    if not dtype.is_floating_point:  # which of the first two groups
        return torch.randint(0, 2, shape, generator=generator).to(dtype)
    if integers:
        return torch.randint(-1, 2, shape, generator=generator).to(dtype)
    return (torch.randn(shape, generator=generator) * 0.5).to(dtype)


def cut(tensor: torch.Tensor, dim: int, world: int, rank: int, layout: Layout = CONTIGUOUS) -> torch.Tensor:
    """This rank's shard, element by element as the layout says; it may be short or empty."""
    n = tensor.shape[dim]
    mine = [layout.element(n, world, rank, i) for i in range(layout.held(n, world, rank))]
    return tensor.index_select(dim, torch.tensor(mine, dtype=torch.int64, device=tensor.device)).contiguous()


def put_together(shards: list[torch.Tensor], dim: int, layout: Layout) -> torch.Tensor:
    """The whole of the shards of all ranks; the inverse of `cut`. Shards of other sizes than those are laid end to end,
    so that their shape is reported like that of any wrong result."""
    whole, world = torch.cat(shards, dim), len(shards)
    n = whole.shape[dim]
    held = [layout.held(n, world, rank) for rank in range(world)]
    if held != [s.shape[dim] for s in shards]:
        return whole
    order = [layout.element(n, world, rank, i) for rank in range(world) for i in range(held[rank])]
    return whole.index_select(dim, torch.tensor(order, dtype=torch.int64).argsort())


def join(
    results: list[torch.Tensor], op: Op, index: int, world: World, schedule: OpSchedule | None = None
) -> torch.Tensor:
    """The global result from every rank's: shards put together, addends summed, one of equal copies; the inner axis of
    the mesh first. `schedule`: of a twin, whose blocks are smaller than those of `op`."""
    held = [r.double() for r in results]
    twin = schedule.results[index].shape if schedule and index < len(schedule.results) else ()
    placements = placements_of((*op.results, *op.updates)[index][1].type, world)
    for p, n in reversed(list(zip(placements, sizes(world), strict=True))):
        groups = [held[i : i + n] for i in range(0, len(held), n)]
        if isinstance(p, Shard):
            layout = twin[p.dim].layout if twin else p.layout
            held = [put_together(g, p.dim, layout) for g in groups]
        else:
            held = [torch.stack(g).sum(0) if isinstance(p, Partial) else g[0] for g in groups]
    return held[0]
