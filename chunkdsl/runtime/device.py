"""Device functions that emitted kernels call: walks, bounded waits, flags, counters, fences, and the small kernels that
open and close a call. Copied into every generated module, so: triton only.

Memory model. A flag is an epoch word that only grows; a wait is a polled acquire at system scope, a signal one release
at system scope after a CTA barrier. A counter orders programs of one GPU (acquire-release at gpu scope); its last
arriver sets it back to zero before it publishes. Source: the PTX memory model's causality order, which composes
release-acquire pairs of different scopes as long as each pair's scope includes both ends.

Words of `state`: 0 the epoch, 1 dead (any rank may set it), 2 who wrote the record. Words of `tickets`: 0 tiles,
1 programs started, 2 and 4 moves, 3 programs gone. Words of the pinned `record`: 0 set, 1 site, 2 item, 3 epoch.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def walk_up(rank, step, W: tl.constexpr):
    return (rank + step) % W


@triton.jit
def walk_down(rank, step, W: tl.constexpr):
    return (rank + W - step) % W


@triton.jit
def walk_ascending(rank, step, W: tl.constexpr):
    return step


@triton.jit
def walk_own_ascending(rank, step, W: tl.constexpr):
    return tl.where(step == 0, rank, step - (step <= rank).to(tl.int32))


@triton.jit
def walk_up_own(rank, step, W: tl.constexpr):
    return (rank + 1 + step) % W


@triton.jit
def walk_down_own(rank, step, W: tl.constexpr):
    return (rank + 2 * W - 1 - step) % W


@triton.jit
def walk_ascending_own(rank, step, W: tl.constexpr):
    return tl.where(step == W - 1, rank, step + (step >= rank).to(tl.int32))


@triton.jit
def shard_height(owner, rows, W: tl.constexpr, INNER: tl.constexpr):
    """Rows of a shard that two mesh axes have cut: the outer one first, INNER ranks of the inner one what is left."""
    outer = tl.cdiv(rows, W // INNER)
    part = tl.maximum(tl.minimum(rows - owner // INNER * outer, outer), 0)
    each = tl.cdiv(part, INNER)
    return tl.maximum(tl.minimum(part - owner % INNER * each, each), 0)


@triton.jit
def shard_begin(owner, rows, W: tl.constexpr, INNER: tl.constexpr):
    """The first row of such a shard."""
    outer = tl.cdiv(rows, W // INNER)
    part = tl.maximum(tl.minimum(rows - owner // INNER * outer, outer), 0)
    return owner // INNER * outer + owner % INNER * tl.cdiv(part, INNER)


@triton.jit
def tile_place(tile, blocks, columns, GROUP: tl.constexpr):
    """Row block and column block of a shard's tile: GROUP row blocks share the columns in cache."""
    span = GROUP * columns
    first = tile // span * GROUP
    height = tl.minimum(blocks - first, GROUP)
    within = tile % span
    return first + within % height, within // height


