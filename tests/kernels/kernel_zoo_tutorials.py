"""Structures of Triton's own tutorials, more closely than the other kernels here: what their helpers are for, and how
they carry indices from one round to the next."""

import triton
import triton.language as tl


@triton.jit
def tile_of(tile, in_group, row_blocks, GROUP: tl.constexpr):
    """Place of a tile in the grouped order."""
    first = tile // in_group * GROUP
    height = min(row_blocks - first, GROUP)
    return first + tile % height, (tile % in_group) // height


@triton.jit
def matmul_tma_persistent(
    a_desc, b_desc, c_desc, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, HALVES: tl.constexpr,
    PROGRAMS: tl.constexpr,
):  # fmt: skip
    """The persistent product with descriptors: the tile of the epilogue is counted apart, for the pipeliner's sake."""
    start = tl.program_id(axis=0)
    row_blocks, col_blocks, depths = tl.cdiv(M, BM), tl.cdiv(N, BN), tl.cdiv(K, BK)
    in_group = GROUP * col_blocks
    tile_c = start - PROGRAMS
    for tile in tl.range(start, row_blocks * col_blocks, PROGRAMS, flatten=True):
        row, col = tile_of(tile, in_group, row_blocks, GROUP)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(depths):
            acc = tl.dot(a_desc.load([row * BM, k * BK]), b_desc.load([col * BN, k * BK]).T, acc)
        tile_c += PROGRAMS
        row, col = tile_of(tile_c, in_group, row_blocks, GROUP)
        if HALVES:
            left, right = tl.split(tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1)))
            c_desc.store([row * BM, col * BN], left.to(c_desc.dtype))
            c_desc.store([row * BM, col * BN + BN // 2], right.to(c_desc.dtype))
        else:
            c_desc.store([row * BM, col * BN], acc.to(c_desc.dtype))


@triton.jit
def as_descriptor(given, shape, strides, block_shape):
    """What was given, or a descriptor of it."""
    if isinstance(given, tl.tensor_descriptor):
        return given
    else:
        return tl.make_tensor_descriptor(given, shape, strides, block_shape)


@triton.jit
def attend(acc, total, top, q, desc_k, desc_v, row, scale, N_CTX,
           STAGE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):  # fmt: skip
    """Rounds below the diagonal (1), on it (2), or all of them (3)."""
    if STAGE == 1:
        low, high = 0, row * BLOCK_M
    elif STAGE == 2:
        low, high = row * BLOCK_M, min((row + 1) * BLOCK_M, N_CTX)
    else:
        low, high = 0, N_CTX
    at = low
    for start in tl.range(low, high, BLOCK_N):
        start = tl.multiple_of(start, BLOCK_N)
        s = tl.dot(q, desc_k.load([at, 0]).T) * scale
        keys = start + tl.arange(0, BLOCK_N)
        here = keys[None, :] < N_CTX
        if STAGE == 2:
            here = here & (row * BLOCK_M + tl.arange(0, BLOCK_M)[:, None] >= keys[None, :])
        s = tl.where(here, s, -1e30)
        peak = tl.maximum(top, tl.max(s, 1))
        p = tl.math.exp2(s - peak[:, None])
        shrink = tl.math.exp2(top - peak)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(desc_v.dtype), desc_v.load([at, 0]), acc * shrink[:, None])
        top = peak
        at += BLOCK_N
    return acc, total, top


@triton.jit
def attention_forward(
    scale, top_ptr, desc_q, desc_k, desc_v, desc_o, N_CTX,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGE: tl.constexpr,
):  # fmt: skip
    """One head: queries, keys, values and the result by descriptors or pointers; STAGE 3 is causal, 1 is not."""
    row = tl.program_id(0)
    desc_q = as_descriptor(desc_q, [N_CTX, HEAD], [HEAD, 1], [BLOCK_M, HEAD])
    desc_k = as_descriptor(desc_k, [N_CTX, HEAD], [HEAD, 1], [BLOCK_N, HEAD])
    desc_v = as_descriptor(desc_v, [N_CTX, HEAD], [HEAD, 1], [BLOCK_N, HEAD])
    desc_o = as_descriptor(desc_o, [N_CTX, HEAD], [HEAD, 1], [BLOCK_M, HEAD])
    rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
    top = tl.zeros([BLOCK_M], dtype=tl.float32) - 1e30
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD], dtype=tl.float32)
    q = desc_q.load([row * BLOCK_M, 0])
    if STAGE & 1:
        acc, total, top = attend(acc, total, top, q, desc_k, desc_v, row, scale * 1.44269504, N_CTX,
                                 4 - STAGE, BLOCK_M, BLOCK_N)  # fmt: skip
    if STAGE & 2:
        acc, total, top = attend(acc, total, top, q, desc_k, desc_v, row, scale * 1.44269504, N_CTX,
                                 2, BLOCK_M, BLOCK_N)  # fmt: skip
    tl.store(top_ptr + rows, top + tl.math.log2(total), mask=rows < N_CTX)
    desc_o.store([row * BLOCK_M, 0], (acc / total[:, None]).to(desc_o.dtype))
