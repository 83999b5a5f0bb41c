"""Emulation of the polling loops of runtime/words.py: every thread reads its own word until it is valid, the deadline
has passed or the instance is dead. One poll reads the words of all threads; between two polls others run."""

from __future__ import annotations

import numpy as np
import triton.language as tl

from chunkdsl.interp.assembly import Statement, emulates_whole


@emulates_whole(r"AGAIN: ld\.relaxed\.sys\.global\.u64 x, \[\$2\]; mov\.b64 \{\$0, \$1\}, x; setp\.eq\.u32 p, \$1, ")
def _take_word(s: Statement) -> None:
    place, own, mine, epoch, dead, limit = (s.inputs[i] for i in range(2, 8))

    def read(words):
        return words.astype(np.int32), (words >> 32).astype(np.int32) == epoch.astype(np.int32)

    _poll(s, place, own, mine, dead, limit, tl.int64, read)


@emulates_whole(r"AGAIN: ld\.relaxed\.sys\.global\.u32 \$0, \[\$2\]; setp\.ne\.u32 p, \$0, 0; not\.b32 \$0, \$0;")
def _take_mark(s: Statement) -> None:
    place, own, mine, dead, limit = (s.inputs[i] for i in range(2, 7))
    _poll(s, place, own, mine, dead, limit, tl.int32, lambda words: (~words, words != 0))


def _poll(s: Statement, place, own, mine, dead, limit, dtype, read) -> None:
    shape = s.outputs[0].shape
    place, own, mine = (np.broadcast_to(v, shape) for v in (place, own, mine))
    data, status = own.astype(np.int32), np.zeros(shape, np.int32)
    waiting, start = np.broadcast_to(mine == 0, shape).copy(), None
    while waiting.any():
        words, fresh = read(s.builder.atomic_load(place, dtype, "relaxed", "sys"))
        took = waiting & np.broadcast_to(fresh, shape)
        data = np.where(took, words, data)
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
    s.outputs[0][...], s.outputs[1][...] = data, status
