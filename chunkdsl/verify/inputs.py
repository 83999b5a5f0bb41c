"""Random inputs of an op: global tensors, and what each rank passes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from chunkdsl.ir.graph import Op
from chunkdsl.ir.types import Partial, Shard, evaluate, shard_rows, shard_size
from chunkdsl.plan.schedule import OpSchedule

TORCH = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


@dataclass(frozen=True)
class Inputs:
    """`shards[rank]` in the op's order of parameters. `whole`: global tensors, addends summed, float64."""

    dims: dict[str, int]
    shards: list[list[torch.Tensor]]
    whole: dict[str, torch.Tensor]


def draw(op: Op, schedule: OpSchedule, dims: Mapping[str, int], world: int, seed: int, integers: bool) -> Inputs:
    """Inputs for one call: small integers (sums stay exact in every dtype) or normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    shards: list[list[torch.Tensor]] = [[] for _ in range(world)]
    whole = {}
    for param, declared in zip(op.params, schedule.parameters, strict=True):
        shape = tuple(evaluate(e.size, dims) for e in declared.shape)
        dtype = TORCH[declared.dtype]
        placement = param.value.type.placements[0] if param.value.type.placements else None
        copies = world if isinstance(placement, Partial) else 1
        drawn = [numbers(shape, dtype, generator, integers) for _ in range(copies)]
        whole[param.name] = torch.stack([d.double() for d in drawn]).sum(0)
        for rank in range(world):
            tensor = drawn[rank % copies]
            own = cut(tensor, placement.dim, world, rank) if isinstance(placement, Shard) else tensor.clone()
            shards[rank].append(own)
    return Inputs(dict(dims), shards, whole)


def numbers(shape, dtype, generator, integers: bool) -> torch.Tensor:
    if integers:
        return torch.randint(-1, 2, shape, generator=generator).to(dtype)
    return (torch.randn(shape, generator=generator) * 0.5).to(dtype)


def cut(tensor: torch.Tensor, dim: int, world: int, rank: int) -> torch.Tensor:
    """This rank's contiguous shard; the last ones may be short or empty."""
    n = tensor.shape[dim]
    start = min(n, rank * shard_size(n, world))
    return tensor.narrow(dim, start, shard_rows(n, world, rank)).contiguous()


def join(results: list[torch.Tensor], op: Op, index: int) -> torch.Tensor:
    """The global result from every rank's: shards put together, addends summed, one of equal copies."""
    _, value = op.results[index]
    placement = value.type.placements[0] if value.type.placements else None
    if isinstance(placement, Shard):
        return torch.cat(results, placement.dim).double()
    if isinstance(placement, Partial):
        return torch.stack([r.double() for r in results]).sum(0)
    return results[0].double()
