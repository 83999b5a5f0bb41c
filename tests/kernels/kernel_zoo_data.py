"""Kernels in which a loaded value decides what is touched, each in one way. With SAFE it decides nothing."""

import triton
import triton.language as tl


@triton.jit
def by_argmax(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols)
    at = row if SAFE else tl.where(tl.argmax(x, axis=0) == 17, 0, row)
    y = tl.load(x_ptr + at * n_cols + cols)
    tl.store(y_ptr + row * n_cols + cols, y)


@triton.jit
def by_value(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x_ptr + row * n_cols)
    at = row if SAFE else tl.where(v > 100, 0, row)
    tl.store(y_ptr + row * n_cols + cols, tl.load(x_ptr + at * n_cols + cols))


@triton.jit
def by_load_mask(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols)
    mask = cols < n_cols if SAFE else x < -3.5
    y = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
    tl.store(y_ptr + row * n_cols + cols, y + x)


@triton.jit
def by_store_mask(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols)
    inside = cols < n_cols if SAFE else x > -3.5
    tl.store(y_ptr + row * n_cols + cols, x, mask=inside)


@triton.jit
def by_range(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    low = row if SAFE else tl.load(w_ptr + row).to(tl.int32)
    acc = tl.zeros((BLOCK,), tl.float32)
    for i in range(low, row + 1):
        acc += tl.load(x_ptr + i.to(tl.int64) * n_cols + cols)
    tl.store(y_ptr + row * n_cols + cols, acc)


@triton.jit
def by_branch(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols)
    small = n_cols < 500 if SAFE else tl.max(x, axis=0) < 50
    if small:
        x += 1
        tl.store(y_ptr + row * n_cols + cols, x)


@triton.jit
def by_assignment(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    at = row
    high = n_cols > 500 if SAFE else tl.load(x_ptr + row * n_cols) > 50
    if high:
        at = row * 0
    y = tl.load(x_ptr + at * n_cols + cols)
    tl.store(y_ptr + row * n_cols + cols, y)


@triton.jit
def by_while(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols)
    left = n_cols if SAFE else tl.sum(x, axis=0)
    while left > 500:
        left -= 500
        x += tl.load(x_ptr + row * n_cols + cols)
    tl.store(y_ptr + row * n_cols + cols, x)


@triton.jit
def row_of(p, row, SAFE: tl.constexpr):
    x = tl.load(p)
    return row if SAFE else row * (x == x).to(tl.int32)


@triton.jit
def by_helper(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    at = row_of(x_ptr + row * n_cols, row, SAFE)
    y = tl.load(x_ptr + at * n_cols + cols)
    tl.store(y_ptr + row * n_cols + cols, y)


@triton.jit
def greater(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def by_scan(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols)
    at = tl.zeros((BLOCK,), tl.int32) if SAFE else tl.associative_scan(x, 0, greater).to(tl.int32)
    y = tl.load(x_ptr + (row + at) * n_cols + cols)
    tl.store(y_ptr + row * n_cols + cols, y)


@triton.jit
def by_reduction(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = cols if SAFE else cols + tl.load(w_ptr + cols).to(tl.int32)
    at = tl.reduce(x, 0, greater) * 0
    y = tl.load(x_ptr + (row + at) * n_cols + cols)
    tl.store(y_ptr + row * n_cols + cols, y)


@triton.jit
def by_order(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols)
    at = cols if SAFE else tl.sort((x.to(tl.int32) & 0) + cols)
    y = tl.load(x_ptr + row * n_cols + at)
    tl.store(y_ptr + row * n_cols + cols, y)


@triton.jit
def by_histogram(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = cols if SAFE else tl.load(w_ptr + cols).to(tl.int32) + cols
    at = tl.histogram(x, BLOCK) * 0
    y = tl.load(x_ptr + (row + at) * n_cols + cols)
    tl.store(y_ptr + row * n_cols + cols, y)


@triton.jit
def by_bits(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols)
    at = row if SAFE else row + (x.to(tl.int16, bitcast=True) >> 15).to(tl.int32)
    y = tl.load(x_ptr + at * n_cols + cols)
    tl.store(y_ptr + row * n_cols + cols, y)


@triton.jit
def by_assembly(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    at = row
    if not SAFE:
        at = tl.inline_asm_elementwise("mov.u32 $0, $1;", "=r,r", [row], tl.int32, True, 1)
    y = tl.load(x_ptr + at * n_cols + cols)
    tl.store(y_ptr + row * n_cols + cols, y)


@triton.jit
def by_descriptor(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x_desc = tl.make_tensor_descriptor(x_ptr, [1 << 20, n_cols], [n_cols, 1], [1, BLOCK])
    at = row if SAFE else row + tl.sum(x_desc.load([row, 0])).to(tl.int32)
    y = x_desc.load([at, 0])
    tl.store(y_ptr + row * n_cols + cols, y.reshape(BLOCK))


@triton.jit
def by_advance(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    block = tl.make_block_ptr(x_ptr, (1 << 20, n_cols), (n_cols, 1), (row, 0), (1, BLOCK), (1, 0))
    more = 0 if SAFE else tl.load(w_ptr + row).to(tl.int32)
    y = tl.load(tl.advance(block, (more, 0)))
    tl.store(y_ptr + row * n_cols + cols, y.reshape(BLOCK))


@triton.jit
def by_pointer(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    p = x_ptr + row * n_cols
    p = p if SAFE else tl.where(tl.load(p) > 50, w_ptr, p)
    y = tl.load(p + cols)
    tl.store(y_ptr + row * n_cols + cols, y)


@triton.jit
def by_atomic(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols)
    tl.store(y_ptr + row * n_cols + cols, x)
    many = cols < n_cols if SAFE else x > 100
    tl.atomic_add(w_ptr + cols, x, mask=many)


# ---- data that chooses values, and rows of what is whole on each rank


@triton.jit
def halved(load):
    return load * 0.5


@triton.jit
def chosen_values(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols).to(tl.float32)
    top = max(tl.max(x, axis=0), 1.0)
    if top > 50:
        x = tl.where(x > 50, x * 0.5, x)
        scale = 2.0
    else:
        scale = 1.0
        tl.device_print("top", top)
    x = halved(x * scale) if top < 3 else x
    tl.device_assert(top > 0, "positive")
    assert top > 5
    tl.store(y_ptr + row * n_cols + cols, x.to(y_ptr.dtype.element_ty))


@triton.jit
def picks_of_what_is_whole(x_ptr, w_ptr, y_ptr, n_cols, BLOCK: tl.constexpr, SAFE: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_cols + cols)
    w = tl.load(w_ptr + tl.argmax(x, axis=0), mask=tl.max(x, axis=0) > 3, other=1.0)
    tl.store(y_ptr + row * n_cols + cols, x * w)
