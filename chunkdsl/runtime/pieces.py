"""Device functions of small all-reduces in two rounds whose rows stay with one program each: a row is cut into pieces,
one for every rank, so each thread sends its words to one rank alone. Copied into every module that needs them, so:
triton only.
"""

from __future__ import annotations

import triton
import triton.language as tl

from chunkdsl.runtime.neighbours import in_four, in_two
from chunkdsl.runtime.words import write_where


@triton.jit
def address_at(peers, owner, rank, W: tl.constexpr):
    """The address in `peers` of each thread's `owner`."""
    address = owner.to(tl.int64) * 0 + peers[W - 1]
    for k in tl.static_range(W - 1):
        address = tl.where(owner == (rank + 1 + k) % W, peers[k], address)
    return address


@triton.jit
def send_words_where(place, word, epoch, where, WIDE: tl.constexpr, NVIDIA: tl.constexpr):
    """`send_words` by the threads whose `where` is not 0; neighbours agree on it."""
    both = (word.to(tl.int64) & 0xFFFFFFFF) | (epoch.to(tl.int64) << 32)
    if WIDE == 2 and NVIDIA:
        there, _ = in_two(place)
        here, _ = in_two(where)
        a, b = in_two(both)
        tl.inline_asm_elementwise(
            "{ .reg .pred p; setp.ne.u32 p, $4, 0; @p st.relaxed.sys.global.v2.u64 [$1], {$2, $3}; mov.u32 $0, 0; }",
            "=r,l,l,l,r", [there, a, b, here], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    elif NVIDIA:
        tl.inline_asm_elementwise(
            "{ .reg .pred p; setp.ne.u32 p, $3, 0; @p st.relaxed.sys.global.u64 [$1], $2; mov.u32 $0, 0; }",
            "=r,l,l,r", [place, both, where], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        tl.atomic_xchg(place.to(tl.pointer_type(tl.int64)), both, mask=where != 0, sem="relaxed", scope="sys")


@triton.jit
def send_marks_where(place, word, where, WIDE: tl.constexpr, NVIDIA: tl.constexpr):
    """`send_marks` by the threads whose `where` is not 0; neighbours agree on it."""
    if WIDE == 4 and NVIDIA:
        there, _, _, _ = in_four(place)
        here, _, _, _ = in_four(where)
        a, b, c, d = in_four(~word)
        tl.inline_asm_elementwise(
            """{ .reg .pred p; setp.ne.u32 p, $6, 0;
            @p st.relaxed.sys.global.v4.u32 [$1], {$2, $3, $4, $5}; mov.u32 $0, 0; }""",
            "=r,l,r,r,r,r,r", [there, a, b, c, d, here], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        write_where(place, ~word, where, NVIDIA)


@triton.jit
def sum_in_order(x, place, lanes, N: tl.constexpr):
    """The sum of [N] elements, every 32nd first, by way of N + 32 elements of memory at `place` that are this program's
    own. `tl.sum` adds up in the order in which a layout deals elements to threads, and the fused kernel and that of
    `exact` need not have one in common."""
    column = tl.arange(0, 32)
    tl.debug_barrier()
    tl.store(place + lanes, x)
    tl.debug_barrier()
    part = tl.load(place + column)
    for i in tl.static_range(1, N // 32):
        part += tl.load(place + i * 32 + column)
    tl.store(place + N + column, part)
    tl.debug_barrier()
    total = tl.load(place + N)
    for i in tl.static_range(1, 32):
        total += tl.load(place + N + i)
    return total
