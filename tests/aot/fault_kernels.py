"""Small kernels that each break one synchronisation rule when FAULT is set, and keep it when it is not."""

import triton
import triton.language as tl


@triton.jit
def poll(flag, epoch):
    while tl.atomic_add(flag, 0, sem="acquire", scope="sys") - epoch < 0:
        pass


@triton.jit
def fence_proxy():
    tl.inline_asm_elementwise(
        "fence.proxy.async.global; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def gathered_loop(k_x, w, y, flags, n, k_x_cap, FORM: tl.constexpr):
    """x[64, n * 512] @ w, where x arrives 512 columns at a time: waits in front of a loop over them (turns), inside one
    loop (guarded), and with the first load of a turn taken before its wait (ahead)."""
    rows = tl.arange(0, 64)
    a = k_x + rows[:, None] * 4096 + rows[None, :]
    b = w + rows[:, None] * 4096 + rows[None, :]
    acc = tl.zeros((64, 64), dtype=tl.float32)
    if FORM == "guarded":
        for k in range(n):
            if k % 8 == 0:
                poll(flags + k // 8, 1)
            acc = tl.dot(tl.load(a + k * 64), tl.load(b + k * 64), acc)
    else:
        early = tl.zeros((64, 64), dtype=tl.bfloat16)
        for c in range(n):
            poll(flags + c, 1)
            acc = tl.dot(early, early, acc)
            for k in range(8):
                acc = tl.dot(tl.load(a + (c * 8 + k) * 64), tl.load(b + k * 64), acc)
            if FORM == "ahead":
                early = tl.load(a + (c + 1) * 512)
    tl.store(y + rows[:, None] * 4096 + rows[None, :], (acc + k_x_cap).to(tl.bfloat16))


@triton.jit
def dot_loop(x, w, y, flags, n, FORM: tl.constexpr, BLOCK: tl.constexpr, DEPTH: tl.constexpr = 64):
    """x[BLOCK, n * DEPTH] @ w[BLOCK, n * DEPTH].T with the waits, or the loop, in a wrong place."""
    rows = tl.arange(0, BLOCK)
    inner = tl.arange(0, DEPTH)
    a = x + rows[:, None] * 4096 + inner[None, :]
    b = w + rows[None, :] * 4096 + inner[:, None]
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    if FORM == "plain":
        for _ in range(n):
            acc = tl.dot(tl.load(a), tl.load(b), acc)
            a += DEPTH
            b += DEPTH
    elif FORM == "chunks":
        for c in range(n):
            poll(flags + c, 1)
            for _ in range(8):
                acc = tl.dot(tl.load(a), tl.load(b), acc)
                a += DEPTH
                b += DEPTH
    elif FORM == "guarded":
        for k in range(n):
            if k % 8 == 0:
                poll(flags + k // 8, 1)
            acc = tl.dot(tl.load(a), tl.load(b), acc)
            a += DEPTH
            b += DEPTH
    elif FORM == "barrier":
        for _ in range(n):
            acc = tl.dot(tl.load(a), tl.load(b), acc)
            tl.debug_barrier()
            a += DEPTH
            b += DEPTH
    elif FORM == "while":
        k = 0
        while k < n:
            acc = tl.dot(tl.load(a), tl.load(b), acc)
            a += DEPTH
            b += DEPTH
            k += 1
    tl.store(y + rows[:, None] * 4096 + rows[None, :], acc.to(tl.bfloat16))


@triton.jit
def tma_dot_loop(x, w, y, flag, n, FAULT: tl.constexpr, FLAT: tl.constexpr):
    """A TMA loop after a wait: FAULT leaves the proxy fence out, FLAT flattens it with a barrier inside."""
    rows = tl.arange(0, 64)
    for tile in tl.range(0, n, flatten=FLAT):
        if not FLAT:
            poll(flag + tile, 1)
            if not FAULT:
                fence_proxy()
        acc = tl.zeros((64, 64), dtype=tl.float32)
        for k in range(n):
            acc = tl.dot(x.load([tile * 64, k * 64]), w.load([0, k * 64]).T, acc)
        tl.store(y + tile * 4096 + rows[:, None] * 64 + rows[None, :], acc.to(tl.bfloat16))
        if FLAT and FAULT:
            tl.debug_barrier()


@triton.jit
def start(x, y, FORM: tl.constexpr):
    """Copy, in a kernel that starts while the one ahead of it may still run."""
    i = tl.arange(0, 1024)
    if FORM == "admits":
        tl.inline_asm_elementwise(
            "griddepcontrol.launch_dependents; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )
    if FORM == "late" or FORM == "admits":
        value = tl.load(x + i)
    tl.inline_asm_elementwise(
        "griddepcontrol.wait; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
    )
    if FORM == "early":
        value = tl.load(x + i)
    tl.store(y + i, value)


@triton.jit
def beside(x, y, flag, epoch, FORM: tl.constexpr):
    """Copy what the kernel ahead signals while it may still run, and end after it."""
    i = tl.arange(0, 1024)
    poll(flag, epoch)
    tl.store(y + i, tl.load(x + i))
    if FORM == "always" or epoch > 1:
        tl.inline_asm_elementwise(
            "griddepcontrol.wait; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def publish(x, y, flag, epoch, FORM: tl.constexpr):
    """Copy a tile, then signal it."""
    i = tl.arange(0, 4096)
    if FORM == "branch":
        if epoch > 1:
            tl.store(y + i, tl.load(x + i))
        else:
            tl.debug_barrier()
        tl.atomic_xchg(flag, epoch, sem="release", scope="sys")
    elif FORM == "loop":
        for step in range(epoch):
            tl.atomic_xchg(flag + step, epoch, sem="release", scope="sys")
            tl.store(y + i, tl.load(x + i))
    else:
        tl.store(y + i, tl.load(x + i))
        if FORM == "barrier":
            tl.debug_barrier()
        if FORM == "local":
            tl.debug_barrier()
            tl.atomic_add(flag, 1, sem="acq_rel", scope="gpu")
        elif FORM == "claim":
            tl.debug_barrier()
            tl.atomic_cas(flag, 0, 1, sem="acq_rel", scope="gpu")
        elif FORM == "narrow":
            tl.debug_barrier()
            tl.atomic_xchg(flag, epoch, sem="release", scope="gpu")
        else:
            tl.atomic_xchg(flag, epoch, sem="release", scope="sys")


@triton.jit
def publish_tma(x, y, flag, epoch, WAIT: tl.constexpr):
    """Store a tile through TMA, wait for it in one of several ways, then signal it."""
    y.store([0, 0], x.load([0, 0]))
    if WAIT == "all":
        tl.inline_asm_elementwise(
            "cp.async.bulk.wait_group 0; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )
    elif WAIT == "read":
        tl.inline_asm_elementwise(
            "cp.async.bulk.wait_group.read 0; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )
    tl.debug_barrier()
    tl.atomic_xchg(flag, epoch, sem="release", scope="sys")


@triton.jit
def consume(x, y, flag, epoch, FORM: tl.constexpr):
    """Wait for a flag in one of several ways, then copy a tile."""
    i = tl.arange(0, 4096)
    if FORM == "right" or FORM == "cached" or FORM == "hinted":
        poll(flag, epoch)
    elif FORM == "gpu":
        while tl.atomic_add(flag, 0, sem="acquire", scope="gpu") - epoch < 0:
            pass
    elif FORM == "relaxed":
        while tl.atomic_add(flag, 0, sem="relaxed", scope="sys") - epoch < 0:
            pass
    elif FORM == "volatile":
        while tl.load(flag, volatile=True) - epoch < 0:
            pass
    elif FORM == "carried":
        seen = epoch - 1
        while seen < epoch:
            seen = tl.load(flag, volatile=True)
    elif FORM == "table":
        step = tl.load(flag)
        while step >= 0:
            step = tl.load(flag + step)
    elif FORM == "ticket":
        tile = tl.atomic_add(flag, 1, sem="relaxed", scope="gpu")
        while tile < epoch:
            tile = tl.atomic_add(flag, 1, sem="relaxed", scope="gpu")
    elif FORM == "dropped":
        tl.atomic_add(flag, 0, sem="acquire", scope="sys")
    elif FORM == "one_thread" or FORM == "one_thread_barrier":
        tl.inline_asm_elementwise(
            "{ .reg .pred p; .reg .u32 t; mov.u32 t, %tid.x; setp.eq.u32 p, t, 0; mov.u32 $0, 0; "
            "@p ld.acquire.sys.global.u32 $0, [$1]; }",
            "=r,l", [flag], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
        if FORM == "one_thread_barrier":
            tl.debug_barrier()
    if FORM == "cached":
        value = tl.inline_asm_elementwise(
            "ld.global.nc.f32 $0, [$1];", "=f,l", [x + i], dtype=tl.float32, is_pure=False, pack=1
        )
        tl.store(y + i, value)
    else:
        tl.store(y + i, tl.load(x + i, cache_modifier=".ca" if FORM == "hinted" else ""))


@triton.jit
def count(counter, FORM: tl.constexpr):
    """Add one, by every thread or by one."""
    if FORM == "scalar":
        tl.inline_asm_elementwise(
            "red.add.release.sys.global.u32 [$1], 1; mov.u32 $0, 0;",
            "=r,l",
            [counter],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    elif FORM == "short":
        tl.inline_asm_elementwise(
            "red.add.relaxed.sys.global.u32 [$1], 1; mov.u32 $0, 0;",
            "=r,l", [counter + tl.arange(0, 32)], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    elif FORM == "long":
        tl.inline_asm_elementwise(
            "red.add.relaxed.sys.global.u32 [$1], 1; mov.u32 $0, 0;",
            "=r,l", [counter + tl.arange(0, 128)], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        tl.atomic_add(counter, 1, sem="release", scope="sys")


@triton.jit(do_not_specialize=["stride"])
def copy_rows(x, y, table, stride, FORM: tl.constexpr):
    """Copy 64 rows of `stride` elements with the stride, the mask or the pointer marked aligned, or not."""
    rows = tl.program_id(0) * 64 + tl.arange(0, 64)
    cols = tl.arange(0, 64)
    tile = tl.load(x + rows.to(tl.int64)[:, None] * 4096 + cols[None, :])
    if FORM == "bare":
        tl.store(y + rows.to(tl.int64)[:, None] * stride + cols[None, :], tile)
    elif FORM == "mask":
        tl.store(y + rows.to(tl.int64)[:, None] * 4096 + cols[None, :], tile, mask=cols[None, :] < stride)
    elif FORM == "table":
        peer = tl.load(table).to(tl.pointer_type(tl.bfloat16))
        tl.store(peer + rows.to(tl.int64)[:, None] * 4096 + cols[None, :], tile)
    elif FORM == "marked":
        wide = tl.multiple_of(stride.to(tl.int64), 8)
        peer = tl.multiple_of(tl.load(table).to(tl.pointer_type(tl.bfloat16)), 16)
        tl.store(peer + rows.to(tl.int64)[:, None] * wide + cols[None, :], tile, mask=cols[None, :] < wide)
    elif FORM == "i32":
        tl.store(y + (rows[:, None] * stride + cols[None, :]), tile)
    elif FORM == "late":
        tl.store(y + (rows[:, None] * stride).to(tl.int64) + cols[None, :], tile)
    elif FORM == "index":
        late = tl.program_id(0) * stride + tl.arange(0, 64)
        tl.store(y + late.to(tl.int64)[:, None] * 4096 + cols[None, :], tile)
    elif FORM == "local":
        base = y + (tl.program_id(0) * 64).to(tl.int64) * stride
        tl.store(base + tl.arange(0, 64)[:, None] * stride + cols[None, :], tile)


@triton.jit
def hold(x, y, SIZE: tl.constexpr):
    """Keep a whole row in registers across a reduction."""
    i = tl.arange(0, SIZE)
    row = tl.exp(tl.load(x + i).to(tl.float32))
    tl.store(y + i, (row / tl.sum(row, 0)).to(tl.bfloat16))


@triton.jit
def specialised(x, count, one, none, flag, scale, plain, FORM: tl.constexpr):
    """Only its signature is looked at."""
    tl.store(x + count, scale)
