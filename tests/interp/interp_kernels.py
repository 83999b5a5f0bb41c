"""Kernels for the interpreter's tests."""

import triton
import triton.language as tl

FOUR = tl.constexpr(4)


@triton.jit
def scale(x, factor: tl.constexpr):
    return x * factor


@triton.jit
def twice_scaled(x):
    return scale(x, FOUR) + scale(x, 1)


@triton.jit
def add_bf16(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    a = tl.load(x + offsets, mask=mask, other=0.0)
    b = tl.load(y + offsets, mask=mask, other=0.0)
    tl.store(out + offsets, twice_scaled(a) + b, mask=mask)


@triton.jit
def pointwise(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    tl.store(out + i, tl.erf(a))
    tl.store(out + BLOCK + i, tl.exp(a))
    tl.store(out + 2 * BLOCK + i, tl.sigmoid(a))
    tl.store(out + 3 * BLOCK + i, tl.where(a > 0, a, 0.0))


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tl.assume(K > 0)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        deep = k.to(tl.int64) * BK + tl.arange(0, BK)
        left = tl.load(a + row[:, None] * K + deep[None, :], mask=deep[None, :] < K, other=0.0)
        right = tl.load(b + deep[:, None] * N + col[None, :], mask=deep[:, None] < K, other=0.0)
        acc = tl.dot(left, right, acc)
    tl.store(c + row[:, None] * N + col[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def through_descriptors(source, x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    target = tl.make_tensor_descriptor(out, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    for row in tl.range(0, M, BM):
        tile = source.load([row, 0]) + tl.load(x)
        target.store([row, 0], tile)


@triton.jit
def row_statistics(x, out, ROWS: tl.constexpr, COLS: tl.constexpr):
    tile = tl.load(x + tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :])
    rows = tl.arange(0, ROWS)
    tl.store(out + rows, tl.sum(tile, axis=1).to(out.dtype.element_ty))
    tl.store(out + ROWS + rows, tl.max(tile, axis=1).to(out.dtype.element_ty))


@triton.jit
def _plus(a, b):
    return a + b


@triton.jit
def generic_sum(x, out, BLOCK: tl.constexpr):
    tl.store(out, tl.reduce(tl.load(x + tl.arange(0, BLOCK)), 0, _plus))


@triton.jit
def convert(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))


@triton.jit
def table_sum(table, out, n, W: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for peer in tl.static_range(W):
        base = tl.multiple_of(tl.load(table + peer).to(tl.pointer_type(tl.float32)), 16)
        total += tl.load(base + i, mask=i < n, other=0.0)
    tl.store(out + i, total, mask=i < n)


@triton.jit(do_not_specialize=["epoch"])
def atomics(word, out, epoch):
    tl.store(out, tl.atomic_add(word, 5, sem="relaxed", scope="gpu"))
    tl.store(out + 1, tl.atomic_cas(word, 5, epoch, sem="acq_rel", scope="sys"))
    tl.store(out + 2, tl.atomic_xchg(word, 7, sem="release", scope="sys"))
    tl.debug_barrier()


@triton.jit
def assembly(word, out):
    zero = tl.inline_asm_elementwise(
        "fence.proxy.async.global; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
    )
    tl.inline_asm_elementwise("nanosleep.u32 100; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    now = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    seen = tl.inline_asm_elementwise(
        "ld.acquire.sys.global.u32 $0, [$1];", "=r,l", [word], dtype=tl.int32, is_pure=False, pack=1
    )
    tl.store(out, seen + zero)
    tl.store(out + 1, (now > 0).to(tl.int32))


@triton.jit
def assembly_words(word, out):
    tl.inline_asm_elementwise(
        "st.release.sys.global.u32 [$1], $2; mov.u32 $0, 0;",
        "=r,l,r",
        [word + 1, 41],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    two = tl.inline_asm_elementwise(
        "ld.relaxed.gpu.global.b32 $0, [$1]; // a comment",
        "=r,l",
        [word + tl.arange(0, 2)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    tl.store(out + tl.arange(0, 2), two)


@triton.jit
def unknown_assembly(out):
    x = tl.inline_asm_elementwise("vote.sync.ballot.b32 $0, 1;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(out, x)