@triton.jit
def proxy_fence(NVIDIA: tl.constexpr):
    """Order bulk (TMA) loads after data that an acquire has made visible to ordinary loads."""
    if NVIDIA:
        tl.inline_asm_elementwise(
            "fence.proxy.async.global; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def bulk_wait(NVIDIA: tl.constexpr):
    """All bulk (TMA) stores of this thread are complete, not only read."""
    if NVIDIA:
        tl.inline_asm_elementwise(
            "cp.async.bulk.wait_group 0; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def admit_next(EARLY: tl.constexpr):
    """Programmatic dependent launch (sm_90 and later): the kernel behind may start once all programs came here."""
    if EARLY:
        tl.inline_asm_elementwise(
            "griddepcontrol.launch_dependents; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def await_ahead(EARLY: tl.constexpr):
    """The same: the kernels ahead have ended and what they wrote is visible. One that started beside them ends so."""
    if EARLY:
        tl.inline_asm_elementwise(
            "griddepcontrol.wait; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def clock(NVIDIA: tl.constexpr):
    """Nanoseconds; 0 where the target has no such register (the wait then counts its polls)."""
    if NVIDIA:
        return tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)
    else:
        return tl.zeros((), dtype=tl.int64)


@triton.jit
def give_up(site, item, epoch, state, state_peers, record, W: tl.constexpr):
    """The first program of this rank whose wait ran out says where; every rank's later waits then return at once."""
    if tl.atomic_cas(state + 2, 0, 1, sem="relaxed", scope="gpu") == 0:
        tl.store(record + 1, site)
        tl.store(record + 2, item)
        tl.store(record + 3, epoch)
        tl.debug_barrier()
        tl.atomic_xchg(record, 1, sem="release", scope="sys")
    for peer in range(W):
        tl.atomic_xchg(words_of(state_peers, peer) + 1, 1, sem="relaxed", scope="sys")


@triton.jit
def wait_flag(flag, epoch, site, item, state, state_peers, record, limit, W: tl.constexpr, NVIDIA: tl.constexpr):
    """Wait until the word at `flag` has reached `epoch`. 1, or 0 when the instance is dead (bounded by `limit` ns)."""
    seen = tl.atomic_add(flag, 0, sem="acquire", scope="sys")
    if seen - epoch < 0:
        start = clock(NVIDIA)
        spent = start - start
        dead = tl.atomic_add(state + 1, 0, sem="acquire", scope="sys")
        while (seen - epoch < 0) & (dead == 0):
            seen = tl.atomic_add(flag, 0, sem="acquire", scope="sys")
            dead = tl.atomic_add(state + 1, 0, sem="acquire", scope="sys")
            spent = clock(NVIDIA) - start if NVIDIA else spent + 256
            if spent > limit:
                give_up(site, item, epoch, state, state_peers, record, W)
                dead = 1
        if seen - epoch < 0:
            tl.atomic_cas(record, 0, 2, sem="relaxed", scope="sys")
    return (seen - epoch >= 0).to(tl.int32)


@triton.jit
def words_of(table, peer):
    """A rank's words by the address that the table holds."""
    return tl.load(table + peer).to(tl.pointer_type(tl.int32))


@triton.jit
def alive(state):
    """1, or 0 once a wait has run out on any rank: from then on nothing is started and nothing published."""
    return (tl.load(state + 1, volatile=True) == 0).to(tl.int32)


@triton.jit
def set_flag(flag, epoch, state, live=None):
    """Publish: all that this program and those it has acquired from wrote is visible to whoever acquires it. `live`:
    what `alive` said, where it was asked before."""
    live = alive(state) if live is None else live
    tl.debug_barrier()
    tl.atomic_xchg(flag, epoch, mask=live != 0, sem="release", scope="sys")


@triton.jit
def arrive(counter, expected):
    """Count one contribution of this GPU. True for the last of `expected`, which is ordered after all others."""
    tl.debug_barrier()
    before = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
    last = before == expected - 1
    if last:
        tl.atomic_xchg(counter, 0, sem="relaxed", scope="gpu")
    return last


@triton.jit
def arrive_in(counter, share, expected):
    """As `arrive`, of a contribution that counts as `share` of the `expected`."""
    tl.debug_barrier()
    before = tl.atomic_add(counter, share, sem="acq_rel", scope="gpu")
    last = before == expected - share
    if last:
        tl.atomic_xchg(counter, 0, sem="relaxed", scope="gpu")
    return last


@triton.jit
def take(tickets):
    """The next ticket: work is handed out in order, whichever programs happen to run."""
    return tl.atomic_add(tickets, 1, sem="relaxed", scope="gpu")


@triton.jit
def leave(tickets):
    """The last program out sets the tickets back for the next launch."""
    if arrive(tickets + 3, tl.num_programs(0)):
        tl.atomic_xchg(tickets, 0, sem="relaxed", scope="gpu")
        tl.atomic_xchg(tickets + 1, 0, sem="relaxed", scope="gpu")
        tl.atomic_xchg(tickets + 2, 0, sem="relaxed", scope="gpu")
        tl.atomic_xchg(tickets + 4, 0, sem="relaxed", scope="gpu")


@triton.jit
def halves(x, half: tl.constexpr):
    """The left (0) or right (1) half of the columns of a tile."""
    rows: tl.constexpr = x.shape[0]
    cols: tl.constexpr = x.shape[1]
    left, right = tl.split(tl.permute(tl.reshape(x, (rows, 2, cols // 2)), (0, 2, 1)))
    return left if half == 0 else right


@triton.jit
def erf_gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def silu(x):
    return x * sigmoid(x)


@triton.jit
def tanh(x):
    """Near 0 by its series: 2 sigmoid(2 x) - 1 loses all relative accuracy there."""
    s = x * x
    near = x * (1.0 - s * (0.33333333 - s * (0.13333333 - s * 0.05396825)))
    return tl.where(s < 0.01, near, 2.0 * sigmoid(2.0 * x) - 1.0)


@triton.jit
def row_scale(x, live, width, eps):
    """1 / sqrt(mean of a row's squares + eps) of a tile that has whole rows of `width` `live` columns: [rows, 1]."""
    return 1.0 / tl.sqrt(tl.sum(tl.where(live, x * x, 0.0), axis=1, keep_dims=True) / width + eps)


@triton.jit
def rms_norm_grad(x, d, live, width, eps):
    """The cotangent of x, where d is that of x * row_scale(x) (Zhang and Sennrich, Root Mean Square Layer
    Normalization, 2019)."""
    scale = row_scale(x, live, width, eps)
    y = x * scale
    return scale * (d - y * (tl.sum(tl.where(live, d * y, 0.0), axis=1, keep_dims=True) / width))


@triton.jit
def gelu_grad(x):
    density = tl.exp(-0.5 * x * x) * 0.3989422804014327
    return 0.5 * (1.0 + tl.erf(x * 0.7071067811865476)) + x * density


@triton.jit
def relu_grad(x):
    return tl.where(x > 0.0, 1.0, 0.0)


@triton.jit
def silu_grad(x):
    s = sigmoid(x)
    return s * (1.0 + x * (1.0 - s))


@triton.jit
def tanh_grad(x):
    t = tanh(x)
    return 1.0 - t * t


@triton.jit
def slot_of(epoch, SLOTS: tl.constexpr):
    """Which of an op's buffers a call uses."""
    if SLOTS == 3:
        slot = (epoch.to(tl.uint32, bitcast=True) % 3).to(tl.int64)
    else:
        slot = (epoch & (SLOTS - 1)).to(tl.int64)
    return slot


@triton.jit(do_not_specialize=["active"])
def open_call(state, word, active, HOST_WORD: tl.constexpr, SLOTS: tl.constexpr, EARLY: tl.constexpr):
    """Advance the epoch; copy engines signal with the pinned host word. Epochs run through all 32 bits, as flags
    compare by signed difference. With three slots they go on with 4 after the last one, so that neighbours stay in
    neighbouring slots, of three (`slot_of`) and of two (`agree_call`)."""
    admit_next(EARLY)
    if active != 0:
        epoch = tl.load(state) + 1
        if SLOTS == 3:
            epoch = tl.where(epoch == 0, 4, epoch)
        tl.store(state, epoch)
        if HOST_WORD:
            tl.store(word, epoch)


@triton.jit(do_not_specialize=["rank", "shape", "site", "limit", "active"])
def agree_call(
    shapes, shapes_peers, agreed, agreed_peers, state, state_peers, record, rank, shape, site, limit, active,
    W: tl.constexpr, NVIDIA: tl.constexpr,
):  # fmt: skip
    """check_calls: every rank tells the others which sizes it calls with (`shape`, a hash); one that hears of other
    sizes is dead before it touches a buffer. Two slots: who writes call e + 2 has heard from all in e + 1."""
    if active * alive(state) != 0:
        epoch = tl.load(state)
        slot = (epoch & 1) * W
        for peer in range(W):
            tl.store(words_of(shapes_peers, peer) + slot + rank, shape)
            set_flag(words_of(agreed_peers, peer) + rank, epoch, state)
        odd = tl.full((), 0, tl.int32)
        for peer in range(W):
            if wait_flag(agreed + peer, epoch, site, peer, state, state_peers, record, limit, W, NVIDIA) != 0:
                if tl.load(shapes + slot + peer) != shape:
                    odd = odd | (1 << (peer % 31))
        if odd != 0:
            tl.store(record + 2, odd)
            tl.store(record + 3, epoch)
            tl.debug_barrier()
            tl.atomic_xchg(record, 3, sem="release", scope="sys")
            tl.atomic_xchg(state + 1, 1, sem="relaxed", scope="sys")


@triton.jit(do_not_specialize=["pitch", "height", "n", "stride", "cap", "rank", "site", "limit", "active"])
def stage_shard(
    source, buffer, ready, ready_peers, tickets, state, state_peers, record,
    pitch, height, n, stride, cap, rank, site, limit, active,
    W: tl.constexpr, SLOTS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
    COPY: tl.constexpr, READY: tl.constexpr, ENTRY: tl.constexpr, NVIDIA: tl.constexpr,
):  # fmt: skip
    """Copy this rank's shard [height, n] into its own place of the gathered buffer; say so to all ranks (READY); wait
    for all of them (ENTRY: what follows are copy engines, which cannot wait). `pitch` counts 16 bytes."""
    if active != 0:
        epoch = tl.load(state)
        if COPY:
            VEC: tl.constexpr = 128 // source.dtype.element_ty.primitive_bitwidth
            width = n // VEC * VEC
            to = buffer + (slot_of(epoch, SLOTS) * cap + rank.to(tl.int64) * stride) * (pitch * VEC)
            for row in range(tl.program_id(0) * BR, height, tl.num_programs(0) * BR):
                down = tl.arange(0, BR)
                for col in range(0, n, BC):
                    cols = col + tl.arange(0, BC)
                    mask = (down < height - row)[:, None] & (cols[None, :] < width)
                    here = source + row.to(tl.int64) * width + (down[:, None] * width + cols[None, :])
                    value = tl.load(here, mask=mask)
                    there = to + row.to(tl.int64) * (pitch * VEC) + (down[:, None] * (pitch * VEC) + cols[None, :])
                    tl.store(there, value, mask=mask)
        if READY:
            if arrive(tickets, tl.num_programs(0)):
                for peer in range(W):
                    set_flag(words_of(ready_peers, peer) + rank, epoch, state)
                if ENTRY:
                    for peer in range(W):
                        wait_flag(ready + peer, epoch, site, peer, state, state_peers, record, limit, W, NVIDIA)


@triton.jit(do_not_specialize=["rank", "site", "limit", "active"])
def close_call(
    closed, closed_peers, state, state_peers, record, rank, site, limit, active, W: tl.constexpr, NVIDIA: tl.constexpr
):
    """Closing barrier: no rank leaves before all have finished reading, so the buffers may be overwritten."""
    if active != 0:
        epoch = tl.load(state)
        for peer in range(W):
            set_flag(words_of(closed_peers, peer) + rank, epoch, state)
        for peer in range(W):
            wait_flag(closed + peer, epoch, site, peer, state, state_peers, record, limit, W, NVIDIA)


@triton.jit
def program_number(
    block, column, blocks, columns, GROUP: tl.constexpr, ACROSS: tl.constexpr, TURNED: tl.constexpr
):  # fmt: skip
    """Number of the program that handles a row block and a column of a user's kernel, in that kernel's own order:
    GROUP row blocks (0: all; ACROSS: columns) at a time, TURNED within a ragged group."""
    a, b = (column, block) if ACROSS else (block, column)
    count, width = (columns, blocks) if ACROSS else (blocks, columns)
    group = GROUP if GROUP > 0 else tl.maximum(count, 1)
    first = a // group * group
    height = tl.minimum(count - first, group)
    within = a - first
    if TURNED:
        within = (within + (height - first * width % height)) % height
    return first * width + b * height + within
