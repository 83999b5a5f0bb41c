"""Kernels with a loop over gathered rows, and the structures of tutorials and libraries; none knows of ranks."""

import triton
import triton.language as tl


@triton.jit
def attend(acc, total, top, q, kv_ptr, first_row, scale, T,
           CAUSAL: tl.constexpr, STAGE: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    """Keys and values of one stage: below the diagonal, on it, or all. A row of kv is a key and then a value."""
    if not CAUSAL:
        lo, hi = 0, T
    elif STAGE == 1:
        lo, hi = 0, first_row
    else:
        lo, hi = first_row, tl.minimum(first_row + BM, T)
    rows = first_row + tl.arange(0, BM)
    d = tl.arange(0, D)
    for start in tl.range(lo, hi, BN, num_stages=2):
        at = start + tl.arange(0, BN)
        here = at[:, None] < T
        k = tl.load(kv_ptr + at[:, None] * (2 * D) + d[None, :], mask=here, other=0.0)
        seen = at[None, :] < T
        if CAUSAL and STAGE == 2:
            seen = seen & (at[None, :] <= rows[:, None])
        s = tl.where(seen, tl.dot(q, k.T) * scale, -1e30)
        new = tl.maximum(top, tl.max(s, axis=1))
        p = tl.exp2(s - new[:, None])
        keep = tl.exp2(top - new)
        total = total * keep + tl.sum(p, axis=1)
        v = tl.load(kv_ptr + at[:, None] * (2 * D) + D + d[None, :], mask=here, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * keep[:, None])
        top = new
    return acc, total, top


@triton.jit
def fused_attention(q_ptr, kv_ptr, o_ptr, S, T, scale, CAUSAL: tl.constexpr, D: tl.constexpr, BM: tl.constexpr,
                    BN: tl.constexpr):  # fmt: skip
    """The forward pass with its loop in a helper, which is called once for each stage."""
    first_row = tl.program_id(0) * BM
    rows = first_row + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + d[None, :], mask=rows[:, None] < S, other=0.0)
    top = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    acc, total, top = attend(acc, total, top, q, kv_ptr, first_row, scale, T, CAUSAL, 1, D, BM, BN)
    if CAUSAL:
        acc, total, top = attend(acc, total, top, q, kv_ptr, first_row, scale, T, CAUSAL, 2, D, BM, BN)
    o = acc / total[:, None]
    tl.store(o_ptr + rows[:, None] * D + d[None, :], o.to(o_ptr.dtype.element_ty), mask=rows[:, None] < S)


@triton.jit
def matmul_pointers(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
                    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """A loop that counts blocks of K and carries its pointers."""
    pid = tl.program_id(0)
    rows = pid // tl.cdiv(N, BN) * BM + tl.arange(0, BM)
    cols = pid % tl.cdiv(N, BN) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    a_ptrs = a_ptr + rows[:, None] * stride_am + depth[None, :]
    b_ptrs = b_ptr + depth[:, None] * stride_bk + cols[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = K - k * BK
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (depth[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(depth[:, None] < left) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BK
        b_ptrs += BK * stride_bk
    tl.store(c_ptr + rows[:, None] * stride_cm + cols[None, :], acc.to(c_ptr.dtype.element_ty),
             mask=(rows[:, None] < M) & (cols[None, :] < N))  # fmt: skip


# ---- loops that are not cut: programs wait for all rows


@triton.jit
def attend_downwards(q_ptr, kv_ptr, o_ptr, S, T, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """The last rows first."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    for start in range(tl.cdiv(T, BN) * BN - BN, -1, -BN):
        at = start + tl.arange(0, BN)
        acc += tl.sum(tl.load(kv_ptr + at[:, None] * D + d[None, :], mask=at[:, None] < T, other=0.0), axis=0)[None, :]
    q = tl.load(q_ptr + rows[:, None] * D + d[None, :], mask=rows[:, None] < S, other=0.0)
    o = q + acc * scale
    tl.store(o_ptr + rows[:, None] * D + d[None, :], o.to(o_ptr.dtype.element_ty), mask=rows[:, None] < S)


@triton.jit
def attend_twice(q_ptr, kv_ptr, o_ptr, S, T, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Two loops over the rows, and a load behind them."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    for start in range(0, T, BN):
        at = start + tl.arange(0, BN)
        acc += tl.sum(tl.load(kv_ptr + at[:, None] * D + d[None, :], mask=at[:, None] < T, other=0.0), axis=0)[None, :]
    q = tl.load(q_ptr + rows[:, None] * D + d[None, :], mask=rows[:, None] < S, other=0.0)
    o = q + acc * scale + tl.load(kv_ptr + d)[None, :]
    tl.store(o_ptr + rows[:, None] * D + d[None, :], o.to(o_ptr.dtype.element_ty), mask=rows[:, None] < S)


@triton.jit
def attend_halo(q_ptr, kv_ptr, o_ptr, S, T, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Each round also reads the row behind its block."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    for start in range(0, T, BN):
        at = start + tl.arange(0, BN)
        acc += tl.sum(tl.load(kv_ptr + at[:, None] * D + d[None, :], mask=at[:, None] < T, other=0.0), axis=0)[None, :]
        acc += tl.load(kv_ptr + tl.minimum(start + BN, T - 1) * D + d)[None, :]
    q = tl.load(q_ptr + rows[:, None] * D + d[None, :], mask=rows[:, None] < S, other=0.0)
    o = q + acc * scale
    tl.store(o_ptr + rows[:, None] * D + d[None, :], o.to(o_ptr.dtype.element_ty), mask=rows[:, None] < S)


@triton.jit
def attend_flattened(q_ptr, kv_ptr, o_ptr, S, T, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Inside a loop that the compiler flattens."""
    d = tl.arange(0, D)
    for block in tl.range(tl.program_id(0), tl.cdiv(S, BM), tl.num_programs(0), flatten=True):
        rows = block * BM + tl.arange(0, BM)
        acc = tl.zeros((BM, D), dtype=tl.float32)
        for start in range(0, T, BN):
            at = start + tl.arange(0, BN)
            kv = tl.load(kv_ptr + at[:, None] * D + d[None, :], mask=at[:, None] < T, other=0.0)
            acc += tl.sum(kv, axis=0)[None, :]
        q = tl.load(q_ptr + rows[:, None] * D + d[None, :], mask=rows[:, None] < S, other=0.0)
        o = q + acc * scale
        tl.store(o_ptr + rows[:, None] * D + d[None, :], o.to(o_ptr.dtype.element_ty), mask=rows[:, None] < S)
