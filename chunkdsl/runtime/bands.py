"""Tiles that go through the shards of all ranks in bands: the same rows of every shard, then the next ones. Copied into
generated modules.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def band_of(tile, blocks, columns, together, W):
    """Of the band of a tile: (the tile's number in it, its first row block in each shard, its row blocks of a shard).
    `together`: row blocks of a band; the last one has all that are left, up to twice as many."""
    bands = tl.maximum(blocks // together, 1)
    band = tl.minimum(tile // (together * columns * W), bands - 1)
    first = band * together
    return tile - first * columns * W, first, tl.where(band == bands - 1, blocks - first, together)
