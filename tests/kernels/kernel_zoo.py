"""Single-GPU kernels with the structures that tutorials and libraries use; none knows of ranks."""

import triton
import triton.language as tl


@triton.jit
def matmul_2d(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
              BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """A 2-D grid, masks on every edge, contiguous columns."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, num_stages=2):
        ks = k + tl.arange(0, BK)
        deep = ks < K
        a_mask, b_mask = (rows[:, None] < M) & deep[None, :], deep[:, None] & (cols[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * stride_am + ks[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + ks[:, None] * stride_bk + cols[None, :], mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * stride_cm + cols[None, :], acc.to(c_ptr.dtype.element_ty),
             mask=(rows[:, None] < M) & (cols[None, :] < N))  # fmt: skip


@triton.jit
def place(pid, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """The helper that persistent matrix products share."""
    row_blocks = tl.cdiv(M, BM)
    in_group = GROUP * tl.cdiv(N, BN)
    first = pid // in_group * GROUP
    height = min(row_blocks - first, GROUP)
    return first + (pid % in_group) % height, (pid % in_group) // height


@triton.jit
def matmul_persistent(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
                      BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
                      PROGRAMS: tl.constexpr):  # fmt: skip
    """A loop over tiles, with the place of a tile in a helper."""
    start = tl.program_id(axis=0)
    for tile in tl.range(start, tl.cdiv(M, BM) * tl.cdiv(N, BN), PROGRAMS, flatten=False):
        pid_m, pid_n = place(tile, M, N, BM, BN, GROUP)
        rows = pid_m * BM + tl.arange(0, BM)
        cols = pid_n * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            ks = k + tl.arange(0, BK)
            a = tl.load(a_ptr + rows[:, None] * stride_am + ks[None, :],
                        mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)  # fmt: skip
            b = tl.load(b_ptr + ks[:, None] * stride_bk + cols[None, :],
                        mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0)  # fmt: skip
            acc = tl.dot(a, b, acc)
        tl.store(c_ptr + rows[:, None] * stride_cm + cols[None, :], acc.to(c_ptr.dtype.element_ty),
                 mask=(rows[:, None] < M) & (cols[None, :] < N))  # fmt: skip


@triton.jit
def matmul_descriptor(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bn, stride_cm,
                      BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """Tensor descriptors made in the kernel, columns of a row block side by side, the result stored in halves."""
    a_desc = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[stride_am, 1], block_shape=[BM, BK])
    b_desc = tl.make_tensor_descriptor(b_ptr, shape=[N, K], strides=[stride_bn, 1], block_shape=[BN, BK])
    c_desc = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[stride_cm, 1], block_shape=[BM, BN // 2])
    pid = tl.program_id(0)
    pid_m, pid_n = pid // tl.cdiv(N, BN), pid % tl.cdiv(N, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([pid_m * BM, k]), b_desc.load([pid_n * BN, k]).T, acc)
    left, right = tl.split(tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1)))
    c_desc.store([pid_m * BM, pid_n * BN], left.to(c_ptr.dtype.element_ty))
    c_desc.store([pid_m * BM, pid_n * BN + BN // 2], right.to(c_ptr.dtype.element_ty))


@triton.jit
def matmul_blocks(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
                  BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """Block pointers, and all row blocks of a column block before the next."""
    pid = tl.program_id(0)
    pid_m, pid_n = pid % tl.cdiv(M, BM), pid // tl.cdiv(M, BM)
    a = tl.make_block_ptr(a_ptr, (M, K), (stride_am, 1), (pid_m * BM, 0), (BM, BK), (1, 0))
    b = tl.make_block_ptr(b_ptr, (K, N), (stride_bk, 1), (0, pid_n * BN), (BK, BN), (1, 0))
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, BK)):
        acc = tl.dot(tl.load(a, boundary_check=(0, 1), padding_option="zero"),
                     tl.load(b, boundary_check=(0, 1), padding_option="zero"), acc)  # fmt: skip
        a = tl.advance(a, (0, BK))
        b = tl.advance(b, (BK, 0))
    c = tl.make_block_ptr(c_ptr, (M, N), (stride_cm, 1), (pid_m * BM, pid_n * BN), (BM, BN), (1, 0))
    tl.store(c, acc.to(c_ptr.dtype.element_ty), boundary_check=(0, 1))


@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n_cols"])
@triton.jit
def rms_norm(x_ptr, w_ptr, y_ptr, stride_x, stride_y, n_cols, eps, BLOCK: tl.constexpr):
    """One program for each row, autotuned."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps)
    w = tl.load(w_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * stride_y + cols, (x * scale * w).to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def layer_norm(x_ptr, y_ptr, w_ptr, b_ptr, stride, N, eps, BLOCK: tl.constexpr):
    """Three passes over a row, a block of columns at a time."""
    row = tl.program_id(0)
    x_ptr += row * stride
    y_ptr += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / N
    square = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.0)
        square += x * x
    rstd = 1 / tl.sqrt(tl.sum(square, axis=0) / N + eps)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols, mask=cols < N)
        b = tl.load(b_ptr + cols, mask=cols < N)
        tl.store(y_ptr + cols, ((x - mean) * rstd * w + b).to(y_ptr.dtype.element_ty), mask=cols < N)


