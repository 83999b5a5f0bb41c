"""More kernels with the structures of tutorials and libraries; none knows of ranks."""

import triton
import triton.language as tl


@triton.jit
def two_layers(x_ptr, w_ptr, v_ptr, y_ptr, M, N, K: tl.constexpr, J: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """relu(x @ w) @ v of a block of rows, the hidden layer in blocks that are never stored."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    deep, wide = tl.arange(0, K), tl.arange(0, J)
    here = rows[:, None] < M
    x = tl.load(x_ptr + rows[:, None] * K + deep[None, :], mask=here, other=0.0)
    acc = tl.zeros((BM, J), dtype=tl.float32)
    for n in range(0, N, BN):
        cols = n + tl.arange(0, BN)
        w = tl.load(w_ptr + deep[:, None] * N + cols[None, :], mask=cols[None, :] < N, other=0.0)
        v = tl.load(v_ptr + cols[:, None] * J + wide[None, :], mask=cols[:, None] < N, other=0.0)
        h = tl.maximum(tl.dot(x, w), 0.0)
        acc = tl.dot(h.to(v.dtype), v, acc)
    tl.store(y_ptr + rows[:, None] * J + wide[None, :], acc.to(y_ptr.dtype.element_ty), mask=here)


@triton.jit
def rotary(x_ptr, cos_ptr, sin_ptr, y_ptr, stride_x, stride_y, HEADS: tl.constexpr, HALF: tl.constexpr):
    """Halves of every head of a row, rotated by the row's angles."""
    row = tl.program_id(0)
    d = tl.arange(0, HALF)
    cos = tl.load(cos_ptr + row * HALF + d).to(tl.float32)
    sin = tl.load(sin_ptr + row * HALF + d).to(tl.float32)
    for head in range(HEADS):
        left = tl.load(x_ptr + row * stride_x + head * 2 * HALF + d).to(tl.float32)
        right = tl.load(x_ptr + row * stride_x + head * 2 * HALF + HALF + d).to(tl.float32)
        tl.store(y_ptr + row * stride_y + head * 2 * HALF + d, (left * cos - right * sin).to(y_ptr.dtype.element_ty))
        tl.store(y_ptr + row * stride_y + head * 2 * HALF + HALF + d,
                 (right * cos + left * sin).to(y_ptr.dtype.element_ty))  # fmt: skip


@triton.jit
def grouped_by_table(a_ptr, b_ptr, c_ptr, table_ptr, M, N, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """The group whose weights a block of rows takes stands in a table."""
    block = tl.program_id(0)
    group = tl.load(table_ptr + block)
    rows, ks = block * BM + tl.arange(0, BM), tl.arange(0, K)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    a = tl.load(a_ptr + rows[:, None] * K + ks[None, :], mask=rows[:, None] < M, other=0.0)
    b = tl.load(b_ptr + (group * K + ks[:, None]) * N + cols[None, :], mask=cols[None, :] < N, other=0.0)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], tl.dot(a, b).to(c_ptr.dtype.element_ty),
             mask=(rows[:, None] < M) & (cols[None, :] < N))  # fmt: skip


@triton.jit
def add_and_norm(x_ptr, res_ptr, w_ptr, y_ptr, stride_x, stride_r, stride_y, n_cols, eps, BLOCK: tl.constexpr):
    """RMSNorm of a sum with the residual."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    here = cols < n_cols
    x = tl.load(x_ptr + row * stride_x + cols, mask=here, other=0.0).to(tl.float32)
    x += tl.load(res_ptr + row * stride_r + cols, mask=here, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps)
    w = tl.load(w_ptr + cols, mask=here, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * stride_y + cols, (x * scale * w).to(y_ptr.dtype.element_ty), mask=here)


@triton.jit
def cross_entropy(x_ptr, y_ptr, stride_x, n_cols, BLOCK: tl.constexpr):
    """log-sum-exp of a row in two passes over blocks of columns: one number for each row."""
    row = tl.program_id(0)
    top = -float("inf")
    total = 0.0
    for off in range(0, n_cols, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new), axis=0)
        top = new
    tl.store(y_ptr + row, (top + tl.log(total)).to(y_ptr.dtype.element_ty))


@triton.jit
def vector_add(x_ptr, y_ptr, n_elements, BLOCK: tl.constexpr):
    """One dimension: the matrix as its elements one behind the other."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n_elements)
    tl.store(y_ptr + at, x + x, mask=at < n_elements)


@triton.jit
def dropout(x_ptr, y_ptr, n_cols, p, seed, BLOCK: tl.constexpr):
    """Rows with random zeros, which follow from the element's number."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    keep = tl.rand(seed, row * n_cols + cols) > p
    y = tl.where(keep, x / (1 - p), 0.0)
    tl.store(y_ptr + row * n_cols + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def matmul_split_k(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Parts of K on the second grid axis, added up by atomics."""
    pid = tl.program_id(0)
    rows = pid // tl.cdiv(N, BN) * BM + tl.arange(0, BM)
    cols = pid % tl.cdiv(N, BN) * BN + tl.arange(0, BN)
    ks = tl.program_id(1) * BK + tl.arange(0, BK)
    a = tl.load(a_ptr + rows[:, None] * K + ks[None, :], mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
    b = tl.load(b_ptr + ks[:, None] * N + cols[None, :], mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0)
    tl.atomic_add(c_ptr + rows[:, None] * N + cols[None, :], tl.dot(a, b).to(c_ptr.dtype.element_ty),
                  mask=(rows[:, None] < M) & (cols[None, :] < N))  # fmt: skip


@triton.jit
def quantize(x_ptr, y_ptr, s_ptr, n_cols, BLOCK: tl.constexpr):
    """A row and its scale: two results."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    scale = tl.max(tl.abs(x), axis=0) / 127
    tl.store(y_ptr + row * n_cols + cols, (x / scale).to(y_ptr.dtype.element_ty), mask=cols < n_cols)
    tl.store(s_ptr + row, scale.to(s_ptr.dtype.element_ty))
