"""Boxes cover exactly the bytes they are made of."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkdsl.sim.boxes import cut, cut_range


def covered(boxes, pitch):
    return sorted(r * pitch + c for r0, r1, c0, c1 in boxes for r in range(r0, r1) for c in range(c0, c1))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 20))
def test_ranges(offset, nbytes, pitch):
    boxes = cut_range(offset, nbytes, pitch)
    assert covered(boxes, pitch) == list(range(offset, offset + nbytes))
    assert len(boxes) <= 3


@st.composite
def tiles(draw):
    """Offsets of a tile of a matrix, perhaps transposed, repeated or scattered, with any mask."""
    itemsize = draw(st.sampled_from([1, 2, 4]))
    rows, cols = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    down, right = draw(st.integers(0, 12)), draw(st.sampled_from([0, 1, 1, 1, 3]))
    elements = draw(st.integers(0, 5)) + np.arange(rows)[:, None] * down + np.arange(cols)[None, :] * right
    mask = np.array(draw(st.lists(st.booleans(), min_size=rows * cols, max_size=rows * cols))).reshape(rows, cols)
    if draw(st.booleans()):
        mask = np.broadcast_to(mask[:1], mask.shape)
    if draw(st.booleans()):
        elements, mask = elements.T, mask.T
    if draw(st.booleans()):
        mask = np.ones_like(mask)
    return elements.astype(np.int64) * itemsize, mask, itemsize, itemsize * draw(st.integers(1, 12))


@settings(max_examples=150, deadline=None)
@given(tiles())
def test_any_tile(tile):
    offsets, mask, itemsize, pitch = tile
    want = sorted({o + b for o in offsets[mask].tolist() for b in range(itemsize)})
    assert covered(cut(offsets, mask, itemsize, pitch), pitch) == want


def test_a_tile_of_a_matrix_is_one_box():
    offsets = (5 * 64 + 8 + np.arange(16)[:, None] * 64 + np.arange(8)[None, :]) * 2
    assert cut(offsets, np.ones_like(offsets, bool), 2, 128) == [(5, 21, 16, 32)]
    assert cut(offsets.T, np.ones_like(offsets.T, bool), 2, 128) == [(5, 21, 16, 32)]
    inside = (np.arange(16)[:, None] < 3) & (np.arange(8)[None, :] < 5)
    assert cut(offsets, inside, 2, 128) == [(5, 8, 16, 26)]
