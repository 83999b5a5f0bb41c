"""One call `fused[grid](A, B, C, M, N, K)` as data: which parameter of the kernel got what. Nothing is inferred."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite, prod
from typing import TYPE_CHECKING, Any

from chunkdsl.api.errors import refuse
from chunkdsl.check.api import kernel_call_argument
from chunkdsl.kernels.source import KernelSource
from chunkdsl.lower.names import ARGUMENTS_TAKEN
from chunkdsl.record import record
from chunkdsl.syntax.parse import grammar

if TYPE_CHECKING:
    import torch

OPTIONS = ("num_warps", "num_stages")
DTYPES = {"torch.bfloat16": "bf16", "torch.float16": "f16", "torch.float32": "f32"}


@record
class Tensor:
    """Of one argument: this rank's sizes and the dtype's name in a spec. `block`: of the descriptor that was passed in
    its place, if one was."""

    shape: tuple[int, ...]
    dtype: str
    block: tuple[int, ...] = ()


@record
class Call:
    """By parameter: `tensors`, other `numbers`, `tl.constexpr` `constants`; `options`: num_warps, num_stages."""

    tensors: tuple[tuple[str, Tensor], ...]
    numbers: tuple[tuple[str, int | float | bool], ...]
    constants: tuple[tuple[str, int | float | bool | str], ...]
    options: tuple[tuple[str, int], ...]
    grid: tuple[int, ...]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: t.shape for name, t in self.tensors}

    @property
    def integers(self) -> dict[str, int]:
        return {n: v for n, v in self.numbers if isinstance(v, int) and not isinstance(v, bool)}

    @property
    def plain(self) -> tuple[tuple[str, float], ...]:
        """Numbers that are no integers: they are constants of a module."""
        return tuple((n, v) for n, v in self.numbers if n not in self.integers)

    @property
    def like(self) -> tuple:
        """What calls that one module may serve have in common."""
        ranks = tuple((name, len(t.shape), t.dtype, t.block) for name, t in self.tensors)
        kinds = tuple((n, type(v).__name__) for n, v in self.numbers)
        return ranks, self.constants, self.options, kinds, len(self.grid)


def bind_call(
    source: KernelSource, grid, args: Sequence[object], named: Mapping[str, object]
) -> tuple[Call, dict[str, torch.Tensor]]:
    """The call, and its tensors by parameter. ChunkError (CD662) where an argument is missing or unfit."""
    given, options = by_parameter(source, args, dict(named))
    tensors: list[tuple[str, Tensor]] = []
    held: dict[str, Any] = {}
    numbers: list[tuple[str, int | float | bool]] = []
    constants: list[tuple[str, int | float | bool | str]] = []
    for name, value in given.items():
        if name in source.constants:
            constants.append((name, constant(name, value)))
        elif hasattr(value, "data_ptr"):
            tensors.append((name, tensor(name, value)))
            held[name] = value
        elif isinstance(value, int | float) and isfinite(value):
            numbers.append((name, value))
        elif hasattr(value, "block_shape"):
            held[name] = memory(name, value)
            tensors.append((name, replace(tensor(name, held[name]), block=tuple(value.block_shape))))
        else:
            raise wrong(f"`{name}` is {value!r}", "pass a tensor or a finite number")
    if not tensors:
        raise wrong(f"`{source.function}` is called without a tensor", "pass the tensors of this rank")
    meta = {**given, **options}
    try:
        spread = grid(meta) if callable(grid) else grid
    except Exception as error:
        what = f"the grid cannot be computed: {type(error).__name__}: {error}"
        raise wrong(what, f"it is a function of the arguments by name: {', '.join(meta)}") from error
    call = Call(tuple(tensors), tuple(numbers), tuple(constants), tuple(options.items()), axes(spread))
    return call, held


def by_parameter(source: KernelSource, args: Sequence[object], named: dict[str, object]):
    """Values in the kernel's order, defaults left to the kernel, and the launch options."""
    names = [p.arg for p in source.parameters]
    if len(args) > len(names):
        raise wrong(f"{len(args)} arguments for the {len(names)} parameters of `{source.function}`", "pass fewer")
    given = dict(zip(names, args, strict=False))
    options = {name: named.pop(name) for name in OPTIONS if name in named and name not in names}
    for name, value in named.items():
        if name not in names:
            raise wrong(f"`{source.function}` has no parameter `{name}`", f"it has {', '.join(names)}")
        if name in given:
            raise wrong(f"`{name}` is given twice", "pass it once")
        given[name] = value
    missing = [n for n in names if n not in given and n not in source.defaults]
    if missing:
        pinned = [n for n in missing if n in source.constants]
        more = f"; what an autotuner would choose ({', '.join(pinned)}) is pinned by the call" if pinned else ""
        listed = ", ".join(f"`{n}`" for n in missing)
        raise wrong(f"{listed} of `{source.function}` {'is' if len(missing) == 1 else 'are'} missing",
                    f"pass {'it' if len(missing) == 1 else 'them'}{more}")
    for name, value in options.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong(f"{name} = {value!r}", "it is a whole number")
    for name in source.constants & source.defaults.keys() - given.keys():
        if isinstance(source.defaults[name], ast.Constant):
            given[name] = source.defaults[name].value  # the grid may be one of them
    return {n: given[n] for n in names if n in given}, options


def safe(name: str) -> str:
    """A name of the kernel as a spec may have it."""
    taken = name in grammar().keywords or name in ARGUMENTS_TAKEN or name.startswith("_")
    return f"n_{name.lstrip('_')}" if taken else name


def constant(name: str, value):
    if not isinstance(value, int | float | str):
        raise wrong(f"the constant `{name}` is {type(value).__name__}", "constants are numbers, true, false or a text")
    return value


def tensor(name: str, value: torch.Tensor) -> Tensor:
    dtype = DTYPES.get(str(value.dtype))
    if dtype is None:
        raise wrong(f"`{name}` is {value.dtype}", "tensors are bf16, f16 or f32")
    if not value.is_contiguous():
        raise wrong(f"`{name}` of shape {list(value.shape)} is not contiguous", "pass `.contiguous()`")
    if value.dim() == 0:
        raise wrong(f"`{name}` has no dimension", "pass its value as a number")
    return Tensor(tuple(value.shape), dtype)


def memory(name: str, descriptor) -> torch.Tensor:
    """What a tensor descriptor that was made on the host describes: all of a contiguous tensor."""
    base, shape = descriptor.base, tuple(descriptor.shape)
    packed = [prod(shape[i + 1 :]) for i in range(len(shape))]
    if list(descriptor.strides) != packed or base.numel() != prod(shape) or not base.is_contiguous():
        raise wrong(f"`{name}` describes a part of a tensor, or one that is not contiguous",
                    "TensorDescriptor.from_tensor(tensor, block) of a whole one")
    if descriptor.padding != "zero":
        raise wrong(f"`{name}` is padded with {descriptor.padding}", 'leave `padding` at "zero"')
    return base.view(shape)


def axes(grid) -> tuple[int, ...]:
    grid = (grid,) if isinstance(grid, int) else tuple(grid) if isinstance(grid, Sequence) else ()
    if not 1 <= len(grid) <= 3 or not all(isinstance(n, int) and n >= 1 for n in grid):
        raise wrong(f"a grid of {grid!r}", "a grid has one to three whole numbers from 1")
    return grid


def wrong(what: str, mend: str) -> Exception:
    return refuse(kernel_call_argument(what, mend), "call")
