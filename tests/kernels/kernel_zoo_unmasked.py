"""A product without masks along K: it takes whole blocks of it. Some of the language by bare names."""

import triton
import triton.language as tl
from triton.language import load, program_id


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        deep = k * BK + tl.arange(0, BK)
        a = load(a_ptr + rows[:, None] * K + deep[None, :], mask=rows[:, None] < M)
        b = tl.load(b_ptr + deep[:, None] * N + cols[None, :], mask=cols[None, :] < N)
        acc = tl.dot(a, b, acc)
    here = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(tl.bfloat16), mask=here)
