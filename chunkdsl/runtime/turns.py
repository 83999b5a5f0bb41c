"""Device helpers of a user's kernel that goes through gathered rows in turns, one for each chunk, and waits in front of
each. `arrivals` is what it hands through: the flags, what a wait needs, how the rows are cut, which rows a round reads.
Copied into generated modules.
"""

from __future__ import annotations

import triton
import triton.language as tl

from chunkdsl.runtime.device import proxy_fence, wait_flag


@triton.jit
def turns_of(arrivals):
    """Chunks of all shards."""
    return arrivals[7] * tl.cdiv(arrivals[11], arrivals[12])


@triton.jit
def value_at(row, begin, end, step, rows, LEAD: tl.constexpr, EACH: tl.constexpr):
    """The first value of range(begin, end, step) whose round reads rows from `row` on. The round of value v reads rows
    LEAD * v up to LEAD * v + EACH, so the rounds before this one need only rows before `row`."""
    count = tl.maximum(row - EACH - LEAD * begin + LEAD * step, 0) // (LEAD * step)
    return tl.where(row < rows, tl.minimum(begin + count * step, end), end)


@triton.jit
def await_turn(turn, begin, end, step, arrivals):
    """(from, to): the part of range(begin, end, step) whose last rows lie in chunk `turn`, counted over all shards in
    order, once that chunk is here of every argument that the loop reads; nothing when the instance is dead. A chunk
    that the range reads nothing of is not waited for, unless it has no rows: its signal says that its sender is past
    the call before."""
    flags, epoch, sites, state, peers, record, limit, world, nvidia, tma = arrivals[:10]
    rank, shard, chunk, cap, rows, lead, each = arrivals[10:]
    chunks = tl.cdiv(shard, chunk)
    source, c = turn // chunks, turn % chunks
    first = source * shard + c * chunk
    last = source * shard + tl.minimum((c + 1) * chunk, shard)
    reads_to = lead * (begin + (tl.cdiv(tl.maximum(end - begin, 0), step) - 1) * step) + each
    wanted = (first >= rows) | ((begin < end) & (first < reads_to) & (last > lead * begin))
    ok = tl.full((), 1, tl.int32)
    if (source != rank) & wanted:
        word = source * cap + c
        for i in tl.static_range(len(flags)):
            ok = ok & wait_flag(flags[i] + word, epoch, sites[i], word, state, peers, record, limit, world, nvidia)
    if tma:
        proxy_fence(nvidia)
    here = value_at(first, begin, end, step, rows, lead, each)
    there = value_at(last, begin, end, step, rows, lead, each)
    return here, tl.where(ok != 0, there, here)
