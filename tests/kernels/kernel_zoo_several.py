"""Single-GPU kernels with several results."""

import triton
import triton.language as tl


@triton.jit
def matmul_and_gelu(a_ptr, b_ptr, c_ptr, act_ptr, M, N, K, stride_am, stride_bk,
                    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """An epilogue with two stores: what a backward pass needs, and its activation."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        a_mask, b_mask = (rows[:, None] < M) & (ks[None, :] < K), (ks[:, None] < K) & (cols[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * stride_am + ks[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + ks[:, None] * stride_bk + cols[None, :], mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc)
    here = (rows[:, None] < M) & (cols[None, :] < N)
    place = rows[:, None] * N + cols[None, :]
    tl.store(c_ptr + place, acc.to(c_ptr.dtype.element_ty), mask=here)
    gated = acc / (1 + tl.exp(-1.702 * acc))
    tl.store(act_ptr + place, gated.to(act_ptr.dtype.element_ty), mask=here)


@triton.jit
def layer_norm_forward(x_ptr, y_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, stride, N, eps, BLOCK: tl.constexpr):
    """The tutorial's forward pass: mean and reciprocal deviation of each row are kept for the backward pass."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    here = cols < N
    x = tl.load(x_ptr + row * stride + cols, mask=here, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    rest = tl.where(here, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(rest * rest, axis=0) / N + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    w = tl.load(w_ptr + cols, mask=here, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + cols, mask=here, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * stride + cols, (rest * rstd * w + b).to(y_ptr.dtype.element_ty), mask=here)


@triton.jit
def attention_and_sums(q_ptr, kv_ptr, o_ptr, lse_ptr, S, T, scale,
                       D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    """Attention over keys that are values as well, and the log-sum-exp of each row."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + d[None, :], mask=rows[:, None] < S, other=0.0)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    total, top = tl.zeros((BM,), dtype=tl.float32), tl.full((BM,), float("-inf"), dtype=tl.float32)
    for start in range(0, T, BN):
        at = start + tl.arange(0, BN)
        kv = tl.load(kv_ptr + at[:, None] * D + d[None, :], mask=at[:, None] < T, other=0.0)
        s = tl.where(at[None, :] < T, tl.dot(q, kv.T) * scale, float("-inf"))
        peak = tl.maximum(top, tl.max(s, 1))
        p = tl.exp(s - peak[:, None])
        shrink = tl.exp(top - peak)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(kv.dtype), kv, acc * shrink[:, None])
        top = peak
    tl.store(o_ptr + rows[:, None] * D + d[None, :], (acc / total[:, None]).to(o_ptr.dtype.element_ty),
             mask=rows[:, None] < S)  # fmt: skip
    tl.store(lse_ptr + rows, top + tl.log(total), mask=rows < S)


@triton.jit
def scale_of_the_next(x_ptr, y_ptr, s_ptr, n_cols, n_rows, BLOCK: tl.constexpr):
    """A row, and the largest element of the row before: stored by another program than its row."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(y_ptr + row * n_cols + cols, x, mask=cols < n_cols)
    tl.store(s_ptr + (row + 1) % n_rows, tl.max(x.to(tl.float32), axis=0))
