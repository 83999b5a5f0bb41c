"""The meaning of a call of a user's kernel: the kernel as its author wrote it, on whole tensors, in the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from types import ModuleType

import torch

from chunkdsl.interp import interpreting
from chunkdsl.ir.types import DimRef, evaluate
from chunkdsl.plan.body import KernelBody
from chunkdsl.plan.schedule import OpSchedule
from chunkdsl.runtime.descriptors import described, even_rows
from chunkdsl.verify.inputs import TORCH


def whole_kernels(op: OpSchedule, module: ModuleType) -> dict[str, Callable]:
    """For each item that the op calls: (value, whole float64 arguments) -> float64 results, in order. `module` has the
    kernels."""
    bodies = {n.body.item: n.body for n in op.launches if n.body}
    return {item: lambda value, args, body=body: run_whole(body, args, module) for item, body in bodies.items()}


def run_whole(body: KernelBody, args: list[torch.Tensor], module: ModuleType) -> list[torch.Tensor]:
    """One launch over the kernel's own grid: its results, in order."""
    given, sizes = {}, {}
    for t, arg in zip([t for t in body.tensors if not t.result], args, strict=True):
        held = arg.to(TORCH[t.dtype]).contiguous()
        given[t.parameter] = even_rows(held) if t.block else held
        sizes |= {d.name: n for d, n in zip(t.dims, arg.shape, strict=True) if isinstance(d, DimRef)}
    made = []
    for t in body.results:
        empty = torch.empty([evaluate(d, sizes) for d in t.dims], dtype=TORCH[t.dtype])
        made.append(even_rows(empty) if t.block else empty)
        given[t.parameter] = made[-1]
    for s in body.scalars:
        if s.stride:
            given[s.parameter] = given[s.stride[0]].stride(s.stride[1])
        else:
            given[s.parameter] = s.value if isinstance(s.value, bool | float | str) else evaluate(s.value, sizes)
    for t in body.tensors:
        if t.block:
            given[t.parameter] = described(given[t.parameter], given[t.parameter].shape, body.block_of(t))
    grid = (*(evaluate(g, {**dict(body.constants), **sizes}) for g in body.grid), 1, 1)[:3]
    if prod(grid):
        with interpreting() as interpreter:
            interpreter.run(getattr(module, body.function), grid, **given, **dict(body.constants))
    return [m.double() for m in made]
