"""Single kernels for one property each."""

import triton
import triton.language as tl


@triton.jit
def fill(y, value, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, value + tl.program_id(0), mask=i < n)


@triton.jit
def add_one(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def store_to_peer(table, peer):
    tl.store(tl.load(table + peer).to(tl.pointer_type(tl.float32)), 1.0)


@triton.jit
def wait_for_later_program(flags):
    """Program i waits for program i + 1: needs two resident programs more than it may have."""
    i = tl.program_id(0)
    if i + 1 < tl.num_programs(0):
        while tl.atomic_add(flags + i + 1, 0, sem="acquire", scope="gpu") == 0:
            pass
    tl.atomic_xchg(flags + i, 1, sem="release", scope="gpu")


@triton.jit
def polled_counter(flags, word, count):
    """Program 0 counts word 0 and then sets word 1, while program 1 waits for the end of `word`."""
    if tl.program_id(0) == 0:
        for _ in range(count):
            tl.atomic_add(flags, 1, sem="release", scope="gpu")
        tl.atomic_xchg(flags + 1, count, sem="release", scope="gpu")
    else:
        while tl.atomic_add(flags + word, 0, sem="acquire", scope="gpu") < count:
            pass


@triton.jit
def polled_in_turns(flags):
    """Program 1 looks at word 0 once, then waits for word 1; program 0 changes word 0 and never word 1."""
    if tl.program_id(0) == 0:
        tl.atomic_xchg(flags, 1, sem="release", scope="gpu")
    else:
        tl.atomic_add(flags, 0, sem="acquire", scope="gpu")
        while tl.atomic_add(flags + 1, 0, sem="acquire", scope="gpu") == 0:
            pass


@triton.jit
def looked_at_again(block, flag):
    """Program 0 reads a block, says so, and reads it again; program 1 writes it once it has heard."""
    i = tl.arange(0, 16)
    if tl.program_id(0) == 0:
        tl.atomic_add(block + i, 0, sem="relaxed", scope="gpu")
        tl.debug_barrier()
        tl.atomic_xchg(flag, 1, sem="release", scope="gpu")
        tl.atomic_add(block + i, 0, sem="relaxed", scope="gpu")
    else:
        while tl.atomic_add(flag, 0, sem="acquire", scope="gpu") == 0:
            pass
        tl.store(block + i, i)


@triton.jit
def bounded_wait(flag, error, timeout):
    start = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    seen = tl.atomic_add(flag, 0, sem="acquire", scope="sys")
    late = False
    while (seen == 0) & (late == 0):
        tl.inline_asm_elementwise("nanosleep.u32 64; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
        now = tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
        late = now - start > timeout
        seen = tl.atomic_add(flag, 0, sem="acquire", scope="sys")
    if seen == 0:
        tl.store(error, 1)


@triton.jit
def fenced_producer(data_table, flag_table, peer):
    """A relaxed signal behind a fence is a release too."""
    tl.store(tl.load(data_table + peer).to(tl.pointer_type(tl.float32)), 5.0)
    tl.debug_barrier()
    tl.inline_asm_elementwise("fence.acq_rel.sys; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    tl.atomic_xchg(tl.load(flag_table + peer).to(tl.pointer_type(tl.int32)), 1, sem="relaxed", scope="sys")


@triton.jit
def acquiring_consumer(data, flag, y):
    while tl.atomic_add(flag, 0, sem="acquire", scope="sys") == 0:
        pass
    tl.store(y, tl.load(data))


@triton.jit
def handed_on(a, flag1, flag2, y, STEP: tl.constexpr):
    """Program 0 writes and releases at gpu scope; program 1 passes it on; program 2 reads: order is transitive."""
    i = tl.program_id(0)
    if i == 0:
        tl.store(a, 3.0)
        tl.debug_barrier()
        tl.atomic_xchg(flag1, 1, sem="release", scope="gpu")
    if i == 1:
        while tl.atomic_add(flag1, 0, sem="acquire", scope="gpu") == 0:
            pass
        tl.atomic_add(flag2, 1, sem=STEP, scope="sys")
    if i == 2:
        while tl.atomic_add(flag2, 0, sem="acquire", scope="sys") == 0:
            pass
        tl.store(y, tl.load(a))


@triton.jit
def volatile_wait(flag, y):
    while tl.load(flag, volatile=True) == 0:
        pass
    tl.store(y, 1.0)


@triton.jit
def failing(y):
    tl.device_assert(tl.program_id(0) < 2, "too many programs")
    tl.store(y + tl.program_id(0), 1.0)
