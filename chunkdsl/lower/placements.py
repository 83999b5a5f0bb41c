"""The placement table of the language, as functions: which placements go together on one mesh axis, and what comes out.

Each function decides one mesh axis alone; axes are independent. A pair that does not go together gives a `Clash`.
Nothing is reported here and no shapes are compared (`operators.py` does both). The rules are those of DTensor's
sharding propagation for linear, elementwise and matmul operators, with the pairs left out that it would redistribute.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from chunkdsl.ir.types import Partial, Placement, Replicate, Shard, TensorType


class Clash(Enum):
    CONTRACTED = "contracted dimension sharded on one side"
    ROWS_AND_COLUMNS = "rows and columns sharded over one axis"
    BOTH_PARTIAL = "both Partial"
    PARTIAL_AND_SHARD = "Partial times Shard"
    PARTIAL_AND_WHOLE = "Partial plus something that is not"
    DIVISOR = "divided by a Partial"
    UNLIKE = "sharded unlike"
    LAYOUTS = "sharded alike, in different layouts"
    NONLINEAR = "nonlinear function of a Partial"


Has = Callable[[int], bool]  # whether an operand has extent of its own in a dimension of the result


def matmul_axis(a: Placement, b: Placement) -> Placement | Clash:
    """`a[m, k] @ b[k, n]`, both matrices."""
    match a, b:
        case (Partial(), Partial()):
            return Clash.BOTH_PARTIAL
        case (Partial(), Replicate()) | (Replicate(), Partial()):
            return Partial()
        case (Partial(), _) | (_, Partial()):
            return Clash.PARTIAL_AND_SHARD
        case (Shard(dim=1, layout=p), Shard(dim=0, layout=q)):
            return Partial() if p == q else Clash.LAYOUTS
        case (Shard(dim=1), _) | (_, Shard(dim=0)):
            return Clash.CONTRACTED
        case (Shard(), Shard()):
            return Clash.ROWS_AND_COLUMNS
        case (Shard(), _):
            return a.along(0)
        case (_, Shard()):
            return b.along(1)
        case _:
            return Replicate()


def align_axis(a: Placement, b: Placement, a_has: Has, b_has: Has) -> Placement | Clash:
    """Elementwise operands of which none is Partial; Shard dimensions are those of the result."""
    match a, b:
        case (Replicate(), Replicate()):
            return Replicate()
        case (Shard(dim=d), Shard(dim=e)) if d == e and a_has(d) and b_has(d):
            return a if a == b else Clash.LAYOUTS
        case (Shard(dim=d), Replicate()) if a_has(d) and not b_has(d):
            return a
        case (Replicate(), Shard(dim=d)) if b_has(d) and not a_has(d):
            return b
        case _:
            return Clash.UNLIKE


def add_axis(a: Placement, b: Placement, a_has: Has, b_has: Has) -> Placement | Clash:
    """`a + b` and `a - b`: linear in both together, so Partial goes with Partial only."""
    match a, b:
        case (Partial(), Partial()):
            return Partial()
        case (Partial(), _) | (_, Partial()):
            return Clash.PARTIAL_AND_WHOLE
        case _:
            return align_axis(a, b, a_has, b_has)


def mul_axis(a: Placement, b: Placement, a_has: Has, b_has: Has) -> Placement | Clash:
    """`a * b`: linear in each alone, so a Partial goes with what every rank holds whole."""
    match a, b:
        case (Partial(), Partial()):
            return Clash.BOTH_PARTIAL
        case (Partial(), Replicate()) | (Replicate(), Partial()):
            return Partial()
        case (Partial(), _) | (_, Partial()):
            return Clash.PARTIAL_AND_SHARD
        case _:
            return align_axis(a, b, a_has, b_has)


def div_axis(a: Placement, b: Placement, a_has: Has, b_has: Has) -> Placement | Clash:
    """`a / b`: linear in a alone."""
    return Clash.DIVISOR if isinstance(b, Partial) else mul_axis(a, b, a_has, b_has)


def nonlinear_axis(t: Placement) -> Placement | Clash:
    """gelu, relu, silu, tanh: elementwise, not linear."""
    return Clash.NONLINEAR if isinstance(t, Partial) else t


def swiglu_axis(a: Placement, b: Placement, a_has: Has, b_has: Has) -> Placement | Clash:
    """`silu(a) * b`; a Partial b would be linear, and is refused with a Partial a, as the table has it."""
    if isinstance(a, Partial) or isinstance(b, Partial):
        return Clash.NONLINEAR
    return align_axis(a, b, a_has, b_has)


def transpose_axis(t: Placement) -> Placement:
    """`t.T` of a matrix."""
    return t.along(1 - t.dim) if isinstance(t, Shard) else t


def pick_axis(t: Placement) -> Placement | Clash:
    """`t[i]`: the leading dimension is gone."""
    if not isinstance(t, Shard):
        return t
    return Clash.UNLIKE if t.dim == 0 else t.along(t.dim - 1)


def in_result(placement: Placement, rank: int, result_rank: int) -> Placement:
    """A placement of an operand of `rank` dimensions, in dimensions of the result (trailing ones aligned)."""
    return placement.along(placement.dim + result_rank - rank) if isinstance(placement, Shard) else placement


def own_extent(type: TensorType, shape: tuple) -> Has:
    """`Has` of an operand broadcast to `shape`: False where it lacks the dimension, or has size 1 and is stretched."""
    missing = len(shape) - type.rank
    return lambda d: d >= missing and not (type.shape[d - missing] == 1 and shape[d] != 1)


def axes_of(t: TensorType, kind: type[Placement]) -> list[int]:
    """Mesh axes on which a type has a kind of placement, outer first."""
    return [i for i, p in enumerate(t.placements) if isinstance(p, kind)]
