"""Grouped matrix products, as Triton's tutorial has them and in forms whose rows follow from program ids."""

import triton
import triton.language as tl


@triton.jit
def grouped_matmul(a_ptr, b_ptr, c_ptr, M, N, EACH, K: tl.constexpr, G: tl.constexpr, BM: tl.constexpr,
                   BN: tl.constexpr, BK: tl.constexpr, NUM_SM: tl.constexpr):  # fmt: skip
    """The tutorial's loop over groups and their tiles. A group is EACH rows; its K x N weights lie behind the last
    group's."""
    tile = tl.program_id(0)
    before = 0
    for g in range(G):
        height = tl.maximum(tl.minimum(M - g * EACH, EACH), 0)
        column_tiles = tl.cdiv(N, BN)
        tiles = tl.cdiv(height, BM) * column_tiles
        while (tile >= before) & (tile < before + tiles):
            rows = (tile - before) // column_tiles * BM + tl.arange(0, BM)
            cols = (tile - before) % column_tiles * BN + tl.arange(0, BN)
            a_ptrs = a_ptr + (g * EACH + rows[:, None]) * K + tl.arange(0, BK)[None, :]
            b_ptrs = b_ptr + (g * K + tl.arange(0, BK)[:, None]) * N + cols[None, :]
            acc = tl.zeros((BM, BN), dtype=tl.float32)
            for _ in range(K // BK):
                a = tl.load(a_ptrs, mask=rows[:, None] < height, other=0.0)
                b = tl.load(b_ptrs, mask=cols[None, :] < N, other=0.0)
                acc = tl.dot(a, b, acc)
                a_ptrs += BK
                b_ptrs += BK * N
            tl.store(c_ptr + (g * EACH + rows[:, None]) * N + cols[None, :], acc.to(c_ptr.dtype.element_ty),
                     mask=(rows[:, None] < height) & (cols[None, :] < N))  # fmt: skip
            tile += NUM_SM
        before += tiles


@triton.jit
def grouped_by_pointers(a_ptr, pointers_ptr, c_ptr, M, N, EACH, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """The weights of a group are where the table says."""
    row = tl.program_id(0) * BM
    rows, cols, ks = row + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, K)
    b_ptr = tl.load(pointers_ptr + row // EACH).to(tl.pointer_type(tl.bfloat16))
    here = rows[:, None] < M
    a = tl.load(a_ptr + rows[:, None] * K + ks[None, :], mask=here, other=0.0)
    b = tl.load(b_ptr + ks[:, None] * N + cols[None, :])
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], tl.dot(a, b).to(c_ptr.dtype.element_ty), mask=here)


@triton.jit
def grouped_by_sizes(a_ptr, b_ptr, sizes_ptr, c_ptr, M, N, K: tl.constexpr, G: tl.constexpr, BM: tl.constexpr,
                     BN: tl.constexpr):  # fmt: skip
    """How many rows a group has stands in a table, so where a tile is stored does."""
    tile = tl.program_id(0)
    first, before = 0, 0
    for g in range(G):
        height = tl.load(sizes_ptr + g)
        tiles = tl.cdiv(height, BM)
        if (tile >= before) & (tile < before + tiles):
            rows, cols, ks = (tile - before) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, K)
            here = rows[:, None] < height
            a = tl.load(a_ptr + (first + rows[:, None]) * K + ks[None, :], mask=here, other=0.0)
            b = tl.load(b_ptr + (g * K + ks[:, None]) * N + cols[None, :])
            tl.store(c_ptr + (first + rows[:, None]) * N + cols[None, :], tl.dot(a, b).to(c_ptr.dtype.element_ty),
                     mask=here)  # fmt: skip
        first += height
        before += tiles
