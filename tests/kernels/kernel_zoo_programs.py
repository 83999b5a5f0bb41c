"""Kernels of which one program, ODD, does something else than its neighbours."""

import triton
import triton.language as tl


@triton.jit
def reads_another_row(x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, N)
    at = tl.where(row == ODD, 3, row)
    tl.store(y_ptr + row * N + cols, tl.load(x_ptr + at * N + cols))


@triton.jit
def reads_outside(x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, N)
    at = row + (row == ODD).to(tl.int32) * 1000
    tl.store(y_ptr + row * N + cols, tl.load(x_ptr + at * N + cols))


@triton.jit
def reads_more(x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, N)
    x = tl.load(x_ptr + row * N + cols)
    if row * 3 - 1 == ODD * 3 - 1:
        x += tl.load(x_ptr + (row + 1) * N + cols)
    tl.store(y_ptr + row * N + cols, x)


@triton.jit
def stores_another_row(x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, N)
    x = tl.load(x_ptr + row * N + cols)
    tl.store(y_ptr + (row - (row == ODD).to(tl.int32)) * N + cols, x)


@triton.jit
def stores_half(x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, N)
    x = tl.load(x_ptr + row * N + cols)
    tl.store(y_ptr + row * N + cols, x, mask=(row != ODD) | (cols < N // 2))


@triton.jit
def stores_one_column_twice(x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, N)
    x = tl.load(x_ptr + row * N + cols)
    tl.store(y_ptr + row * N + tl.where((row == ODD) & (cols == 5), 6, cols), x)


@triton.jit
def reads_another_row_of_a_block(x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    rows, cols = tl.program_id(0) * 4 + tl.arange(0, 4), tl.arange(0, N)
    at = tl.where(rows == ODD, rows - 4, rows)
    x = tl.load(x_ptr + at[:, None] * N + cols[None, :], mask=rows[:, None] < M)
    tl.store(y_ptr + rows[:, None] * N + cols[None, :], x, mask=rows[:, None] < M)


@triton.jit
def reads_by_a_descriptor(x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, N)
    x_desc = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [1, N])
    x = x_desc.load([tl.where(row == ODD, 3, row), 0])
    tl.store(y_ptr + row * N + cols, x.reshape(N))


@triton.jit
def reads_by_a_block_pointer(x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, N)
    block = tl.make_block_ptr(x_ptr, (M, N), (N, 1), (row, 0), (1, N), (1, 0))
    x = tl.load(tl.advance(block, (tl.where(row == ODD, -1, 0), 0)))
    tl.store(y_ptr + row * N + cols, x.reshape(N))


@triton.jit
def goes_round_twice(x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, N)
    acc = tl.zeros((N,), tl.float32)
    for i in range(row, row + 1 + (row == ODD).to(tl.int32)):
        acc += tl.load(x_ptr + i * N + cols)
    tl.store(y_ptr + row * N + cols, acc)


@triton.jit
def reads_other_columns(x_ptr, w_ptr, y_ptr, n, ODD: tl.constexpr, N: tl.constexpr):
    """Columns that are sharded: a program stores some and needs only these."""
    row, cols = tl.program_id(0), tl.program_id(1) * N + tl.arange(0, N)
    at = tl.where(tl.program_id(1) == ODD // 8, cols - N, cols)
    y = tl.load(x_ptr + row * 16) * tl.load(w_ptr + at, mask=cols < n)
    tl.store(y_ptr + row * n + cols, y, mask=cols < n)


@triton.jit
def reads_out_of_turn(q_ptr, x_ptr, y_ptr, M, ODD: tl.constexpr, N: tl.constexpr):
    """A loop over rows as they arrive."""
    row, cols = tl.program_id(0), tl.arange(0, N)
    acc = tl.load(q_ptr + row * N + cols).to(tl.float32)
    for start in range(0, M, 8):
        rows = start + tl.arange(0, 8)
        at = tl.where((row == ODD) & (start == 8), rows - 8, rows)
        acc += tl.sum(tl.load(x_ptr + at[:, None] * N + cols[None, :], mask=rows[:, None] < M, other=0.0), axis=0)
    tl.store(y_ptr + row * N + cols, acc)
