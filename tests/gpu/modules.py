"""Modules built elsewhere (`chunkdsl build SPEC -o build`), imported from a folder; chunkdsl itself is not needed."""

from __future__ import annotations

import importlib.util
import math
import os
import sys
from pathlib import Path

import torch

FOLDER = Path(os.environ.get("CHUNKDSL_GPU_BUILD", "build"))


def load(stem: str, gated: bool = False):
    """The class of the module. Its gates are open, unless they shall hold: what is checked and timed is the fused code,
    at every size."""
    path = FOLDER / f"{stem}.py"
    spec = importlib.util.spec_from_file_location(f"built_{stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # torch.compile looks functions up there
    spec.loader.exec_module(module)
    own = [v for v in vars(module).values() if isinstance(v, type) and v.__module__ == module.__name__]
    for operation in (v for v in own if hasattr(v, "GATES") and not gated):
        operation.GATES = operation.EAGER_GATES = ((1, "", 0),)
    return next(v for v in own if getattr(v, "OPS", None))


def warps_in_tiles(cls, columns: int) -> None:
    """Products of a module by specialised warps in tiles of so many columns alone, where they can be; 0: of any."""
    for value in next(iter(cls.OPS.values())).run.__globals__.values():
        if isinstance(value, dict) and "WARP_TILES" in value:
            table = value["WARP_TILES"]
            every = table.setdefault("EVERY", table["SHAPES"])
            table["SHAPES"] = tuple(shape for shape in every if columns in (0, shape[0]))


def inputs(operation, dims: dict[str, int], rank: int, seed: int) -> list[torch.Tensor]:
    """Random local shards of one rank of the whole mesh, on its device: normal numbers, equal on ranks that shall hold
    the same."""
    made, device = [], operation.machine.device
    for i, (name, (dtype, shape)) in enumerate(operation.PARAMETERS.items()):
        generator = torch.Generator(device=device).manual_seed(1000 * seed + 40 * i + part_of(operation, name, rank))
        local = operation.local_shape(shape, dims)
        scale = 1.0 if len(shape) == 1 else shape_scale(local)
        made.append((torch.randn(local, generator=generator, device=device) * scale).to(dtype))
    return made


def part_of(operation, name: str, rank: int) -> int:
    """Which of the unlike parts of a tensor (shards, addends) a rank holds, from 1; 0 of one that all ranks share."""
    shape = operation.module.ranks.shape
    sizes, at = (shape, divmod(rank, shape[1])) if isinstance(shape, tuple) else ((shape,), (rank,))
    apart = [(n, i) for p, n, i in zip(operation.placements.said[name], sizes, at, strict=True) if p != "Replicate"]
    part = 0
    for n, i in apart:
        part = part * n + i
    return part + 1 if apart else 0


def shape_scale(shape) -> float:
    return 1.0 if shape[-1] == 0 else shape[-1] ** -0.25


def results(value) -> tuple:
    """An op's results, also where it has but one."""
    return value if isinstance(value, tuple) else (value,)


def same(a, b) -> bool:
    """All bits of all results."""
    return all(torch.equal(x, y) for x, y in zip(results(a), results(b), strict=True))


def sizes_within(op, wanted) -> list[dict[str, int]]:
    """Calls whose run-time dims are all near a wanted size, within their ranges, steps and bounds; each once."""
    calls = []
    for size in wanted:
        dims = {}
        for name, (low, high, step) in op.RANGES.items():
            least = -(-low // step) * step
            dims[name] = max(least, min(size, high, op.module.bounds[name]) // step * step)
        if dims not in calls:
            calls.append(dims)
    return calls


def fused_call(op, calls: list[dict[str, int]]) -> dict[str, int] | None:
    """The first of some calls that runs fused: below the gate there is nothing of ours to replay."""
    return next((dims for dims in calls if op.unfused(dims) is None), None)


def relative_error(a, b) -> float:
    """Of all results together, in norm."""
    gaps = [((x.float() - y.float()).norm(), y.float().norm()) for x, y in zip(results(a), results(b), strict=True)]
    return (sum(g**2 for g, _ in gaps) ** 0.5 / max(1e-30, sum(n**2 for _, n in gaps) ** 0.5)).item()


def needed_bytes(cls, bounds: dict[str, int], world) -> int:
    """About what an instance and the calls of its largest op need on each rank: symmetric memory twice, as `exact` has
    whole buffers of its own, and arguments and results four times."""
    ranks = world if isinstance(world, int) else math.prod(world)
    dims, largest = bounds | cls.RANKS.bound(cls.AXES, world), 0
    for op in cls.OPS.values():
        tensors = 0
        for dtype, shape in (*op.PARAMETERS.values(), *op.RESULTS.values()):
            whole = math.prod(dims[n] if isinstance(n, str) else n(dims) if callable(n) else n for n, *_ in shape)
            tensors += whole * dtype.itemsize // (ranks if any(sharded for _, sharded, *_ in shape) else 1)
        largest = max(largest, tensors)
    return 2 * cls.symmetric_bytes(bounds, world) + 4 * largest
