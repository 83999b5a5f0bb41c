"""Transfers along a route that is written out: one task for each chunk of each flow of its trace.

What a flow moves on decides what its tasks wait for: the own shard was staged before the launch, a peer's own shard
when that peer said so, and what another flow brought has its arrival word where it lies.
"""

from __future__ import annotations

from chunkdsl.plan.plan import Access, Act, Region
from chunkdsl.plan.schedule import Moves
from chunkdsl.plan.unroll_frame import Frame


def add_hop(f: Frame, m: Moves, rank: int, number: int, lane: str, begin: int) -> list[int]:
    """The chunks of one of a rank's flows, in a gather."""
    g, chunk, grid = f.geometry, f.launch.chunk, f.grid
    flow = m.routing.flows(rank, grid)[number]
    shard, holder, reader = flow.source, flow.holder, flow.reader
    size, width, at, made = g.chunk(chunk), f.widths[m.buffer], shard * g.stride, []
    for c in m.routing.chunks(chunk, g, flow.part, grid):
        first, end = c * size, min((c + 1) * size, f.heights[shard])
        accesses, waits = (), ()
        if first < end:
            to, of = (Region(m.buffer, r, f.slot, at + first, at + end, 0, width) for r in (reader, holder))
            accesses = (Access(Act.COPY, to, of),)
        if flow.base is not None:
            waits = (f.chunk(m.arrived, holder, shard, c, flow.base.issuer),)
        elif holder != rank:
            waits = (f.book.signal(m.ready, rank, holder, holder, f.call, "staged"),)
        gives = (f.chunk(m.arrived, reader, shard, c, rank),)
        label = f"carries shard {shard}, chunk {c} from rank {holder} to rank {reader}"
        line = flow.step.line or m.line
        made.append(
            f.book.task(rank, lane, f.call, "move", line, label, accesses, (begin,), waits, gives, pieces(f, m, size))
        )
    return made


def pieces(f: Frame, m: Moves, chunk_rows: int) -> int:
    """Programs' worth of work in a chunk: a copy engine takes it whole."""
    return 1 if m.via == "copy_engine" else -(-min(chunk_rows, f.geometry.shard) // f.launch.tiling.piece_rows)
