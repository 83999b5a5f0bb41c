"""Types of the typed program: dtypes, symbolic sizes, the mesh, placements, tensor types.

Placements are DTensor's: on each mesh axis a value is `Replicate`, `Shard(dim)` or `Partial`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from chunkdsl.ir.layouts import CONTIGUOUS, Layout
from chunkdsl.record import record


class DType(Enum):
    BF16 = "bf16"
    F16 = "f16"
    F32 = "f32"
    F8E4M3 = "f8e4m3"
    F8E5M2 = "f8e5m2"
    I8 = "i8"
    I32 = "i32"
    I64 = "i64"
    BOOL = "bool"

    @property
    def bytes(self) -> int:
        return {"bf16": 2, "f16": 2, "f32": 4, "i32": 4, "i64": 8}.get(self.value, 1)

    @property
    def floating(self) -> bool:
        return self.value in ("bf16", "f16", "f32", "f8e4m3", "f8e5m2")


# ---- sizes: an int once every dim in it is fixed, else an expression over run-time dims


@record
class DimRef:
    """A run-time dim (declared with a range)."""

    name: str

    def __str__(self) -> str:
        return self.name


@record
class SizeOp:
    """`+ - * / mod` over sizes; `/` divides exactly or rounds up, as `cdiv` does. Constants are folded by `lower`."""

    op: str
    left: SymSize
    right: SymSize

    def __str__(self) -> str:
        return f"({self.left} {self.op} {self.right})"


@record
class Share:
    """What one rank holds of `size` elements that mesh axis `axis` has cut. Made by `lower` for meshes of two axes; it
    is evaluated with the axis bound like a dim: its ranks under its own name, the rank's index under `index_key`."""

    size: SymSize
    axis: str

    def __str__(self) -> str:
        return f"share({self.size}, {self.axis})"


SymSize = int | DimRef | SizeOp | Share


def index_key(axis: str) -> str:
    """Key of a rank's index on an axis among the bindings of dims; no dim can be called so."""
    return f"{axis}.rank"


def evaluate(size: SymSize, dims: Mapping[str, int]) -> int:
    """Value of a size (elements) with every run-time dim bound. KeyError for a dim that is not."""
    if isinstance(size, int):
        return size
    if isinstance(size, DimRef):
        return dims[size.name]
    if isinstance(size, Share):
        return shard_rows(evaluate(size.size, dims), dims[size.axis], dims[index_key(size.axis)])
    a, b = evaluate(size.left, dims), evaluate(size.right, dims)
    match size.op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return -(-a // b)
        case _:
            return a % b


def dims_in(size: SymSize) -> frozenset[str]:
    if isinstance(size, int):
        return frozenset()
    if isinstance(size, DimRef):
        return frozenset((size.name,))
    if isinstance(size, Share):
        return dims_in(size.size)
    return dims_in(size.left) | dims_in(size.right)


@record
class DimRange:
    """Declared range of a run-time dim: multiples of `step` from `low` to `high`, both included."""

    name: str
    low: int
    high: int
    step: int = 1
    line: int = 0

    def holds(self, value: int) -> bool:
        return self.low <= value <= self.high and value % self.step == 0


# ---- mesh and placements


@record
class MeshAxis:
    name: str
    size: int
    link: str | None


@record
class Mesh:
    axes: tuple[MeshAxis, ...]

    def index(self, name: str) -> int:
        """Position of an axis. KeyError if there is none of that name."""
        for i, a in enumerate(self.axes):
            if a.name == name:
                return i
        raise KeyError(name)


@record
class Replicate:
    def __str__(self) -> str:
        return "Replicate"


@record
class Shard:
    """Cut along `dim`: contiguous and ceil-divided as DTensor's, or in another `layout`."""

    dim: int
    layout: Layout = CONTIGUOUS

    def __str__(self) -> str:
        return f"Shard({self.dim})" if self.layout == CONTIGUOUS else f"Shard({self.dim}, {self.layout})"

    def along(self, dim: int) -> Shard:
        """The same shards of another dimension."""
        return Shard(dim, self.layout)


@record
class Partial:
    """Each rank of the axis holds an addend of the sum."""

    def __str__(self) -> str:
        return "Partial"


Placement = Replicate | Shard | Partial


def shards(placement: Placement, dim: int) -> bool:
    """Is it a Shard of this dimension, in whatever layout?"""
    return isinstance(placement, Shard) and placement.dim == dim


@record
class TensorType:
    """Global shape (elements), dtype, and one placement for each mesh axis."""

    dtype: DType
    shape: tuple[SymSize, ...]
    placements: tuple[Placement, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    def axis_sharding(self, dim: int) -> int | None:
        """Index of the mesh axis that shards tensor dimension `dim`, or None."""
        for axis, p in enumerate(self.placements):
            if shards(p, dim):
                return axis
        return None

    def layout_of(self, dim: int) -> Layout:
        """How tensor dimension `dim` is cut; Contiguous where nothing cuts it."""
        return next((p.layout for p in self.placements if shards(p, dim)), CONTIGUOUS)


def shard_size(size: int, world: int) -> int:
    """Rows of a full shard: ceil(size / world)."""
    return -(-size // world)


def shard_rows(size: int, world: int, rank: int, inner: int = 1) -> int:
    """Rows that `rank` holds: the last shards may be short or empty.

    With `inner` > 1 two mesh axes cut, as DTensor does: the outer one of world / inner ranks first, then the inner one
    what is left. Every shard has at most `shard_size(size, world)` rows, as ceil(ceil(n / a) / b) = ceil(n / (a * b)).
    """
    if inner > 1:
        return shard_rows(shard_rows(size, world // inner, rank // inner), inner, rank % inner)
    return CONTIGUOUS.held(size, world, rank)


def shard_first(size: int, world: int, rank: int, inner: int = 1) -> int:
    """The first row of a rank's shard, cut as `shard_rows` has it. Of an empty shard it may lie behind the end."""
    if inner > 1:
        part = shard_rows(size, world // inner, rank // inner)
        return rank // inner * shard_size(size, world // inner) + rank % inner * shard_size(part, inner)
    return rank * shard_size(size, world)
