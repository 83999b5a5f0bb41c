"""What the kernel of `via = multimem` can do behind the sum, which the switch leaves rounded to the payload's dtype.

It goes through vectors of 16 bytes: whatever it reads or leaves beside the sum is cut like the payload.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from chunkdsl.plan.exchange import Store
from chunkdsl.plan.schedule import Instruction, Operand

VECTOR = 4  # 32-bit words that the switch adds up at once
# Vectors of a row of a norm: a program holds the sums of a row in registers, 8 vectors in each of 512 threads.
MOST_VECTORS = 4096
STEPS = ("load", "round", "add", "sub", "mul", "div", "neg", "relu", "gelu", "silu", "tanh", "rms_norm")


def unswitched(
    dtype: str, narrow: bool, vectors: int, epilogue: Sequence[Instruction], operands: Sequence[Operand],
    stores: Sequence[Store],
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """(what, why) of all that it cannot. `narrow`: rows that are no multiple of 16 bytes; `vectors`: of the longest row
    that a norm goes through, else 0."""
    if narrow:
        yield "rows that are no multiple of 16 bytes", "the switch adds up vectors of 16 bytes"
    if vectors > MOST_VECTORS:
        why = f"a program holds the sums of a row in its registers, up to {MOST_VECTORS * 16:,} bytes"
        yield f"a norm of rows of {vectors * 16:,} bytes", why
    for name in dict.fromkeys(o.source for o in operands if o.dtype != dtype or o.role not in ("full", "row")):
        yield f"`{name}` beside the sum", f"its kernel reads vectors of 16 bytes: matrices and rows of {dtype} alone"
    for name in dict.fromkeys(s.tensor for s in stores if s.dtype != dtype):
        yield f"`{name}` of another dtype", f"its kernel leaves vectors of {dtype}, as the switch does"
    for op in dict.fromkeys(step.op for step in epilogue if step.op not in STEPS):
        yield op, "its kernel has no such step"


def after_rounding(epilogue: Sequence[Instruction], dtype: str) -> tuple[Instruction, ...]:
    """The same from the rounded sum on, as the switch leaves it."""
    rest = [replace(s, args=tuple("summed" if a == "total" else a for a in s.args)) for s in epilogue]
    return (Instruction("summed", "round", ("total", dtype)), *rest)
