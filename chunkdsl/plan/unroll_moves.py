"""Transfers: staging a shard, and chunks carried between ranks by a copy lane or by programs of a launch.

Each function adds tasks for one rank and returns their indices. A chunk without rows makes a task that only waits and
signals.
"""

from __future__ import annotations

from collections.abc import Iterable

from chunkdsl.ir.meshes import World, ranks_of
from chunkdsl.plan.plan import Access, Act, Region
from chunkdsl.plan.routes import Walk
from chunkdsl.plan.schedule import Moves, Staging
from chunkdsl.plan.unroll_deal import Blocks, carry, stage
from chunkdsl.plan.unroll_frame import Frame
from chunkdsl.plan.unroll_hops import add_hop, pieces


def add_staging(f: Frame, rank: int, s: Staging) -> None:
    """This rank's shard goes to its own place of the gathered buffer, before anything is sent; unless it stays."""
    if s.buffer in f.op.stays:
        return
    book, ranks = f.book, range(f.world)
    accesses = stage(f, rank) if s.deal else _staged_shard(f, rank, s)
    word = f"{s.source} staged"
    said = tuple([book.signal(s.ready, p, rank, rank, f.call, word) for p in ranks]) if s.ready else ()
    label = f"stages its {'block' if s.deal else 'shard'} of {s.source}"
    book.main(rank, f.call, "stage", s.line, label, accesses=accesses, signals=said)
    if s.wait_all:
        heard = tuple([book.signal(s.ready, rank, p, p, f.call, word) for p in ranks])
        what = "blocks" if s.deal else "copies"
        book.main(rank, f.call, "barrier", s.line, f"entry barrier before {what} of {s.source}", waits=heard)


def _staged_shard(f: Frame, rank: int, s: Staging) -> tuple[Access, ...]:
    g, height = f.geometry, f.heights[rank]
    reads = f.reads_local(s.source, rank, 0, height) if s.source in f.kinds else []
    puts, width = [], f.widths[s.buffer]
    for at, origin, rows in f.held(s.source).runs(rank, 0, height) if width else ():
        row = rank * g.stride + at
        region = Region(s.buffer, rank, f.slot, row, row + rows, 0, width)
        puts.append(Access(Act.PUT, region, None, s.source, 1, (origin, 0)))
    return (*reads, *puts)


def add_copies(f: Frame, m: Moves, rank: int, begin: int) -> None:
    """A copy engine's lane. It forks from the stream before the kernel starts (after the staging and its barrier) and
    is joined before the call ends."""
    lane = f"copies {m.name}"
    f.book.open(lane, True)
    made = add_moves(f, m, rank, lane, begin)
    f.book.joins.setdefault(rank, []).extend(made[-1:])


def steps_of(m: Moves, rank: int, grid: World) -> int:
    """How many transfers of a shard, or of a part of one, a rank issues."""
    return ranks_of(grid) - 1 if m.routing is None else len(m.routing.flows(rank, grid))


def add_moves(f: Frame, m: Moves, rank: int, lane: str, begin: int) -> list[int]:
    """All moves of a rank in the order in which they start: peer by peer; of a deal onto rows chunk by chunk, as a
    tile needs its chunk from every peer."""
    if m.kind == "deal" and m.deal.onto == "rows" and m.routing is None:
        chunks = range(f.geometry.chunks(f.launch.chunk))
        return [t for c in chunks for t in add_chunk(f, m, rank, c, lane, begin)]
    return [t for step in range(steps_of(m, rank, f.grid)) for t in add_move(f, m, rank, step, lane, begin)]


def add_chunk(f: Frame, m: Moves, rank: int, chunk: int, lane: str, begin: int) -> list[int]:
    """One chunk of a deal, to or from every peer."""
    peers = [m.walk.at(rank, step, f.world) for step in range(f.world - 1)]
    return [t for peer in peers for t in _deal(f, m, rank, peer, (chunk,), lane, begin)]


def add_move(f: Frame, m: Moves, rank: int, step: int, lane: str, begin: int) -> list[int]:
    """The chunks of one step of a rank's moves."""
    if m.routing is not None:
        return add_hop(f, m, rank, step, lane, begin)
    peer = (rank + 1) % f.world if m.ring else m.walk.at(rank, step, f.world)
    if m.kind == "deal":
        return _deal(f, m, rank, peer, range(f.geometry.chunks(f.launch.chunk)), lane, begin)
    return (_gather if m.kind == "gather" else _scatter)(f, m, rank, step, peer, lane, begin)


