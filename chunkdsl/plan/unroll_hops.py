"""Transfers along a route that is written out: one task for each chunk of each flow of its trace.

What a flow moves on decides what its tasks wait for: the own shard was staged before the launch, a peer's own shard
when that peer said so, and what another flow brought has its arrival word where it lies.
"""

from __future__ import annotations

from chunkdsl.plan.plan import Access, Act, Region
from chunkdsl.plan.schedule import Moves
from chunkdsl.plan.trace import Flow
from chunkdsl.plan.unroll_deal import Blocks, held_slot, put
from chunkdsl.plan.unroll_frame import Frame


def add_hop(f: Frame, m: Moves, rank: int, number: int, lane: str, begin: int) -> list[int]:
    """The chunks of one of a rank's flows."""
    kinds = {"gather": _gather, "scatter": _scatter, "deal": _deal}
    return kinds[m.kind](f, m, rank, number, lane, begin)


def _gather(f: Frame, m: Moves, rank: int, number: int, lane: str, begin: int) -> list[int]:
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
        line = line_of(m, flow)
        made.append(
            f.book.task(rank, lane, f.call, "move", line, label, accesses, (begin,), waits, gives, pieces(f, m, size))
        )
    return made


def _scatter(f: Frame, m: Moves, rank: int, number: int, lane: str, begin: int) -> list[int]:
    """A sum goes to its place on the reader: what the holder begins with, its own addend or an arrival, and the
    arrivals there that are added to it."""
    g, chunk, grid = f.geometry, f.launch.out_chunk, f.grid
    flow, kept = m.routing.flows(rank, grid)[number], m.routing.storage(grid)
    shard, holder, reader, place = flow.source, flow.holder, flow.reader, kept.place(flow)
    size, width, made = g.chunk(chunk), f.widths[m.buffer], []
    own = f.slot if f.kinds[m.source] == "symmetric" else 0
    for c in m.routing.chunks(chunk, g, flow.part, grid):
        if c >= g.chunks(chunk):
            break  # no tile completes it
        first, end = c * size, min((c + 1) * size, f.heights[shard])

        def box(buffer: str, on: int, slot: int, group: int, first=first, end=end) -> Region:
            return Region(buffer, on, slot, group * g.stride + first, group * g.stride + end, 0, width)

        accesses: tuple[Access, ...] = ()
        if first < end:
            to = box(m.buffer, reader, f.slot, place)
            parts = [box(m.source, holder, own, shard)] if flow.base is None else []
            parts += [box(m.buffer, holder, f.slot, kept.place(a)) for a in flow.inputs]
            accesses = (Access(Act.COPY, to, parts[0]), *(Access(Act.ADD, to, p) for p in parts[1:]))
        waits = (f.chunk(m.done, holder, shard, c, holder),) if flow.base is None else ()
        waits += tuple(f.chunk(m.arrived, holder, kept.place(a), c, a.issuer) for a in flow.inputs)
        gives = (f.chunk(m.arrived, reader, place, c, rank),)
        label = f"carries partial sums of shard {shard}, chunk {c} from rank {holder} to rank {reader}"
        line = line_of(m, flow)
        made.append(
            f.book.task(rank, lane, f.call, "move", line, label, accesses, (begin,), waits, gives, pieces(f, m, size))
        )
    return made


def _deal(f: Frame, m: Moves, rank: int, number: int, lane: str, begin: int) -> list[int]:
    """A block goes from its giver, or the place of the relay where it lies, to its place or one of a relay. The giver
    has it in its input, in a copy of that if others read it, or where its tiles hand it over."""
    g, b, made = f.geometry, Blocks(f, m.deal), []
    chunk = f.launch.out_chunk if m.leaving else f.launch.chunk
    flow = m.routing.flows(rank, f.grid)[number]
    (giver, taker), holder, reader, relay = flow.block, flow.holder, flow.reader, m.relay
    here, there = flow.source - f.world, flow.target - f.world
    size, width = g.chunk(chunk), b.width(giver, taker)
    for c in m.routing.chunks(chunk, g, flow.part, f.grid):
        if m.leaving and c >= g.chunks(chunk):
            break  # no tile completes it
        first, end = c * size, min((c + 1) * size, f.heights[b.shard(giver, taker)])

        def relayed(on: int, place: int, first=first, end=end) -> Region:
            at = place * g.stride
            return Region(relay.buffer, on, f.slot, at + first, at + end, 0, width)

        accesses: tuple[Access, ...] = ()
        if first < end and width > 0:
            to = relayed(reader, there) if there >= 0 else b.place(m.buffer, giver, taker, first, end)
            if flow.base:
                accesses = (Access(Act.COPY, to, relayed(holder, here)),)
            elif m.leaving or m.ready:
                of = b.source(m.source, giver, taker, first, end, held_slot(f, m.source))
                accesses = (Access(Act.COPY, to, of),)
            else:
                accesses = put(f, b, m.source, giver, taker, first, end, to)
        waits: tuple[int, ...] = ()
        if flow.base:
            waits = (f.chunk(relay.arrived, holder, here, c, flow.base.issuer),)
        elif m.leaving:
            waits = (f.chunk(m.done, holder, taker, c, holder),)
        elif holder != rank:
            waits = (f.book.signal(m.ready, rank, holder, holder, f.call, "staged"),)
        word = (relay.arrived, reader, there) if there >= 0 else (m.arrived, reader, flow.target)
        gives = (f.chunk(*word, c, rank),)
        label = f"deals the block of rank {giver} for rank {taker}, chunk {c} from rank {holder} to rank {reader}"
        line = line_of(m, flow)
        made.append(
            f.book.task(rank, lane, f.call, "move", line, label, accesses, (begin,), waits, gives, pieces(f, m, size))
        )
    return made


def line_of(m: Moves, flow: Flow) -> int:
    """The spec's line of a step; of a plan file that of its collective."""
    return m.line if m.routing.file else flow.step.line or m.line


def pieces(f: Frame, m: Moves, chunk_rows: int) -> int:
    """Programs' worth of work in a chunk: a copy engine takes it whole."""
    return 1 if m.via == "copy_engine" else -(-min(chunk_rows, f.geometry.shard) // f.launch.tiling.piece_rows)
