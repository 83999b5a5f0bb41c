"""Addresses of a batch of programs: those of block pointers and descriptors, and where they lie in an argument."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from chunkdsl.kernels.spread import LEADING, Lanes, Spread, merged, spread_of
from chunkdsl.kernels.trace import Argument


def leading(arrays: Iterable[np.ndarray]) -> tuple[int, ...]:
    """How many programs and rounds there are in any of these."""
    return np.broadcast_shapes(*(a.shape[:LEADING] for a in arrays))


def picked(array: np.ndarray, at: Sequence[int]) -> np.ndarray:
    return array[tuple(min(int(i), n - 1) for i, n in zip(at, array.shape, strict=False))]


def addresses(block, offsets, checked) -> tuple[Spread, Spread]:
    """Of a block pointer or a descriptor at these offsets: where its elements lie, and which are within its bounds."""
    axes = len(block.block_shape)
    size = max(1, block.base.get_element_ty().primitive_bitwidth // 8)

    def number(handle) -> np.ndarray:
        whole = spread_of(handle).whole().astype(np.int64)
        return whole.reshape(*whole.shape[:LEADING], *[1] * axes)

    pointers, mask = [number(block.base)], [np.ones((1,) * (axes + LEADING), bool)]
    for axis, length in enumerate(block.block_shape):
        lanes = np.arange(length).reshape(1, 1, *(length if i == axis else 1 for i in range(axes)))
        at = number(offsets[axis]) + lanes
        pointers.append(size * at * number(block.strides[axis]))
        if axis in checked:
            mask.append((at >= 0) & (at < number(block.shape[axis])))
    return merged(pointers), merged(mask, True)


def first_address(pointers: Spread, mask: Spread) -> int | None:
    """Where one of the elements that are touched lies; None if none is."""
    some = np.ones((1, 1), bool)
    for part in mask.parts:
        some = some & part.reshape(*part.shape[:LEADING], -1).any(axis=-1)
    if not some.any():
        return None
    there = np.broadcast_to(some, leading([*pointers.parts, *mask.parts]))
    for place in np.argwhere(there):
        masked = np.logical_and.reduce(np.broadcast_arrays(*(picked(p, place) for p in mask.parts)))
        at = sum(picked(p, place).astype(np.int64) for p in pointers.parts)
        at, masked = np.broadcast_arrays(at, masked)
        if masked.any():
            return int(at[masked][0])
    return None


def outside(lanes: Lanes, a: Argument, lengths: np.ndarray) -> int | None:
    """A program that leaves the declared shape, of which the first dimension is `lengths` long, [programs, 1, 1]."""
    count = lengths * (a.rows // a.shape[0]) if len(a.shape) > 1 and a.shape[0] else a.rows
    rows = (lanes.rows < 0) | (lanes.rows >= count)
    rows = rows & lanes.row_mask if rows.any() else rows
    longest = lengths if len(a.shape) == 1 else a.cols
    columns = (lanes.columns < 0) | (lanes.columns >= longest)
    columns = columns & lanes.column_mask if columns.any() else columns
    if not (rows.any() or columns.any()):
        return None
    bad = (rows | columns).any(axis=-1) if lanes.paired else (
        (rows.any(axis=-1) & lanes.column_mask.any(axis=-1)) | (columns.any(axis=-1) & lanes.row_mask.any(axis=-1))
    )  # fmt: skip
    found = np.flatnonzero(bad.any(axis=1))
    return int(found[0]) if found.size else None
