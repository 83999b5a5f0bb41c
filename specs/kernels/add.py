"""Rows of two matrices, added: one program for each row."""

import triton
import triton.language as tl


@triton.jit
def add_kernel(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + row * n + cols, mask=cols < n)
    b = tl.load(b_ptr + row * n + cols, mask=cols < n)
    tl.store(c_ptr + row * n + cols, a + b, mask=cols < n)
