"""Tiles of a product over rows that takes its gathered operand as it arrives: they walk its shards in their loop and
wait for the chunks of each before they read it.

All tiles of a launch do the same, so its tasks stand for all of them: a round for each shard, then the result.
"""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.plan.unroll_accesses import row_reads, tile_accesses
from chunkdsl.plan.unroll_frame import Frame


def carrier_of(f: Frame) -> Frame:
    """What staging and copies of the launch's gather go by: its rows and not those of the launch's result."""
    if not f.launch.other_rows:
        return f
    rows = f.launch.gathered
    gather = replace(f.launch, rows=rows.size, layout=rows.layout, space="all", over=None, ahead=None)
    return Frame(f.op, f.world, gather, f.call, f.dims, f.book, f.contents)


def add_rounds(f: Frame, rank: int, step: int, lane: str, begin: int) -> list[int]:
    """Tasks of all tiles of a rank."""
    n, g = f.launch, f.geometry_of(f.launch.over.rows)

    tiles = -(-f.geometry.shard // n.tiling.bm) * max(1, -(-f.cols[rank] // n.tiling.bn))

    def task(label: str, accesses, waits=()) -> int:
        said = f"computes {label} in {n.name}", tuple(accesses), (begin,), tuple(waits), (), tiles
        return f.book.task(rank, lane, f.call, "tile", n.line, *said)

    # A block of rows may reach into the next shard's, which count for nothing; of the local operand they are here.
    made = [task(f"with shard {rank}", row_reads(f, rank, rank, here=True))]
    for k in range(1, f.world):
        owner = n.walk.at(rank, k, f.world)
        giver = rank if f.gather.side == "pull" else owner
        words = [f.chunk(n.chunk_flags, rank, owner, c, giver) for c in range(-(-g.height(owner) // g.chunk(n.chunk)))]
        made += [task(f"with shard {owner}", row_reads(f, rank, owner), words)] if words else []
    at = rank if n.space == "own" else 0
    for first, end, _, _ in f.blocks:
        live = min(end, f.heights[at])
        if first < live:
            made.append(task(f"rows {first}..{end}", tile_accesses(f, rank, at, at, first, live)))
    return made
