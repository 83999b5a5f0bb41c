"""How a kernel's parameters are bound: tensors, sizes, strides, constants, the grid. Sizes are the kernel's own."""

from __future__ import annotations

from collections.abc import Mapping

from chunkdsl.ir.types import SymSize, evaluate
from chunkdsl.record import record


@record
class BoundTensor:
    """`dims` over the kernel's own sizes; `strided`: some argument is the stride of its rows, which may then be
    padded. `dtype` of a result may be None: that of the first tensor. `block`: what the kernel loads or stores at once
    where it takes a tensor descriptor that is made on the host, over the kernel's constants; () where it takes a
    pointer."""

    name: str
    pointer: str
    dims: tuple[SymSize, ...]
    dtype: str | None = None
    strided: bool = False
    block: tuple[SymSize, ...] = ()


@record
class Stride:
    """Elements between two neighbours along dimension `index` of a tensor."""

    tensor: str
    index: int


Scalar = SymSize | Stride | float | bool | str


@record
class Binding:
    """`scalars`: (parameter, value) in the kernel's order. `constants`: `tl.constexpr` parameters. `options`: num_warps
    and num_stages. `grid` names constants where the item does."""

    tensors: tuple[BoundTensor, ...]
    results: tuple[BoundTensor, ...]
    scalars: tuple[tuple[str, Scalar], ...]
    grid: tuple[SymSize, ...]
    constants: tuple[tuple[str, int | float | bool | str], ...]
    options: tuple[tuple[str, int], ...] = ()

    @property
    def all(self) -> tuple[BoundTensor, ...]:
        return (*self.tensors, *self.results)

    @property
    def evenness(self) -> int:
        """A size is traced at such multiples if it is one: where a constant is true, as a heuristic sets it, the kernel
        may rely on whole blocks."""
        values = [v for _, v in self.constants]
        blocks = [v for v in values if isinstance(v, int) and v > 16 and not v & (v - 1)]
        return max([16, *blocks]) if any(v is True for v in values) else 16

    def tensor(self, name: str) -> BoundTensor:
        return next(t for t in self.all if t.name == name)

    def block_of(self, t: BoundTensor) -> tuple[int, ...]:
        return tuple(evaluate(b, dict(self.constants)) for b in t.block)

    def grid_at(self, sizes: Mapping[str, int]) -> tuple[int, int, int]:
        return (*(evaluate(g, {**dict(self.constants), **sizes}) for g in self.grid), 1, 1)[:3]
