"""Sets of addresses as few boxes. A box is (row0, row1, col0, col1), half-open, columns in bytes of a row of `pitch`.

Tiles of a matrix give one box each by a comparison of whole arrays; anything else goes by a bitmap.
"""

from __future__ import annotations

import numpy as np

Cells = tuple[int, int, int, int]


def cut_range(offset: int, nbytes: int, pitch: int) -> list[Cells]:
    """Boxes of the contiguous bytes [offset, offset + nbytes): at most a part row, whole rows and a part row."""
    if nbytes <= 0:
        return []
    row, col = divmod(offset, pitch)
    if col + nbytes <= pitch:
        return [(row, row + 1, col, col + nbytes)]
    boxes = []
    end = offset + nbytes
    if col:
        boxes.append((row, row + 1, col, pitch))
        row += 1
    last = end // pitch
    if last > row:
        boxes.append((row, last, 0, pitch))
    if end % pitch:
        boxes.append((last, last + 1, 0, end % pitch))
    return boxes


def cut(offsets: np.ndarray, mask: np.ndarray, itemsize: int, pitch: int) -> list[Cells]:
    """Boxes of the elements at byte `offsets` (int64, any shape) whose mask is set; empty if none is."""
    if offsets.size == 1:
        return cut_range(int(offsets.flat[0]), itemsize, pitch) if mask.flat[0] else []
    tile = _tile(offsets, mask)
    if tile is not None:
        if tile.size == 0:
            return []
        boxes = _affine(tile, itemsize, pitch)
        if boxes is not None:
            return boxes
        chosen = tile.reshape(-1)
    else:
        chosen = offsets[mask]
    return _bitmap(chosen, itemsize, pitch)


def _tile(offsets: np.ndarray, mask: np.ndarray) -> np.ndarray | None:
    """The chosen elements as a 2-D array, if the mask is an interval of rows times one of columns."""
    offsets = offsets.reshape(-1, offsets.shape[-1])
    if mask.all():
        return offsets
    mask = mask.reshape(offsets.shape)
    rows, cols = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    if not rows.size:
        return offsets[:0]
    part = (slice(rows[0], rows[-1] + 1), slice(cols[0], cols[-1] + 1))
    return offsets[part] if mask[part].all() else None


def _affine(tile: np.ndarray, itemsize: int, pitch: int) -> list[Cells] | None:
    """Boxes of a tile whose offsets are `first + i * down + j * itemsize` (or its transpose); None for others."""
    if tile.shape[1] > 1 and tile[0, 1] - tile[0, 0] != itemsize:
        tile = tile.T
    rows, cols = tile.shape
    first = int(tile[0, 0])
    down = int(tile[1, 0]) - first if rows > 1 else pitch
    model = first + np.arange(rows, dtype=np.int64)[:, None] * down + np.arange(cols, dtype=np.int64) * itemsize
    if not np.array_equal(model, tile):
        return None
    if rows == 1 or down == cols * itemsize:
        return cut_range(first, rows * cols * itemsize, pitch)
    row, col = divmod(first, pitch)
    if down == pitch and col + cols * itemsize <= pitch:
        return [(row, row + rows, col, col + cols * itemsize)]
    if down == 0:
        return cut_range(first, cols * itemsize, pitch)
    return None


def _bitmap(chosen: np.ndarray, itemsize: int, pitch: int) -> list[Cells]:
    """Boxes of any elements: runs of columns, joined over neighbouring rows that have the same runs."""
    chosen = np.unique(chosen)
    breaks = np.flatnonzero(np.diff(chosen) != itemsize) + 1
    starts = chosen[np.concatenate(([0], breaks))]
    ends = chosen[np.concatenate((breaks - 1, [chosen.size - 1]))] + itemsize
    boxes: list[Cells] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        for box in cut_range(start, end - start, pitch):
            if boxes and boxes[-1][1] == box[0] and boxes[-1][2:] == box[2:]:
                box = (boxes.pop()[0], *box[1:])
            boxes.append(box)
    return boxes
