"""Tiles of a launch: one task for each run of row blocks of a shard that wait for and signal the same chunks."""

from __future__ import annotations

from collections.abc import Iterator

from chunkdsl.ir.meshes import World, ranks_of
from chunkdsl.plan.geometry import nominal_size
from chunkdsl.plan.schedule import Launch
from chunkdsl.plan.unroll_accesses import tile_accesses
from chunkdsl.plan.unroll_frame import Frame


def add_tiles(
    f: Frame, rank: int, step: int, lane: str, begin: int, chunk: int | None = None, band: range | None = None
) -> list[int]:
    """The tiles of the shard that a rank comes to at this step: its own one, or the whole row dim, if there is but one
    step. `chunk`: only those for which it is the last that they wait for; `band`: only those of these rows."""
    n = f.launch
    owner = visited(n, rank, step, f.grid)
    taker = ordered(n, rank, step, f.grid) if n.space == "columns" else owner
    width = nominal_size(n.column_shards, f.dims, f.world) if n.column_shards else f.cols[rank]
    columns = max(1, -(-width // n.tiling.bn))
    kind, verb = ("reduce", "adds") if n.sums else ("tile", "computes")
    made = []
    for first, end, awaited, signalled in f.blocks:
        if chunk is not None and awaited[-1] != chunk:
            continue
        first, end = (first, end) if band is None else (max(first, band.start), min(end, band.stop))
        if first >= end:
            continue
        live = min(end, f.heights[owner])
        accesses = tile_accesses(f, rank, owner, taker, first, live) if first < live else ()
        awaited = () if n.library and first >= live else awaited  # no rows, no call
        ends = f
        if f.total and owner == rank:  # it adds up what the others sent for these rows, and signals the sum
            ends, awaited = f.total, signalled
        waits = tuple([f.chunk(ends.launch.chunk_flags, rank, *word) for word in _waits(ends, rank, owner, awaited)])
        signals = tuple([s for c in signalled for s in _signals(ends, rank, owner, taker, c)])
        count = 1 if n.library else -(-(end - first) // n.tiling.bm) * columns
        label = f"{verb} rows {first}..{end} of shard {owner} in {n.name}"
        made.append(f.book.task(rank, lane, f.call, kind, n.line, label, accesses, (begin,), waits, signals, count))
    return made


def visited(n: Launch, rank: int, step: int, grid: World) -> int:
    """The shard whose tiles come at this step."""
    return ordered(n, rank, step, grid) if n.space == "all" else 0 if n.space == "whole" else rank


def ordered(n: Launch, rank: int, step: int, grid: World) -> int:
    """The shard, or the rank that columns are for, of a launch that goes through all of them."""
    if n.visits is not None:
        return n.visits.visits(grid, n.leaving)[rank][step]
    return n.walk.at(rank, step, ranks_of(grid))


def _waits(f: Frame, rank: int, owner: int, awaited: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """(shard, chunk, rank that signals it) of what a tile waits for on its own rank."""
    n, left = f.launch, (rank - 1) % f.world
    if not n.chunk_flags:
        return []
    if n.sums and (route := n.sums.routing) is not None:
        found = route.trace(f.grid).arrived
        shard = owner if n.space == "all" else rank
        held = [(c, found.get((rank, shard, route.part_of(n.chunk, c, f.grid)))) for c in awaited]
        flows = [(a, c) for c, h in held if h for a in ((h.base,) if h.base else ()) + h.addends]
        return [(route.storage(f.grid).place(a), c, a.issuer) for a, c in flows]
    if n.sums and not n.sums.ring:
        return [(q, c, q) for q in range(f.world) if q != rank or not n.sums.own_here for c in awaited]
    if n.sums:
        return [(rank, c, left) for c in awaited] if f.world > 1 else []
    if n.from_every:  # the own block of a staged deal was there before the launch
        pull, staged = f.gather is not None and f.gather.side == "pull", f.gather is not None
        sources = [q for q in range(f.world) if not (staged and q == rank)]
        if staged and (route := f.gather.routing) is not None:
            parts = [(c, route.part_of(n.chunk, c, f.grid)) for c in awaited]
            return [(q, c, route.issuer(rank, q, part, f.grid)) for q in sources for c, part in parts]
        return [(q, c, rank if pull else _sender(f, rank, q, c)) for q in sources for c in awaited]
    if f.gather is None:  # made by the owner's tiles
        return [(owner, c, _sender(f, rank, owner, c)) for c in awaited]
    if owner == rank:  # staged before the launch
        return []
    if (route := f.gather.routing) is not None:
        parts = [(c, route.part_of(n.chunk, c, f.grid)) for c in awaited]
        return [(owner, c, route.issuer(rank, owner, part, f.grid)) for c, part in parts]
    giver = rank if f.gather.side == "pull" else left if f.gather.ring else owner
    return [(owner, c, giver) for c in awaited]


def _sender(f: Frame, rank: int, maker: int, c: int) -> int:
    """Who brings what the tiles of rank `maker` have made for this rank: these, or the moves that they hand it to."""
    if f.handed is None or maker == rank:
        return maker
    route = f.handed.routing
    return route.issuer(rank, maker, route.part_of(f.launch.chunk, c, f.grid), f.grid)


def _signals(f: Frame, rank: int, owner: int, taker: int, c: int) -> Iterator[int]:
    """Words that are set once all tiles of chunk `c` are done."""
    d = f.launch.destination
    if f.launch.library:
        return  # a copy behind it does
    if d.kind == "hand_over":
        if d.stage and taker == rank:
            yield f.chunk(d.arrived, rank, rank, c, rank)
        else:
            yield f.chunk(d.done, rank, taker, c, rank)
    elif d.kind == "deal":
        yield f.chunk(d.arrived, taker, rank, c, rank)
    elif d.kind in ("push", "publish", "broadcast"):
        for reader in range(f.world) if d.everyone or d.kind == "broadcast" else (owner,):
            yield f.chunk(d.arrived, reader, rank, c, rank)
