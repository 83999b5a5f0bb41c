"""Kernels that do something else at few sizes of their rows, M, or of another argument, K: at ODD, or by residue."""

import triton
import triton.language as tl

TWICE = tl.constexpr(2)


@triton.jit
def copy_row(x_ptr, y_ptr, other, N: tl.constexpr):
    """A row, or the one before it."""
    row, cols = tl.program_id(0), tl.arange(0, N)
    at = tl.where(other & (row > 0), row - 1, row)
    tl.store(y_ptr + row * N + cols, tl.load(x_ptr + at * N + cols))


@triton.jit
def odd_residue(x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    copy_row(x_ptr, y_ptr, (M % 16 == 11) & (ODD < 1000), N)


@triton.jit
def odd_size(x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    copy_row(x_ptr, y_ptr, M == ODD, N)


@triton.jit
def odd_folded(x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    copy_row(x_ptr, y_ptr, M == TWICE * ODD - 2, N)


@triton.jit
def odd_from_above(x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    copy_row(x_ptr, y_ptr, (M > ODD) & (M < ODD + 3), N)


@triton.jit
def odd_grid(x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    copy_row(x_ptr, y_ptr, tl.num_programs(0) == ODD, N)


@triton.jit
def odd_quotient(x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    copy_row(x_ptr, y_ptr, (M // 2 == ODD // 2) & (M % 2 == 0), N)


@triton.jit
def odd_height(x_ptr, q_ptr, y_ptr, M, K, ODD: tl.constexpr, N: tl.constexpr):
    tl.load(q_ptr + (K - 1) * N + tl.arange(0, N))
    copy_row(x_ptr, y_ptr, (K == 24) & (ODD < 1000), N)


@triton.jit
def odd_branch(x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, N)
    x = tl.load(x_ptr + row * N + cols)
    if M == ODD:
        x += tl.load(x_ptr + (row + 1) % M * N + cols)
    tl.store(y_ptr + row * N + cols, x)


@triton.jit
def odd_store(x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, N)
    x = tl.load(x_ptr + row * N + cols)
    tl.store(y_ptr + row * N + cols, x, mask=cols + (M == ODD) < N)


@triton.jit
def odd_outside(x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, N)
    at = row + tl.where((M == ODD) & (row == M - 1), 1, 0)
    tl.store(y_ptr + row * N + cols, tl.load(x_ptr + at * N + cols))


@triton.jit
def wider_grid(x_ptr, y_ptr, M, N: tl.constexpr):
    """Its last programs of a row have no columns."""
    row, cols = tl.program_id(0), tl.program_id(1) * N + tl.arange(0, N)
    x = tl.load(x_ptr + row * 32 + cols, mask=cols < 32)
    tl.store(y_ptr + row * 32 + cols, x, mask=cols < 32)
