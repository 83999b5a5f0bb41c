"""How emitted code counts columns and rows: rows are whole units of 16 bytes, pitches are handed over in such units,
and a slot of a buffer has a stride of rows for each shard in it."""

from __future__ import annotations

from chunkdsl.plan.footprint import ALIGNMENT, ITEM

EVEN_COLUMNS = 8  # what EVEN promises of every width: whole units of 16 bytes in the narrowest dtype


def vector_of(dtype: str) -> int:
    """Elements in a unit."""
    return ALIGNMENT // ITEM[dtype]


def in_elements(pitch: str, dtype: str) -> str:
    """Emitted expression: a pitch, which counts units, in elements."""
    return f"{pitch} * {vector_of(dtype)}"


def even(size: str, unit: int = EVEN_COLUMNS) -> str:
    """Emitted expression: a size, which the compiler sees to be a multiple of `unit` where it is one."""
    return f"{size} // {unit} * {unit} if EVEN else {size}"


def is_even(size: str) -> str:
    """Emitted condition: EVEN holds of a size."""
    return f"{size} % {EVEN_COLUMNS} == 0"


def slot_rows(stride: str = "stride_cap") -> str:
    """Emitted expression: rows, at the bounds, of a slot that holds a shard of every rank."""
    return f"W * {stride}"
