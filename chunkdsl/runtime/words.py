"""Device functions of small all-reduces: words that carry data and its validity in one atomic store, and what a word
holds. Copied into every module that needs them, so: triton only.

Memory model. A word is written by one relaxed store and read by one relaxed load at system scope, so whoever sees the
epoch (or no longer sees the mark of an empty word) sees the data that came with it: no fence, no second trip. Loads are
`ld.relaxed.sys`, which never stop at a stale L1 line. What orders the reuse of a slot is not the word's own order but
completion: a rank sends words of call e + 1 from a kernel that started after its kernel of call e had ended.

Word of 64 bits: data in the low half, epoch in the high half (NCCL's LL protocol, with one store for both).
Word of 32 bits: the complement of the data; 0 says that nothing has come (Lamport form). The one pattern that would
look empty, all ones, is sent as another pair of NaNs, so zeros of either sign and subnormals keep their bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from chunkdsl.runtime.device import admit_next, await_ahead, wait_flag


@triton.jit
def start_early(EARLY: tl.constexpr):
    """Programmatic dependent launch (sm_90 and later): this kernel may have been started while the one ahead of it in
    the stream still ran, so that its start costs nothing. Nothing before this line may touch memory; here every program
    waits until the kernels ahead have ended and what they wrote is visible, and then allows the kernel behind to start.
    That one starts only when all programs of this one are running, so it cannot keep any of them out."""
    await_ahead(EARLY)
    admit_next(EARLY)


@triton.jit
def next_epoch(epochs, SLOTS: tl.constexpr):
    """The epoch of this call. Every program keeps one of its own, which all advance in every call. 0, which fresh
    memory holds, is never one, and neighbours stay in neighbouring slots: with three slots epochs end at a multiple of
    three and start again at 1, otherwise they run through all 32 bits, as flags compare by signed difference."""
    epoch = tl.load(epochs + tl.program_id(0), volatile=True)
    if SLOTS == 3:
        following = tl.where(epoch == 2147483646, 1, epoch + 1)
    else:
        following = tl.where(epoch == -1, 2, epoch + 1)
    return following


@triton.jit
def keep_epoch(epochs, epoch, PROGRAMS: tl.constexpr):
    """Programs that this call does not need are advanced by the first one."""
    tl.store(epochs + tl.program_id(0), epoch)
    if tl.program_id(0) == 0:
        others = tl.arange(0, PROGRAMS)
        tl.store(epochs + others, epoch, mask=others >= tl.num_programs(0))


@triton.jit
def low_value(word, KIND: tl.constexpr):
    """f32 of the first element in 32 bits. KIND: 0 bf16, 1 f16, 2 f32."""
    if KIND == 0:
        value = (word << 16).to(tl.float32, bitcast=True)
    elif KIND == 1:
        value = (word & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    else:
        value = word.to(tl.float32, bitcast=True)
    return value


@triton.jit
def high_value(word, KIND: tl.constexpr):
    """f32 of the second element in 32 bits; KIND 0 bf16, 1 f16."""
    if KIND == 0:
        value = (word & -65536).to(tl.float32, bitcast=True)
    else:
        value = (word >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    return value


@triton.jit
def pair_of(low, high, KIND: tl.constexpr):
    """Two f32 values rounded to bf16 (KIND 0) or f16 (1), in 32 bits."""
    if KIND == 0:
        a = low.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32)
        b = high.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32)
    else:
        a = low.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32)
        b = high.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32)
    return (a & 0xFFFF) | (b << 16)


@triton.jit
def minus_zero(word):
    """-0.0 in f32, in the shape of `word`: whatever is added to it keeps its bits, also 0.0 and -0.0."""
    return (tl.zeros_like(word) | -2147483648).to(tl.float32, bitcast=True)


@triton.jit
def sendable(word):
    """Data that no empty word can be mistaken for: a pair of NaNs (one f32 NaN) for the pattern of all ones."""
    return tl.where(word == -1, 0x7FFF7FFF, word)


@triton.jit
def send_word(place, word, epoch, NVIDIA: tl.constexpr):
    """Store data and epoch as one 64-bit word at the addresses `place` (int64), on whichever rank they are."""
    both = (word.to(tl.int64) & 0xFFFFFFFF) | (epoch.to(tl.int64) << 32)
    if NVIDIA:
        tl.inline_asm_elementwise(
            "st.relaxed.sys.global.u64 [$1], $2; mov.u32 $0, 0;",
            "=r,l,l", [place, both], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        tl.atomic_xchg(place.to(tl.pointer_type(tl.int64)), both, sem="relaxed", scope="sys")


@triton.jit
def send_mark(place, word, NVIDIA: tl.constexpr):
    """Store the complement of the data as one 32-bit word; `word` -1 empties the place."""
    if NVIDIA:
        tl.inline_asm_elementwise(
            "st.relaxed.sys.global.u32 [$1], $2; mov.u32 $0, 0;",
            "=r,l,r", [place, ~word], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        tl.atomic_xchg(place.to(tl.pointer_type(tl.int32)), ~word, sem="relaxed", scope="sys")


@triton.jit
def take_word(place, own, mine, epoch, state, limit, NVIDIA: tl.constexpr):
    """(data, status) of 64-bit words at `place`: each thread polls its own until it holds `epoch`. Where `mine` is not
    0 the data is `own` and nothing is read. status 0: valid; 1: `limit` ns have passed; 2: the instance is dead."""
    if NVIDIA:
        data, status = tl.inline_asm_elementwise(
            """{
            .reg .pred p; .reg .u32 n; .reg .u64 x, t, s;
            mov.u32 $0, $3; mov.u32 $1, 0; mov.u32 n, 0;
            setp.ne.u32 p, $4, 0; @p bra DONE;
            AGAIN: ld.relaxed.sys.global.u64 x, [$2];
            mov.b64 {$0, $1}, x;
            setp.eq.u32 p, $1, $5; mov.u32 $1, 0; @p bra DONE;
            add.u32 n, n, 1; and.b32 $1, n, 255; setp.ne.u32 p, $1, 0; @p bra AGAIN;
            mov.u64 t, %globaltimer; setp.eq.u32 p, n, 256; @p mov.u64 s, t; sub.u64 t, t, s;
            mov.u32 $1, 2; ld.relaxed.sys.global.u32 $0, [$6]; setp.ne.u32 p, $0, 0; @p bra DONE;
            mov.u32 $1, 1; setp.lt.u64 p, t, $7; @p bra AGAIN;
            DONE: }""",
            "=&r,=&r,l,r,r,r,l,l",
            [place, own, mine, epoch, state + 1, limit],
            dtype=(tl.int32, tl.int32), is_pure=False, pack=1,
        )  # fmt: skip
    else:
        there = place.to(tl.pointer_type(tl.int64))
        both = tl.atomic_add(there, 0, sem="relaxed", scope="sys")
        fresh = ((both >> 32).to(tl.int32) == epoch) | (mine != 0)
        dead = tl.load(state + 1, volatile=True)
        spent = limit - limit
        while (tl.min(fresh.to(tl.int32)) == 0) & (dead == 0) & (spent < limit):
            both = tl.atomic_add(there, 0, sem="relaxed", scope="sys")
            fresh = ((both >> 32).to(tl.int32) == epoch) | (mine != 0)
            dead = tl.load(state + 1, volatile=True)
            spent += 256
        data = tl.where(mine != 0, own, (both & 0xFFFFFFFF).to(tl.int32))
        status = tl.where(fresh, 0, tl.where(dead != 0, 2, 1))
    return data, status


@triton.jit
def take_mark(place, own, mine, state, limit, NVIDIA: tl.constexpr):
    """The same for 32-bit words: each thread polls its own until it is not empty."""
    if NVIDIA:
        data, status = tl.inline_asm_elementwise(
            """{
            .reg .pred p; .reg .u32 n; .reg .u64 t, s;
            mov.u32 $0, $3; mov.u32 $1, 0; mov.u32 n, 0;
            setp.ne.u32 p, $4, 0; @p bra DONE;
            AGAIN: ld.relaxed.sys.global.u32 $0, [$2];
            setp.ne.u32 p, $0, 0; not.b32 $0, $0; mov.u32 $1, 0; @p bra DONE;
            add.u32 n, n, 1; and.b32 $1, n, 255; setp.ne.u32 p, $1, 0; @p bra AGAIN;
            mov.u64 t, %globaltimer; setp.eq.u32 p, n, 256; @p mov.u64 s, t; sub.u64 t, t, s;
            mov.u32 $1, 2; ld.relaxed.sys.global.u32 $0, [$5]; setp.ne.u32 p, $0, 0; @p bra DONE;
            mov.u32 $1, 1; setp.lt.u64 p, t, $6; @p bra AGAIN;
            DONE: }""",
            "=&r,=&r,l,r,r,l,l",
            [place, own, mine, state + 1, limit],
            dtype=(tl.int32, tl.int32), is_pure=False, pack=1,
        )  # fmt: skip
    else:
        there = place.to(tl.pointer_type(tl.int32))
        held = tl.atomic_add(there, 0, sem="relaxed", scope="sys")
        fresh = (held != 0) | (mine != 0)
        dead = tl.load(state + 1, volatile=True)
        spent = limit - limit
        while (tl.min(fresh.to(tl.int32)) == 0) & (dead == 0) & (spent < limit):
            held = tl.atomic_add(there, 0, sem="relaxed", scope="sys")
            fresh = (held != 0) | (mine != 0)
            dead = tl.load(state + 1, volatile=True)
            spent += 256
        data = tl.where(mine != 0, own, ~held)
        status = tl.where(fresh, 0, tl.where(dead != 0, 2, 1))
    return data, status


@triton.jit
def speculate(
    place, own, flag, epoch, source, rank, counts, site, state, state_peers, record, limit,
    RETRY: tl.constexpr, AUDIT: tl.constexpr, W: tl.constexpr, NVIDIA: tl.constexpr,
):  # fmt: skip
    """(data, status) of a block: read first, validated by the flag that is read afterwards. Not sound: data may be
    stale under a new flag if this program is held up between the two reads (SiFAR, arXiv 2607.08973). After RETRY reads
    in vain it waits for the flag and reads again. `counts`: 0 blocks, 1 mis-speculated, 2 retries, 3 waits,
    4 disagreements that an audit found by reading again after an acquire."""
    data = own
    status = tl.zeros_like(own)
    if rank != source:
        data = ~tl.load(place, volatile=True)
        seen = tl.atomic_add(flag, 0, sem="acquire", scope="sys")
        tries = seen - seen
        while (seen != epoch) & (tries < RETRY):
            data = ~tl.load(place, volatile=True)
            seen = tl.atomic_add(flag, 0, sem="acquire", scope="sys")
            tries += 1
        tl.atomic_add(counts, 1, sem="relaxed", scope="gpu")
        tl.atomic_add(counts + 1, 1, mask=tries > 0, sem="relaxed", scope="gpu")
        tl.atomic_add(counts + 2, tries, mask=tries > 0, sem="relaxed", scope="gpu")
        if (seen != epoch) | AUDIT:
            tl.atomic_add(counts + 3, 1, mask=seen != epoch, sem="relaxed", scope="gpu")
            ok = wait_flag(flag, epoch, site, source, state, state_peers, record, limit, W, NVIDIA)
            again = ~tl.load(place, volatile=True)
            odd = tl.max((again != data).to(tl.int32))
            tl.atomic_add(counts + 4, 1, mask=(odd != 0) & (seen == epoch), sem="relaxed", scope="gpu")
            data = again
            status += (ok == 0).to(tl.int32) * 2
    return data, status


@triton.jit
def write_where(place, value, where, NVIDIA: tl.constexpr):
    """Store 32 bits at the address `place` (int64) by the threads whose `where` is not 0. A predicated instruction and
    not a masked store, which would first move the mask to the threads of its own layout."""
    if NVIDIA:
        tl.inline_asm_elementwise(
            "{ .reg .pred p; setp.ne.u32 p, $3, 0; @p st.relaxed.sys.global.u32 [$1], $2; mov.u32 $0, 0; }",
            "=r,l,r,r", [place, value, where], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        there = (place + where.to(tl.int64) * 0).to(tl.pointer_type(tl.int32))
        tl.atomic_xchg(there, value + where * 0, mask=where != 0, sem="relaxed", scope="sys")


@triton.jit
def note_where(record, where, NVIDIA: tl.constexpr):
    """Kind 2, a peer gave up first, into a record that says nothing yet, by the threads whose `where` is not 0."""
    if NVIDIA:
        tl.inline_asm_elementwise(
            """{ .reg .pred p; .reg .b32 was; setp.ne.u32 p, $2, 0;
            @p atom.relaxed.sys.global.cas.b32 was, [$1], 0, 2; mov.u32 $0, 0; }""",
            "=r,l,r", [record.to(tl.int64), where], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        if tl.max(where) != 0:
            tl.atomic_cas(record, 0, 2, sem="relaxed", scope="sys")


@triton.jit
def say_late(late, site, epoch, state, states, record, PEERS: tl.constexpr, NVIDIA: tl.constexpr):
    """Threads whose wait ran out say where, and every rank's later waits return at once; threads whose wait a peer has
    cut short say that. `late`: the status, and four times the rank that was waited for. Predicated stores: no thread
    that is in time pays for them. The host reads the record when the device is idle."""
    out = ((late & 3) == 1).to(tl.int32)
    said = record.to(tl.int64)
    write_where(said + 4, site, out, NVIDIA)
    write_where(said + 8, late >> 2, out, NVIDIA)
    write_where(said + 12, epoch, out, NVIDIA)
    write_where(said, 1, out, NVIDIA)
    write_where(state.to(tl.int64) + 4, 1, out, NVIDIA)
    for k in tl.static_range(PEERS):
        write_where(states[k] + 4, 1, out, NVIDIA)
    note_where(record, ((late & 3) == 2).to(tl.int32), NVIDIA)
