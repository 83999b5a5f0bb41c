"""Sizes as Python of the wrapper."""

from __future__ import annotations

from chunkdsl.ir.types import DimRef, Share, index_key


def dim_text(size, mapping: str) -> str:
    """A size as Python with dims read from a mapping."""
    if isinstance(size, DimRef):
        return f'{mapping}["{size.name}"]'
    if isinstance(size, int):
        return str(size)
    if isinstance(size, Share):
        at = f'{mapping}["{size.axis}"], {mapping}["{index_key(size.axis)}"]'
        return f"shard_rows({dim_text(size.size, mapping)}, {at})"
    a, b = dim_text(size.left, mapping), dim_text(size.right, mapping)
    return f"cdiv({a}, {b})" if size.op == "/" else f"({a} {'%' if size.op == 'mod' else size.op} {b})"
