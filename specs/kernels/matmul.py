"""An ordinary single-GPU matrix product, with the structure of Triton's tutorial: nothing here knows of ranks.

`user_gemm.chunk` says which parameter is which tensor; the rest is found.
"""

import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N, K,
    stride_am, stride_ak,  # elements from one row, and from one column, to the next
    stride_bk, stride_bn,
    stride_cm, stride_cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """c[M, N] = a[M, K] @ b[K, N], accumulated in f32."""
    pid = tl.program_id(axis=0)
    # Programs that run together share rows of `a` and columns of `b` in the L2 cache.
    row_blocks = tl.cdiv(M, BM)
    column_blocks = tl.cdiv(N, BN)
    in_group = GROUP * column_blocks
    first = pid // in_group * GROUP
    height = min(row_blocks - first, GROUP)
    pid_m = first + (pid % in_group) % height
    pid_n = (pid % in_group) // height

    rows = (pid_m * BM + tl.arange(0, BM)) % M
    cols = (pid_n * BN + tl.arange(0, BN)) % N
    depth = tl.arange(0, BK)
    a_ptrs = a_ptr + rows[:, None] * stride_am + depth[None, :] * stride_ak
    b_ptrs = b_ptr + depth[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=depth[None, :] < K - k * BK, other=0.0)
        b = tl.load(b_ptrs, mask=depth[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BK * stride_ak
        b_ptrs += BK * stride_bk

    rows = pid_m * BM + tl.arange(0, BM)
    cols = pid_n * BN + tl.arange(0, BN)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))
