"""Device functions of small all-reduces that send and take several neighbouring words at a time. Copied into every
module that needs them, so: triton only.

A thread sends and takes WIDE words by one instruction of 16 bytes. The memory model sees a vector access as one access
for each word, in no order, so every word is judged by what itself holds.
"""

from __future__ import annotations

import triton
import triton.language as tl

from chunkdsl.runtime.words import send_mark, send_word, take_mark, take_word


@triton.jit
def neighbours(word, count, lanes, WIDE: tl.constexpr):
    """`word` where it is below `count`, else one of the last WIDE words below it: groups of WIDE neighbours, which
    begin at multiples of WIDE, stay whole. `lanes`: the place of each word in its block; WIDE divides `count`."""
    word = tl.minimum(word, count - WIDE + lanes % WIDE)
    if WIDE > 1:  # a promise that the compiler keeps only where the value is made
        word = tl.max_contiguous(tl.multiple_of(word, [WIDE]), [WIDE])
    return word


@triton.jit
def word_in_row(number, row, column, WIDE: tl.constexpr):
    """Words of row `number`, of `row` words, with the same promise as `neighbours`."""
    word = number * row + column
    if WIDE > 1:
        word = tl.max_contiguous(tl.multiple_of(word, [WIDE]), [WIDE])
    return word


