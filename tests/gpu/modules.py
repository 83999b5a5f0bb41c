"""Modules built elsewhere (`chunkdsl build SPEC -o build`), imported from a folder; chunkdsl itself is not needed."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import torch

FOLDER = Path(os.environ.get("CHUNKDSL_GPU_BUILD", "build"))


def load(stem: str):
    """(class of the module, its op names)."""
    path = FOLDER / f"{stem}.py"
    spec = importlib.util.spec_from_file_location(f"built_{stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    own = [v for v in vars(module).values() if isinstance(v, type) and v.__module__ == module.__name__]
    return next(v for v in own if getattr(v, "OPS", None))


def inputs(operation, dims: dict[str, int], rank: int, world: int, seed: int) -> list[torch.Tensor]:
    """Random local shards of one rank: normal numbers, different on each rank where the tensor is sharded."""
    made = []
    for i, (dtype, shape) in enumerate(operation.PARAMETERS.values()):
        sharded = any(s for _, s in shape)
        generator = torch.Generator(device="cuda").manual_seed(1000 * seed + 10 * i + (rank + 1 if sharded else 0))
        local = operation.local_shape(shape, dims)
        scale = 1.0 if len(shape) == 1 else shape_scale(local)
        made.append((torch.randn(local, generator=generator, device="cuda") * scale).to(dtype))
    return made


def shape_scale(shape) -> float:
    return 1.0 if shape[-1] == 0 else shape[-1] ** -0.25


def results(value) -> tuple:
    """An op's results, also where it has but one."""
    return value if isinstance(value, tuple) else (value,)


def same(a, b) -> bool:
    """All bits of all results."""
    return all(torch.equal(x, y) for x, y in zip(results(a), results(b), strict=True))


def fused_size(op, sizes: list[int]) -> int | None:
    """The first of some sizes at which a call runs fused: below the gate there is nothing of ours to replay."""
    return next((n for n in sizes if op.unfused({k: n for k in op.RANGES}) is None), None)