def _gather(f: Frame, m: Moves, rank: int, step: int, peer: int, lane: str, begin: int) -> list[int]:
    g, chunk = f.geometry, f.launch.chunk
    shard = Walk.DOWN.at(rank, step, f.world) if m.ring else rank if m.side == "push" else peer
    reader, holder = (rank, peer) if m.side == "pull" else (peer, rank)
    size, width, at = g.chunk(chunk), f.widths[m.buffer], shard * g.stride
    ready = ()
    if m.ready and m.via != "copy_engine":
        ready = (f.book.signal(m.ready, rank, peer, peer, f.call, "staged"),)
    made = []
    for c in range(g.chunks(chunk)):
        first, end = c * size, min((c + 1) * size, f.heights[shard])
        accesses, waits = (), ready
        if first < end:
            to, of = (Region(m.buffer, r, f.slot, at + first, at + end, 0, width) for r in (reader, holder))
            if m.buffer in f.op.stays:  # the shard is where the caller has it
                of = Region(m.source, rank, 0, first, end, 0, width)
            accesses = (Access(Act.COPY, to, of),)
        if m.ring and step:  # forwards what the left neighbour sent
            waits = (*ready, f.chunk(m.arrived, rank, shard, c, (rank - 1) % f.world))
        gives = (f.chunk(m.arrived, reader, shard, c, rank),)
        label = f"carries shard {shard}, chunk {c} from rank {holder} to rank {reader}"
        made.append(
            f.book.task(rank, lane, f.call, "move", m.line, label, accesses, (begin,), waits, gives, pieces(f, m, size))
        )
    return made


def _deal(f: Frame, m: Moves, rank: int, peer: int, chunks: Iterable[int], lane: str, begin: int) -> list[int]:
    """Chunks of the block that this rank has for a peer (push), or that a peer has for it (pull)."""
    g, b = f.geometry, Blocks(f, m.deal)
    giver, taker = (peer, rank) if m.side == "pull" else (rank, peer)
    size, shard = g.chunk(f.launch.chunk), b.shard(giver, taker)
    ready = ()
    if m.ready and m.via != "copy_engine":
        ready = (f.book.signal(m.ready, rank, peer, peer, f.call, "staged"),)
    made = []
    for c in chunks:
        first, end = c * size, min((c + 1) * size, f.heights[shard])
        accesses = carry(f, b, m, giver, taker, first, end) if first < end else ()
        gives = (f.chunk(m.arrived, taker, giver, c, rank),)
        label = f"deals rows of shard {shard}, chunk {c} from rank {giver} to rank {taker}"
        made.append(
            f.book.task(rank, lane, f.call, "move", m.line, label, accesses, (begin,), ready, gives, pieces(f, m, size))
        )
    return made


def _scatter(f: Frame, m: Moves, rank: int, step: int, peer: int, lane: str, begin: int) -> list[int]:
    g, chunk = f.geometry, f.launch.out_chunk
    owner = Walk.DOWN_OWN.at(rank, step, f.world) if m.ring else peer
    group = owner if m.ring else rank
    size, width = g.chunk(chunk), f.widths[m.buffer]
    made = []
    for c in range(g.chunks(chunk)):
        first, end = c * size, min((c + 1) * size, f.heights[owner])
        accesses: tuple[Access, ...] = ()
        if first < end:
            rows = group * g.stride + first, group * g.stride + end
            of = Region(m.source, rank, 0, owner * g.stride + first, owner * g.stride + end, 0, width)
            to = Region(m.buffer, peer, f.slot, *rows, 0, width)
            accesses = (Access(Act.COPY, to, of),)
            if m.ring and step:  # adds what the left neighbour sent
                accesses += (Access(Act.ADD, to, Region(m.buffer, rank, f.slot, *rows, 0, width)),)
        waits = (f.chunk(m.done, rank, owner, c, rank),)
        if m.ring and step:
            waits += (f.chunk(m.arrived, rank, owner, c, (rank - 1) % f.world),)
        gives = (f.chunk(m.arrived, peer, group, c, rank),)
        label = f"carries partial sums of shard {owner}, chunk {c} to rank {peer}"
        made.append(
            f.book.task(rank, lane, f.call, "move", m.line, label, accesses, (begin,), waits, gives, pieces(f, m, size))
        )
    return made