@triton.jit
def softmax(out_ptr, in_ptr, in_stride, out_stride, n_rows, n_cols, BLOCK: tl.constexpr):
    """Rows at a stride of the number of programs."""
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0), num_stages=2):
        cols = tl.arange(0, BLOCK)
        x = tl.load(in_ptr + row * in_stride + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(out_ptr + row * out_stride + cols, y.to(out_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def silu_of(x):
    return x * tl.sigmoid(x)


@triton.jit
def gated(a_ptr, c_ptr, stride_a, stride_c, n_cols, BLOCK: tl.constexpr):
    """SwiGLU of the halves of a row, blocks of columns on a second grid axis."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    gate = tl.load(a_ptr + row * stride_a + cols, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(a_ptr + row * stride_a + n_cols + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(c_ptr + row * stride_c + cols, (silu_of(gate) * up).to(c_ptr.dtype.element_ty), mask=mask)


@triton.jit
def attention_rows(q_ptr, kv_ptr, o_ptr, S, T, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """One head: a block of queries against every row of keys, which are the values too."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + d[None, :], mask=rows[:, None] < S, other=0.0)
    top = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    for start in range(0, T, BN):
        at = start + tl.arange(0, BN)
        kv = tl.load(kv_ptr + at[:, None] * D + d[None, :], mask=at[:, None] < T, other=0.0)
        s = tl.where(at[None, :] < T, tl.dot(q, kv.T) * scale, -1e30)
        new = tl.maximum(top, tl.max(s, axis=1))
        p = tl.exp(s - new[:, None])
        keep = tl.exp(top - new)
        total = total * keep + tl.sum(p, axis=1)
        acc = tl.dot(p.to(kv.dtype), kv, acc * keep[:, None])
        top = new
    o = acc / total[:, None]
    tl.store(o_ptr + rows[:, None] * D + d[None, :], o.to(o_ptr.dtype.element_ty), mask=rows[:, None] < S)


@triton.jit
def attention_kv(q_ptr, k_ptr, v_ptr, o_ptr, S, T, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """One head: keys and values apart."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + d[None, :], mask=rows[:, None] < S, other=0.0)
    top = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    for start in range(0, T, BN):
        at = start + tl.arange(0, BN)
        k = tl.load(k_ptr + at[:, None] * D + d[None, :], mask=at[:, None] < T, other=0.0)
        s = tl.where(at[None, :] < T, tl.dot(q, k.T) * scale, -1e30)
        new = tl.maximum(top, tl.max(s, axis=1))
        p = tl.exp(s - new[:, None])
        keep = tl.exp(top - new)
        total = total * keep + tl.sum(p, axis=1)
        v = tl.load(v_ptr + at[:, None] * D + d[None, :], mask=at[:, None] < T, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * keep[:, None])
        top = new
    o = acc / total[:, None]
    tl.store(o_ptr + rows[:, None] * D + d[None, :], o.to(o_ptr.dtype.element_ty), mask=rows[:, None] < S)


@triton.jit
def add_norm(x_ptr, r_ptr, w_ptr, y_ptr, n_cols, eps, BLOCK: tl.constexpr):
    """RMSNorm of the sum of two rows."""
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    inside = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(r_ptr + row * n_cols + cols, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps) * w
    tl.store(y_ptr + row * n_cols + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.heuristics({"EVEN": lambda args: args["n_cols"] % args["BLOCK"] == 0})
@triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=["n_cols"])
@triton.jit
def scaled(x_ptr, y_ptr, n_cols, alpha, EVEN: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Under two choosers, with variants by constants."""
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + row * n_cols + cols)
    else:
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    if KIND == "relu":
        y = tl.maximum(x, 0.0) * alpha
    else:
        y = x * alpha
    if EVEN:
        tl.store(y_ptr + row * n_cols + cols, y.to(y_ptr.dtype.element_ty))
    else:
        tl.store(y_ptr + row * n_cols + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def matmul_swizzle(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
                   BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    pid_m, pid_n = tl.swizzle2d(tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), 4)
    rows = pid_m * BM + tl.arange(0, BM)
    cols = pid_n * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        ks = k + tl.arange(0, BK)
        deep, inside = ks < K, cols[None, :] < N
        a_mask = (rows[:, None] < M) & deep[None, :]
        a = tl.load(a_ptr + rows[:, None] * stride_am + ks[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + ks[:, None] * stride_bk + cols[None, :], mask=deep[:, None] & inside, other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * stride_cm + cols[None, :], acc.to(c_ptr.dtype.element_ty),
             mask=(rows[:, None] < M) & (cols[None, :] < N))  # fmt: skip


@triton.jit
def doubled(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    """A grid of three axes, of which two share the columns."""
    cols = (tl.program_id(0) * 2 + tl.program_id(1)) * BLOCK + tl.arange(0, BLOCK)
    at = tl.program_id(2) * n_cols + cols
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=cols < n_cols) * 2, mask=cols < n_cols)


# ---- kernels that are refused


@triton.jit
def by_index(x_ptr, i_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    at = tl.load(i_ptr + row).to(tl.int32)
    x = tl.load(x_ptr + at * n_cols + cols, mask=cols < n_cols)
    tl.store(y_ptr + row * n_cols + cols, x, mask=cols < n_cols)


@triton.jit
def adds_atomically(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols)
    tl.atomic_add(y_ptr + row * n_cols + cols, x, mask=cols < n_cols)


@triton.jit
def reads_its_result(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols)
    tl.store(y_ptr + row * n_cols + cols, x, mask=cols < n_cols)
    y = tl.load(y_ptr + row * n_cols + cols, mask=cols < n_cols)
    tl.store(y_ptr + row * n_cols + cols, y + x, mask=cols < n_cols)


@triton.jit
def works_in_place(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols)
    tl.store(x_ptr + row * n_cols + cols, x + x, mask=cols < n_cols)
    tl.store(y_ptr + row * n_cols + cols, x, mask=cols < n_cols)


@triton.jit
def looks_ahead(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + (row + 1) * n_cols + cols, mask=cols < n_cols)
    tl.store(y_ptr + row * n_cols + cols, x, mask=cols < n_cols)


@triton.jit
def returns_early(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols)
        tl.store(y_ptr + row * n_cols + cols, x, mask=cols < n_cols)
        if start > n_cols:
            return


@triton.jit
def half_of_it(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols // 2)
    tl.store(y_ptr + row * n_cols + cols, x, mask=cols < n_cols // 2)


@triton.jit
def counts_visits(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.atomic_add(x_ptr + row * n_cols + cols, 1.0, mask=cols < n_cols)
    tl.store(y_ptr + row * n_cols + cols, x, mask=cols < n_cols)


@triton.jit
def by_mask(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(y_ptr + row * n_cols + cols, x, mask=(cols < n_cols) & (x < 1.0))


@triton.jit
def takes_a_descriptor(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = x_ptr.load([row, 0])
    tl.store(y_ptr + row * n_cols + cols, x, mask=cols < n_cols)


@triton.jit
def from_the_last_row(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.num_programs(0) - 1 - tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols)
    tl.store(y_ptr + row * n_cols + cols, x, mask=cols < n_cols)
