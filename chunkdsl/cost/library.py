"""How long a product takes that the library computes."""

from __future__ import annotations

from chunkdsl.cost.constants import Machine

# Tiles that a library chooses from, and what a smaller one keeps of the largest one's rate: fitted to cuBLAS alone
# (tests/bench/RESULTS.md, products, and layers in graphs of 16 ms), where the power cap takes most of the difference.
LIBRARY_TILES = ((128, 256, 1.0), (128, 128, 0.98), (64, 128, 0.8), (64, 64, 0.55))


def library_gemm_us(rows: int, cols: int, depth: int, dtype: str, m: Machine) -> float:
    """[rows, depth] @ [depth, cols] by the library: the best of its tiles, in whole waves."""
    gpu, best = m.gpu, None
    rate = gpu.gflops[dtype] * gpu.library_loop / gpu.multiprocessors
    for bm, bn, kept in LIBRARY_TILES:
        tiles = max(1, -(-rows // bm) * -(-cols // bn))
        faster = gpu.clock(min(1.0, tiles / gpu.multiprocessors))
        us = -(-tiles // gpu.multiprocessors) * 2e-3 * bm * bn * depth / (rate * kept * faster)
        best = us if best is None else min(best, us)
    return m.kernels.library_gemm_us + best
