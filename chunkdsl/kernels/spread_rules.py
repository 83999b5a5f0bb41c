"""How arithmetic carries a value of many programs on (`spread`): sums stay sums, conjunctions conjunctions.

Each rule is given the arguments of a method of the interpreter's builder and what it returned for the first program.
"""

from __future__ import annotations

import numpy as np
from triton.runtime import interpreter as upstream

from chunkdsl.kernels.spread import LEADING, Spread, merged, spread_of

TensorHandle = upstream.TensorHandle


def sum_parts(handle: TensorHandle) -> tuple[np.ndarray, ...]:
    spread = spread_of(handle)
    return (spread.whole(),) if spread.every else spread.parts


def added(args, made) -> Spread:
    return merged([p.astype(made.data.dtype) for a in args[:2] for p in sum_parts(a)])


def subtracted(args, made) -> Spread:
    kind = made.data.dtype
    return merged([*(p.astype(kind) for p in sum_parts(args[0])), *(-p.astype(kind) for p in sum_parts(args[1]))])


def moved(args, made) -> Spread:
    size = np.uint64(max(1, args[0].get_element_ty().primitive_bitwidth // 8))
    return merged([*sum_parts(args[0]), *(size * p.astype(np.uint64) for p in sum_parts(args[1]))])


def multiplied(args, made) -> Spread:
    """A sum by a number is the sum of the products."""
    left, right = (sum_parts(a) for a in args[:2])
    if len(left) > 1 and any(p[0, 0].size > 1 for p in right):
        left, right = right, left
    if len(left) > 1 and any(p[0, 0].size > 1 for p in right):
        left = (Spread(left).whole(),)
    if len(right) > 1:
        right = (Spread(right).whole(),)
    return merged([(p * right[0]).astype(made.data.dtype) for p in left])


def both(args, made) -> Spread:
    if made.data.dtype != np.bool_:
        return Spread((np.bitwise_and(*(spread_of(a).whole() for a in args[:2])),))
    return merged([p for a in args[:2] for p in conditions(a)], True)


def conditions(handle: TensorHandle) -> tuple[np.ndarray, ...]:
    spread = spread_of(handle)
    return spread.parts if spread.every else (spread.whole(),)


def widened(args, made) -> Spread:
    source, kind = spread_of(args[0]), made.data.dtype
    if source.every or kind.kind not in "iu" or args[0].data.dtype.kind not in "iu":
        return Spread((source.whole().astype(kind),))
    return Spread(tuple(p.astype(kind) for p in source.parts))


def as_before(args, made) -> Spread:
    return spread_of(args[0])


def with_an_axis(args, made) -> Spread:
    source, axis = spread_of(args[0]), args[1]
    return Spread(tuple(np.expand_dims(p, axis + LEADING if axis >= 0 else axis) for p in source.parts), source.every)


def turned(args, made) -> Spread:
    source = spread_of(args[0])
    return Spread(tuple(p.transpose(0, 1, *(i + LEADING for i in args[1])) for p in source.parts), source.every)


def reshaped(args, made) -> Spread:
    whole = spread_of(args[0]).whole()
    each = whole.shape[:LEADING]
    return Spread((np.broadcast_to(whole, (*each, *args[0].data.shape)).reshape(*each, *made.data.shape),))


SPREADS = {
    "create_add": added, "create_sub": subtracted, "create_addptr": moved, "create_mul": multiplied,
    "create_and": both, "create_int_cast": widened, "create_broadcast": as_before,
    "create_expand_dims": with_an_axis, "create_trans": turned, "create_reshape": reshaped,
}  # fmt: skip
ELEMENTWISE = frozenset(
    f"create_{name}"
    for name in """
    fadd fmul fdiv frem fsub precise_divf sdiv udiv srem urem shl lshr ashr idiv umulhi minsi minui minimumf minnumf
    maxsi maxui maximumf maxnumf xor or bitcast int_to_ptr ptr_to_int clampf select fma fabs cos exp exp2 iabs floor
    ceil log log2 precise_sqrt sqrt sin erf rsqrt si_to_fp ui_to_fp fp_to_si fp_to_ui fp_ext fp_trunc fp_to_fp
    icmpSLE icmpSLT icmpSGE icmpSGT icmpULE icmpULT icmpUGE icmpUGT icmpEQ icmpNE
    fcmpOLT fcmpOGT fcmpOLE fcmpOGE fcmpOEQ fcmpONE fcmpULT fcmpUGT fcmpULE fcmpUGE fcmpUEQ fcmpUNE
    """.split()
)
