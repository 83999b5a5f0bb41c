"""Emulation of the polling loops of runtime/words.py and neighbours.py: every thread reads its own words until they are
valid, the deadline has passed or the instance is dead. One poll reads the words of all threads; then others run."""

from __future__ import annotations

import re

import numpy as np
import triton.language as tl

from chunkdsl.interp.assembly import Statement, emulates_whole


@emulates_whole(r"AGAIN: ld\.relaxed\.sys\.global\.u64 x, \[\$2\]; mov\.b64 \{\$0, \$1\}, x; setp\.eq\.u32 p, \$1, ")
def _take_word(s: Statement) -> None:
    place, own, mine, epoch, dead, limit = (s.inputs[i] for i in range(2, 8))

    def read(words):
        return words.astype(np.int32), (words >> 32).astype(np.int32) == epoch.astype(np.int32)

    _poll(s, place, (own,), mine, dead, limit, tl.int64, read)


@emulates_whole(r"AGAIN: ld\.relaxed\.sys\.global\.u32 \$0, \[\$2\]; setp\.ne\.u32 p, \$0, 0; not\.b32 \$0, \$0;")
def _take_mark(s: Statement) -> None:
    place, own, mine, dead, limit = (s.inputs[i] for i in range(2, 7))
    _poll(s, place, (own,), mine, dead, limit, tl.int32, lambda words: (~words, words != 0))


@emulates_whole(
    r"AGAIN: ld\.relaxed\.sys\.global\.v2\.u64 \{x, y\}, \[\$3\]; mov\.b64 \{\$0, e\}, x; mov\.b64 \{\$1, f\}, y; "
    r"mov\.u32 \$2, 0; setp\.eq\.u32 p, e, \$7; setp\.eq\.and\.u32 p, f, \$7, p; @p bra DONE;"
)
def _take_two_words(s: Statement) -> None:
    place, a, b, mine, epoch, dead, limit = (s.inputs[i] for i in range(3, 10))

    def read(words):
        return words.astype(np.int32), (words >> 32).astype(np.int32) == epoch.astype(np.int32)

    _poll(s, place, (a, b), mine, dead, limit, tl.int64, read)


@emulates_whole(
    r"AGAIN: ld\.relaxed\.sys\.global\.v4\.u32 \{\$0, \$1, \$2, \$3\}, \[\$5\]; setp\.ne\.u32 p, \$0, 0; "
    r"setp\.ne\.and\.u32 p, \$1, 0, p; setp\.ne\.and\.u32 p, \$2, 0, p; setp\.ne\.and\.u32 p, \$3, 0, p; "
)
def _take_four_marks(s: Statement) -> None:
    place, a, b, c, d, mine, dead, limit = (s.inputs[i] for i in range(5, 13))
    _poll(s, place, (a, b, c, d), mine, dead, limit, tl.int32, lambda words: (~words, words != 0))


def _poll(s: Statement, place, own, mine, dead, limit, dtype, read) -> None:
    """`own`: data of `len(own)` neighbouring words where there is nothing to wait for. A vector load is as many loads
    of one word: each may see what the other does not."""
    shape, size = s.outputs[0].shape, dtype.primitive_bitwidth // 8
    place, mine = np.broadcast_to(place, shape), np.broadcast_to(mine, shape)
    data = [np.broadcast_to(v, shape).astype(np.int32) for v in own]
    status = np.zeros(shape, np.int32)
    waiting, start = np.broadcast_to(mine == 0, shape).copy(), None
    while waiting.any():
        loaded = [read(s.builder.atomic_load(place + size * i, dtype, "relaxed", "sys")) for i in range(len(own))]
        took = waiting.copy()
        for _, fresh in loaded:
            took &= np.broadcast_to(fresh, shape)
        data = [np.where(took, words, old) for (words, _), old in zip(loaded, data, strict=True)]
        waiting &= ~took
        if not waiting.any():
            break
        now = s.builder.memory.clock()
        start = now if start is None else start
        if s.builder.atomic_load(np.ravel(dead)[:1], tl.int32, "relaxed", "sys")[0]:
            status[waiting] = 2
            break
        if now - start > int(np.ravel(limit)[0]):
            status[waiting] = 1
            break
    for i, made in enumerate((*data, status)):
        s.outputs[i][...] = made


@emulates_whole(r"setp\.ne\.u32 p, \$2, 0; @p atom\.relaxed\.sys\.global\.cas\.b32 was, \[\$1\], 0, 2;")
def _note_where(s: Statement) -> None:
    place, where = (np.broadcast_to(s.inputs[i], s.outputs[0].shape) for i in (1, 2))
    if (where != 0).any():
        s.builder.atomic_cas(np.ravel(place)[:1], 0, 2, tl.int32, "sys")



@emulates_whole(r"setp\.ne\.u32 p, \$\d, 0; @p st\.relaxed\.sys\.global\.(?:v[24]\.)?u(?:32|64) \[\$1\], [{$]")
def _send_where(s: Statement) -> None:
    """Of neighbouring words, as many stores as words, in no promised order."""
    (width,) = re.findall(r"global(?:\.v[24])?\.u(32|64)", s.text)
    place, *words, where = (np.broadcast_to(s.inputs[i], s.outputs[0].shape) for i in sorted(s.inputs))
    dtype = tl.int64 if width == "64" else tl.int32
    for i, word in enumerate(words):
        s.builder.atomic_store(place + i * int(width) // 8, word, dtype, "relaxed", "sys", where != 0)
