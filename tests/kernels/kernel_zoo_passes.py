"""Kernels that go through gathered rows in several loops, one behind the other; none knows of ranks."""

import triton
import triton.language as tl


@triton.jit
def attend_in_passes(q_ptr, k_ptr, v_ptr, o_ptr, S, T, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Softmax over keys in one pass, then the sum of values by it: no rescaling, keys are read twice."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + d[None, :], mask=rows[:, None] < S, other=0.0)
    top = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    for start in range(0, T, BN):
        at = start + tl.arange(0, BN)
        k = tl.load(k_ptr + at[:, None] * D + d[None, :], mask=at[:, None] < T, other=0.0)
        s = tl.where(at[None, :] < T, tl.dot(q, k.T) * scale, -1e30)
        new = tl.maximum(top, tl.max(s, axis=1))
        total = total * tl.exp2(top - new) + tl.sum(tl.exp2(s - new[:, None]), axis=1)
        top = new
    acc = tl.zeros((BM, D), dtype=tl.float32)
    for block in tl.range(0, tl.cdiv(T, BN), num_stages=2):
        at = block * BN + tl.arange(0, BN)
        k = tl.load(k_ptr + at[:, None] * D + d[None, :], mask=at[:, None] < T, other=0.0)
        v = tl.load(v_ptr + at[:, None] * D + d[None, :], mask=at[:, None] < T, other=0.0)
        s = tl.where(at[None, :] < T, tl.dot(q, k.T) * scale, -1e30)
        p = tl.exp2(s - top[:, None]) / total[:, None]
        acc = tl.dot(p.to(v.dtype), v, acc)
    tl.store(o_ptr + rows[:, None] * D + d[None, :], acc.to(o_ptr.dtype.element_ty), mask=rows[:, None] < S)


@triton.jit
def rows_before(x_ptr, T, D: tl.constexpr, BN: tl.constexpr):
    """The mean of all rows."""
    d = tl.arange(0, D)
    total = tl.zeros((D,), dtype=tl.float32)
    for start in range(0, T, BN):
        at = start + tl.arange(0, BN)
        x = tl.load(x_ptr + at[:, None] * D + d[None, :], mask=at[:, None] < T, other=0.0)
        total += tl.sum(x.to(tl.float32), 0)
    return total / T


@triton.jit
def attend_pooled(q_ptr, k_ptr, v_ptr, o_ptr, S, T, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Keys and values in loops of their own: a query is gated by the mean key and takes the mean value."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + d[None, :], mask=rows[:, None] < S, other=0.0).to(tl.float32)
    key = rows_before(k_ptr, T, D, BN)
    gate = tl.sigmoid(tl.sum(q * key[None, :], axis=1) * scale)
    value = tl.zeros((D,), dtype=tl.float32)
    for start in range(0, T, 2 * BN):
        at = start + tl.arange(0, 2 * BN)
        v = tl.load(v_ptr + at[:, None] * D + d[None, :], mask=at[:, None] < T, other=0.0)
        value += tl.sum(v.to(tl.float32), 0)
    o = q + gate[:, None] * value[None, :] / T
    tl.store(o_ptr + rows[:, None] * D + d[None, :], o.to(o_ptr.dtype.element_ty), mask=rows[:, None] < S)
