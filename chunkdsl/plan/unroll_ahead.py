"""Tiles of a product whose right operand is gathered while they run (plan/ahead).

Where its rows are the result's columns, tiles go through the shards of columns, one after the other, and wait for the
chunks of their own columns. Where the product contracts them, all tiles walk the shards in their loop and wait for
each; they do the same, so that the tasks of a launch stand for all of them. What an earlier launch of the call has
waited for is read in the same way, without waits.
"""

from __future__ import annotations

from collections.abc import Iterator

from chunkdsl.plan.geometry import Geometry
from chunkdsl.plan.plan import Access, Act, Region
from chunkdsl.plan.unroll_accesses import operand_reads, tile_accesses
from chunkdsl.plan.unroll_frame import Frame


def add_ahead(f: Frame, rank: int, step: int, lane: str, begin: int) -> list[int]:
    """Tasks of the tiles of a rank: of those whose columns are the shard that comes at this step, or of all."""
    add = _column_tiles if f.launch.column_shards else _rounds
    return add(f, rank, step, lane, begin)


def _column_tiles(f: Frame, rank: int, step: int, lane: str, begin: int) -> list[int]:
    n, g, made = f.launch, f.geometry_of(f.launch.ahead.rows), []
    shard, tall = n.walk.at(rank, step, f.world), -(-f.geometry.shard // n.tiling.bm)
    at = rank if n.space == "own" else 0
    height, reads = f.heights[at], operand_reads(f, rank, at, 0, f.heights[at])
    for first, end, chunks in _runs(g, n):
        live, accesses = min(end, g.height(shard)), ()
        if first < live and height:
            accesses = (*reads, *_right_reads(f, rank, shard, first, live), *_writes(f, rank, at, shard, first, live))
        count = tall * -(-(end - first) // n.tiling.bn)
        label = f"computes columns {first}..{end} of shard {shard} in {n.name}"
        waits = tuple([w for c in chunks for w in _words(f, rank, shard, c)])
        made.append(f.book.task(rank, lane, f.call, "tile", n.line, label, accesses, (begin,), waits, (), count))
    return made


def _runs(g: Geometry, n) -> Iterator[tuple[int, int, range]]:
    """Runs of column blocks of a shard that wait for the same chunks: (first column, end, chunks)."""
    run = None
    for first in range(0, g.shard, n.tiling.bn):
        end = min(first + n.tiling.bn, g.shard)
        chunks = g.covering(first, end - 1, n.chunk) if n.chunk_flags else range(0)
        if run and run[2] != chunks:
            yield run
            run = None
        run = (run[0] if run else first, end, chunks)
    yield run


def _rounds(f: Frame, rank: int, step: int, lane: str, begin: int) -> list[int]:
    n, g = f.launch, f.geometry_of(f.launch.ahead.rows)
    tiles = -(-f.geometry.shard // n.tiling.bm) * max(1, -(-f.cols[rank] // n.tiling.bn))
    at, made = rank if n.space == "own" else 0, []

    def task(label: str, accesses, waits=()) -> None:
        said = f"computes {label} in {n.name}", tuple(accesses), (begin,), tuple(waits), (), tiles
        made.append(f.book.task(rank, lane, f.call, "tile", n.line, *said))

    here = operand_reads(f, rank, at, 0, f.heights[at])
    for k in range(f.world):
        owner = n.walk.at(rank, k, f.world)
        height = g.height(owner)
        chunks = range(-(-height // g.chunk(n.chunk))) if n.chunk_flags else ()
        words = [w for c in chunks for w in _words(f, rank, owner, c)]
        reads = [*here, *_right_reads(f, rank, owner, 0, height)] if f.heights[at] else []
        if reads or words:
            task(f"with shard {owner}", reads, words)
    for first, end, _, _ in f.blocks:
        live = min(end, f.heights[at])
        if first < live:
            task(f"rows {first}..{end}", tile_accesses(f, rank, at, at, first, live))
    return made


def _words(f: Frame, rank: int, shard: int, chunk: int) -> Iterator[int]:
    """Signals that chunk `chunk` of a shard is here, of each matrix that arrives. The own shard is staged before."""
    for flags in (p.b.arrived for p in f.launch.products if p.b.arrived and shard != rank):
        move = next(m for n in f.op.launches for m in n.moves if m.arrived == flags)
        giver = rank if move.side == "pull" else (rank - 1) % f.world if move.ring else shard
        yield f.chunk(flags, rank, shard, chunk, giver)


def _right_reads(f: Frame, rank: int, shard: int, first: int, live: int) -> list[Access]:
    """Rows first..live of a shard of each right operand."""
    g, found = f.geometry_of(f.launch.ahead.rows), []
    at = shard * g.stride
    for b in (p.b for p in f.launch.products if first < live):
        what, mask = f.contents.gathered(b.source)
        region = Region(b.source, rank, f.slot, at + first, at + live, 0, f.widths[b.source])
        found.append(Access(Act.NEED, region, None, what, mask, (shard * g.shard + first, 0)))
    return found


def _writes(f: Frame, rank: int, at: int, shard: int, first: int, live: int) -> Iterator[Access]:
    """Columns first..live of a shard of the result, in all rows of this rank."""
    n, d = f.launch, f.launch.destination
    left = shard * f.geometry_of(n.ahead.rows).shard
    what, mask = f.contents.of(n)
    for row, origin, rows in f.geometry.runs(at, 0, f.heights[at]):
        slot, top = 0 if d.buffer in f.kinds else f.call, row if d.layout == "own" else origin
        region = Region(d.buffer, rank, slot, top, top + rows, left + first, left + live)
        yield Access(Act.PUT, region, None, what, mask, (origin, left + first))
