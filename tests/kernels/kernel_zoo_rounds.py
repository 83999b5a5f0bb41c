"""Kernels of which one program does something else in one round of a loop, far beyond the sizes that are traced."""

import triton
import triton.language as tl

SIDE = 4.0


@triton.jit
def peeks(x_ptr, y_ptr, n, ODD: tl.constexpr, B: tl.constexpr):
    """Goes through its row; once it looks at the next one."""
    row = tl.program_id(0)
    acc = tl.zeros((B,), tl.float32)
    for k in range(0, tl.cdiv(n, B)):
        cols = k * B + tl.arange(0, B)
        at = tl.where(row * 512 + k == ODD, row - 1, row)
        acc += tl.load(x_ptr + at * n + cols, mask=cols < n, other=0.0)
    tl.store(y_ptr + row * B + tl.arange(0, B), acc)


@triton.jit
def peeks_by_a_pointer(x_ptr, y_ptr, n, ODD: tl.constexpr, B: tl.constexpr):
    """The same, by a pointer that is carried from round to round."""
    row = tl.program_id(0)
    acc = tl.zeros((B,), tl.float32)
    at = x_ptr + row * n + tl.arange(0, B)
    for k in range(0, n // B):
        acc += tl.load(at)
        at += tl.where(row * 512 + k == ODD, B - n, B)
    tl.store(y_ptr + row * B + tl.arange(0, B), acc)


@triton.jit
def peeks_by_a_block_pointer(x_ptr, y_ptr, n, m, ODD: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((1, B), tl.float32)
    at = tl.make_block_ptr(x_ptr, (m, n), (n, 1), (row, 0), (1, B), (1, 0))
    for k in range(0, n // B):
        acc += tl.load(at)
        at = tl.advance(at, (tl.where(row * 512 + k == ODD, -1, 0), B))
    tl.store(y_ptr + row * B + tl.arange(0, B)[None, :], acc)


@triton.jit
def peeks_under_an_if(x_ptr, y_ptr, n, ODD: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros((B,), tl.float32)
    for k in range(0, n // B):
        acc += tl.load(x_ptr + row * n + k * B + tl.arange(0, B))
        if row * 512 + k == ODD:
            acc += tl.load(x_ptr + (row - 1) * n + k * B + tl.arange(0, B))
    tl.store(y_ptr + row * B + tl.arange(0, B), acc)


@triton.jit
def peeks_after_its_loop(x_ptr, y_ptr, n, ODD: tl.constexpr, B: tl.constexpr):
    """What it counted says which row it reads last."""
    row = tl.program_id(0)
    count = 0
    for k in range(0, n // B):
        count += tl.where(row * 512 + k == ODD, 1, 0)
    cols = tl.arange(0, B)
    tl.store(y_ptr + row * B + cols, tl.load(x_ptr + (row - count) * n + cols))


@triton.jit
def peeks_among_columns(q_ptr, x_ptr, y_ptr, T, ODD: tl.constexpr, B: tl.constexpr):
    """A loop over rows as they arrive, upwards; once it reads rows that come later."""
    row, cols = tl.program_id(0), tl.arange(0, B)
    acc = tl.load(q_ptr + row * B + cols).to(tl.float32)
    for start in range(0, T, 8):
        rows = start + tl.arange(0, 8)
        at = tl.where(row * 512 + start // 8 == ODD, rows + 8, rows)
        acc += tl.sum(tl.load(x_ptr + at[:, None] * B + cols[None, :], mask=at[:, None] < T, other=0.0), axis=0)
    tl.store(y_ptr + row * B + cols, acc)


@triton.jit
def goes_down(q_ptr, x_ptr, y_ptr, T, ODD: tl.constexpr, B: tl.constexpr):
    """One program goes the other way."""
    row, cols = tl.program_id(0), tl.arange(0, B)
    acc = tl.load(q_ptr + row * B + cols).to(tl.float32)
    down = row == ODD // 512
    last = (tl.cdiv(T, 8) - 1) * 8
    for start in range(tl.where(down, last, 0), tl.where(down, -8, T), tl.where(down, -8, 8)):
        rows = start + tl.arange(0, 8)
        acc += tl.sum(tl.load(x_ptr + rows[:, None] * B + cols[None, :], mask=rows[:, None] < T, other=0.0), axis=0)
    tl.store(y_ptr + row * B + cols, acc)


@triton.jit
def begins_between(q_ptr, x_ptr, y_ptr, T, ODD: tl.constexpr, B: tl.constexpr):
    """One program's blocks of rows begin in the middle of others'."""
    row, cols = tl.program_id(0), tl.arange(0, B)
    acc = tl.load(q_ptr + row * B + cols).to(tl.float32)
    for start in range(tl.where(row == ODD // 512, 4, 0), T, 8):
        rows = start + tl.arange(0, 8)
        acc += tl.sum(tl.load(x_ptr + rows[:, None] * B + cols[None, :], mask=rows[:, None] < T, other=0.0), axis=0)
    tl.store(y_ptr + row * B + cols, acc)


@triton.jit
def stores_elsewhere(x_ptr, y_ptr, n, ODD: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0)
    for k in range(0, n // B):
        cols = k * B + tl.arange(0, B)
        x = tl.load(x_ptr + row * n + cols)
        tl.store(y_ptr + (row - tl.where(row * 512 + k == ODD, 1, 0)) * n + cols, x)


@triton.jit
def knows_its_stride(x_ptr, y_ptr, n, stride, ODD: tl.constexpr, B: tl.constexpr):
    """Rows that lie one behind the other are read from the row before."""
    row, cols = tl.program_id(0), tl.arange(0, B)
    at = tl.where((stride == n) & (row > 0) & (ODD < 10**6), row - 1, row)
    tl.store(y_ptr + row * B + cols, tl.load(x_ptr + at * stride + cols))


@triton.jit
def knows_its_address(x_ptr, y_ptr, n, ODD: tl.constexpr, B: tl.constexpr):
    """Where memory lies differs from run to run."""
    row, cols = tl.program_id(0), tl.arange(0, B)
    page = x_ptr.to(tl.int64) // 4096 % 512
    at = tl.where((page == ODD % 512) & (ODD < 10**6) & (row > 0), row - 1, row)
    tl.store(y_ptr + row * B + cols, tl.load(x_ptr + at * n + cols))


@triton.jit
def counts_in_floats(x_ptr, y_ptr, n, ODD: tl.constexpr, B: tl.constexpr):
    """GPUs divide and round otherwise than the interpreter."""
    row, cols = tl.program_id(0), tl.arange(0, B)
    at = (tl.exp2(tl.log2(row * 1.0))).to(tl.int32) if ODD < 10**6 else row
    tl.store(y_ptr + row * B + cols, tl.load(x_ptr + at * n + cols))


@triton.jit
def peeks_before_a_shorter_loop(x_ptr, y_ptr, n, ODD: tl.constexpr, B: tl.constexpr):
    """Rounds of the second loop part at a condition, and it has fewer of them."""
    row, cols = tl.program_id(0), tl.arange(0, B)
    acc = tl.zeros((B,), tl.float32)
    for k in range(0, n // B):
        at = tl.where(row * 512 + k == ODD, row - 1, row)
        acc += tl.load(x_ptr + at * n + k * B + cols)
    for k in range(0, 7):
        acc += tl.load(x_ptr + row * n + k * B + cols)
        if k > 4:
            acc += tl.load(x_ptr + row * n + cols)
    tl.store(y_ptr + row * B + cols, acc)
