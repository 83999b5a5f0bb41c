"""What modules were when rows were recorded, where it is not what they are now: without it the model would be held
against kernels and calls that nobody measured."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from chunkdsl.lower import choices
from chunkdsl.lower.crossovers import crossover
from chunkdsl.plan import tile_kernels


@contextmanager
def tiles_of(columns: int):
    """With the tile of specialised warps of so many columns alone."""
    w = tile_kernels.warp_tiles()
    shapes = tuple(s for s in w.shapes if s.columns == columns)
    with patch.object(tile_kernels, "warp_tiles", lambda: replace(w, shapes=shapes)):
        yield


def widest_tiles():
    """With the widest tile alone, as when layers were measured and tuned."""
    return tiles_of(tile_kernels.warp_tiles().shapes[0].columns)


@contextmanager
def one_buffer():
    """With one buffer and a closing barrier above 1 MiB, as until 2026-12-01."""
    with patch.object(choices, "crossover", lambda name: 1 << 20 if name == "buffers" else crossover(name)):
        yield
