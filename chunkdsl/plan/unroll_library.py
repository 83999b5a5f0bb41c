"""Products that the library computes: one task for each call, on the rank's stream, and the copies that carry on what
it leaves, each behind its call by an event.

What arrives comes by the moves of `unroll_moves`; the calls wait for its chunks as tiles do (`unroll_tiles`).
"""

from __future__ import annotations

from chunkdsl.plan.plan import Access, Act, Region
from chunkdsl.plan.schedule import Moves
from chunkdsl.plan.unroll_frame import Frame
from chunkdsl.plan.unroll_tiles import add_tiles, visited


def add_calls(f: Frame, rank: int, step: int, lane: str, begin: int) -> list[int]:
    """The calls for the shard that a rank comes to at this step. `lane` is serial: a call starts when the one before it
    has ended."""
    made = add_tiles(f, rank, step, lane, begin)
    for m in (m for m in f.launch.moves if m.leaving):
        owner = visited(f.launch, rank, step, f.grid)
        if owner == rank:  # the sum comes behind its calls in the stream
            continue
        lane = f"copies {m.name}"
        f.book.open(lane, True)
        copies = [_copy(f, m, rank, owner, c, lane, call) for c, call in enumerate(made)]
        f.book.joins.setdefault(rank, []).extend(copies[-1:])
    return made


def _copy(f: Frame, m: Moves, rank: int, owner: int, c: int, lane: str, call: int) -> int:
    """Chunk `c` of the addends for another rank's shard goes to its owner, and a flag behind it."""
    g, size, width = f.geometry, f.geometry.chunk(f.launch.out_chunk), f.widths[m.buffer]
    first, end = c * size, min((c + 1) * size, f.heights[owner])
    accesses: tuple[Access, ...] = ()
    if first < end:
        at, to = owner * g.stride, rank * g.stride
        of = Region(m.source, rank, 0, at + first, at + end, 0, width)
        accesses = (Access(Act.COPY, Region(m.buffer, owner, f.slot, to + first, to + end, 0, width), of),)
    gives = (f.chunk(m.arrived, owner, rank, c, rank),)
    label = f"carries partial sums of shard {owner}, chunk {c} to rank {owner}"
    return f.book.task(rank, lane, f.call, "move", m.line, label, accesses, (call,), (), gives)
