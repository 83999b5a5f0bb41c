"""Matrices, added: rows of two, one program for each row; elements of several, whatever row they are of."""

import triton
import triton.language as tl


@triton.jit
def add_kernel(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + row * n + cols, mask=cols < n)
    b = tl.load(b_ptr + row * n + cols, mask=cols < n)
    tl.store(c_ptr + row * n + cols, a + b, mask=cols < n)


@triton.jit
def add_flat_kernel(x_ptr, y_ptr, e, elements, BLOCK: tl.constexpr):
    """y = x[0] + x[1] + ... + x[e - 1], of `elements` elements each."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(e):
        total += tl.load(x_ptr + i * elements + at, mask=at < elements, other=0.0)
    tl.store(y_ptr + at, total.to(y_ptr.dtype.element_ty), mask=at < elements)