@triton.jit
def in_two(x):
    """[2 n] -> its even and its odd elements, [n] each."""
    return tl.split(tl.reshape(x, (x.shape[0] // 2, 2)))


@triton.jit
def in_four(x):
    """[4 n] -> every fourth element, from each of the first four, [n] each."""
    even, odd = tl.split(tl.reshape(x, (x.shape[0] // 4, 2, 2)))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def from_two(a, b):
    """What `in_two` took apart."""
    return tl.reshape(tl.join(a, b), (2 * a.shape[0],))


@triton.jit
def from_four(a, b, c, d):
    """What `in_four` took apart."""
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (4 * a.shape[0],))


@triton.jit
def send_words(place, word, epoch, WIDE: tl.constexpr, NVIDIA: tl.constexpr):
    """`send_word` for WIDE words at a time; `place` says where each goes."""
    if WIDE == 2 and NVIDIA:
        there, _ = in_two(place)
        a, b = in_two((word.to(tl.int64) & 0xFFFFFFFF) | (epoch.to(tl.int64) << 32))
        tl.inline_asm_elementwise(
            "st.relaxed.sys.global.v2.u64 [$1], {$2, $3}; mov.u32 $0, 0;",
            "=r,l,l,l", [there, a, b], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        send_word(place, word, epoch, NVIDIA)


@triton.jit
def send_marks(place, word, WIDE: tl.constexpr, NVIDIA: tl.constexpr):
    """`send_mark` for WIDE words at a time; `place` says where each goes."""
    if WIDE == 4 and NVIDIA:
        there, _, _, _ = in_four(place)
        a, b, c, d = in_four(~word)
        tl.inline_asm_elementwise(
            "st.relaxed.sys.global.v4.u32 [$1], {$2, $3, $4, $5}; mov.u32 $0, 0;",
            "=r,l,r,r,r,r", [there, a, b, c, d], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        send_mark(place, word, NVIDIA)


@triton.jit
def empty_marks(
    words, slot, count, cap, lanes, ROWS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr, NVIDIA: tl.constexpr
):
    """Empty this program's share of the first `count` words in each of the ROWS rows of a slot."""
    rows = ROWS * (count > 0).to(tl.int32)  # not known to the compiler: unrolled, the places of 32 rows would spill
    for first in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        word = neighbours(first + lanes, count, lanes, WIDE)
        for row in range(rows):
            place = words + ((slot * ROWS + row).to(tl.int64) * cap + word) * 4
            send_marks(place, tl.full((BLOCK,), -1, tl.int32), WIDE, NVIDIA)


@triton.jit
def take_words(place, own, mine, epoch, state, limit, WIDE: tl.constexpr, NVIDIA: tl.constexpr):
    """`take_word` for WIDE words at a time: they are valid when each holds the epoch."""
    if WIDE == 2 and NVIDIA:
        there, _ = in_two(place)
        here, _ = in_two(mine)
        a, b = in_two(own)
        a, b, late = tl.inline_asm_elementwise(
            """{
            .reg .pred p; .reg .u32 n, e, f; .reg .u64 x, y, t, s;
            mov.u32 $0, $4; mov.u32 $1, $5; mov.u32 $2, 0; mov.u32 n, 0;
            setp.ne.u32 p, $6, 0; @p bra DONE;
            AGAIN: ld.relaxed.sys.global.v2.u64 {x, y}, [$3];
            mov.b64 {$0, e}, x; mov.b64 {$1, f}, y; mov.u32 $2, 0;
            setp.eq.u32 p, e, $7; setp.eq.and.u32 p, f, $7, p; @p bra DONE;
            add.u32 n, n, 1; and.b32 $2, n, 255; setp.ne.u32 p, $2, 0; @p bra AGAIN;
            mov.u64 t, %globaltimer; setp.eq.u32 p, n, 256; @p mov.u64 s, t; sub.u64 t, t, s;
            mov.u32 $2, 2; ld.relaxed.sys.global.u32 $0, [$8]; setp.ne.u32 p, $0, 0; @p bra DONE;
            mov.u32 $2, 1; setp.lt.u64 p, t, $9; @p bra AGAIN;
            DONE: }""",
            "=&r,=&r,=&r,l,r,r,r,r,l,l",
            [there, a, b, here, epoch, state + 1, limit],
            dtype=(tl.int32, tl.int32, tl.int32), is_pure=False, pack=1,
        )  # fmt: skip
        data, status = from_two(a, b), from_two(late, late)
    else:
        data, status = take_word(place, own, mine, epoch, state, limit, NVIDIA)
    return data, status


@triton.jit
def take_marks(place, own, mine, state, limit, WIDE: tl.constexpr, NVIDIA: tl.constexpr):
    """`take_mark` for WIDE words at a time: they are valid when none is empty."""
    if WIDE == 4 and NVIDIA:
        there, _, _, _ = in_four(place)
        here, _, _, _ = in_four(mine)
        a, b, c, d = in_four(own)
        a, b, c, d, late = tl.inline_asm_elementwise(
            """{
            .reg .pred p; .reg .u32 n; .reg .u64 t, s;
            mov.u32 $0, $6; mov.u32 $1, $7; mov.u32 $2, $8; mov.u32 $3, $9; mov.u32 $4, 0; mov.u32 n, 0;
            setp.ne.u32 p, $10, 0; @p bra DONE;
            AGAIN: ld.relaxed.sys.global.v4.u32 {$0, $1, $2, $3}, [$5];
            setp.ne.u32 p, $0, 0; setp.ne.and.u32 p, $1, 0, p; setp.ne.and.u32 p, $2, 0, p; setp.ne.and.u32 p, $3, 0, p;
            not.b32 $0, $0; not.b32 $1, $1; not.b32 $2, $2; not.b32 $3, $3; mov.u32 $4, 0; @p bra DONE;
            add.u32 n, n, 1; and.b32 $4, n, 255; setp.ne.u32 p, $4, 0; @p bra AGAIN;
            mov.u64 t, %globaltimer; setp.eq.u32 p, n, 256; @p mov.u64 s, t; sub.u64 t, t, s;
            mov.u32 $4, 2; ld.relaxed.sys.global.u32 $0, [$11]; setp.ne.u32 p, $0, 0; @p bra DONE;
            mov.u32 $4, 1; setp.lt.u64 p, t, $12; @p bra AGAIN;
            DONE: }""",
            "=&r,=&r,=&r,=&r,=&r,l,r,r,r,r,r,l,l",
            [there, a, b, c, d, here, state + 1, limit],
            dtype=(tl.int32, tl.int32, tl.int32, tl.int32, tl.int32), is_pure=False, pack=1,
        )  # fmt: skip
        data, status = from_four(a, b, c, d), from_four(late, late, late, late)
    else:
        data, status = take_mark(place, own, mine, state, limit, NVIDIA)
    return data, status
