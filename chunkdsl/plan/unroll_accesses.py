"""Regions that the tiles of a launch read and write: rows first..live of shard `owner`, all columns.

Parameters of the op are not in the plan: nobody writes them during a call. But for those of `unroll_given`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from chunkdsl.ir.layouts import Run
from chunkdsl.plan.geometry import Geometry
from chunkdsl.plan.plan import Access, Act, Region
from chunkdsl.plan.storage import OWN
from chunkdsl.plan.unroll_deal import arrived, dealt
from chunkdsl.plan.unroll_frame import Frame
from chunkdsl.plan.unroll_given import given_reads

Box = Callable[[str, int, int, int], Region]  # (buffer, rank, slot, first row)


def tile_accesses(f: Frame, rank: int, owner: int, taker: int, first: int, live: int) -> tuple[Access, ...]:
    """`taker`: who gets what the tiles make, where they deal it out."""
    n, g = f.launch, f.geometry
    found = _over_rows(f, rank) + operand_reads(f, rank, owner, first, live)
    cols = f.cols[rank]
    if f.total and owner == rank:
        return tuple(found) + tile_accesses(f.total, rank, owner, taker, first, live)
    if n.destination.deal:
        found += dealt(f, rank, taker, first, live)
    elif cols:

        writes = _sum_writes if n.sums else _local_writes if n.destination.kind == "local" else _partial_writes
        for row, origin, rows in _by_part(f, g.runs(owner, first, live)):

            def box(buffer: str, on: int, slot: int, row: int, rows: int = rows) -> Region:
                return Region(buffer, on, slot, row, row + rows, 0, cols)

            found += writes(f, rank, owner, row, origin, box)
    return tuple(found)


def operand_reads(f: Frame, rank: int, owner: int, first: int, live: int) -> list[Access]:
    """Rows first..live of shard `owner` of the left operand and of what the pointwise rest reads element by element."""
    n, g, found, stays = f.launch, f.geometry, [], f.op.stays
    for o in (n.a, *n.operands) if n.a else n.operands:
        kind = f.kinds.get(o.source)
        if kind is None or o.role not in ("a", "full"):
            continue
        if o.source in stays and owner == rank:
            found += given_reads(f, stays[o.source], o.source, rank, first, live)
        elif o.source in f.deals:
            found += arrived(f, o.source, f.deals[o.source], rank, owner, first, live)
        elif kind == "symmetric":
            at = owner * g.stride
            what, mask = f.contents.gathered(o.source)
            for row, origin, rows in g.runs(owner, first, live):
                region = Region(o.source, rank, f.slot, at + row, at + row + rows, 0, f.widths[o.source])
                found.append(Access(Act.NEED, region, None, what, mask, (origin, 0)))
        elif o.layout == "own":
            found += f.reads_local(o.source, rank, first, live)
        else:
            for _, low, rows in g.runs(owner, first, live):
                found += f.reads_local(o.source, rank, low, low + rows)
    return found


def _over_rows(f: Frame, rank: int) -> list[Access]:
    """All rows of the operands of a product or sum over rows."""
    n, found = f.launch, []
    if n.over is None or n.chunk_flags:  # those that wait in their loop: unroll_rounds
        return found
    return row_reads(f, rank)


def row_reads(f: Frame, rank: int, shard: int | None = None, here: bool = False) -> list[Access]:
    """All rows of both operands, or those of one shard; `here`: all the same of one that lies on this rank."""
    n, found = f.launch, []
    owners = range(f.world) if shard is None else (shard,)
    g = Geometry.of(n.over.rows, False, f.op.pad, f.dims, f.world, f.inner, n.depth.layout)
    for o in (n.fold.operand,) if n.fold else (n.a, n.products[0].b):
        kind = f.kinds.get(o.source)
        if kind == "symmetric":
            what, mask = f.contents.gathered(o.source)
            for owner in owners:
                at = owner * g.stride
                for row, origin, rows in g.runs(owner, 0, g.height(owner)):
                    region = Region(o.source, rank, f.slot, at + row, at + row + rows, 0, f.widths[o.source])
                    found.append(Access(Act.NEED, region, None, what, mask, (origin, 0)))
        elif kind is not None and shard is not None and not here:
            for _, low, rows in g.runs(shard, 0, g.height(shard)):
                found += f.reads_local(o.source, rank, low, low + rows)
        elif kind is not None:
            found += f.reads_local(o.source, rank, 0, g.height(rank) if n.over.kept == "own" else g.rows)
    return found


# Of the rows that a tile writes each call below makes one run, contiguous in the shard (from `first`) and in the tensor
# (from `origin`).


def _by_part(f: Frame, runs: Iterable[Run]) -> Iterator[Run]:
    """Runs that lie in one part of a shard each, where what a sum is made of differs from part to part."""
    rows_of_part = _part_rows(f)
    for row, origin, rows in runs:
        end = row + rows
        while row < end:
            stop = min(end, (row // rows_of_part + 1) * rows_of_part)
            yield row, origin, stop - row
            row, origin = stop, origin + stop - row


def _part_rows(f: Frame) -> int:
    """Rows of a part of a shard, of what a launch adds up along a route; else those of a shard."""
    n, shard = f.launch, f.geometry.shard
    parts = n.sums.routing.parts(f.grid) if n.sums and n.sums.routing else 1
    return f.geometry.chunk(n.chunk) * (n.chunk.count // parts) if parts > 1 else max(1, shard)


def _local(f: Frame, rank: int, first: int, origin: int, box: Box) -> Region:
    """A buffer of the instance, or a result, which is new for every call."""
    d = f.launch.destination
    return box(d.buffer, rank, 0 if d.buffer in f.kinds else f.call, first if d.layout == "own" else origin)


def _local_writes(f: Frame, rank: int, owner: int, first: int, origin: int, box: Box) -> list[Access]:
    n, g = f.launch, f.geometry
    region, (what, mask) = _local(f, rank, first, origin, box), f.contents.of(n)
    moved = next((o for o in n.operands if o.arrived and not n.products), None)
    if moved is not None and what != n.name:  # copied out of a broadcast buffer
        return [Access(Act.COPY, region, box(moved.source, rank, f.slot, owner * g.stride + first))]
    return [Access(Act.PUT, region, None, what, mask, (origin, 0))]


def _partial_writes(f: Frame, rank: int, owner: int, first: int, origin: int, box: Box) -> list[Access]:
    """This rank's addend of a sum, where those who add will read it or the moves fetch it."""
    d, g = f.launch.destination, f.geometry
    row = owner * g.stride + first
    if d.kind == "push":
        readers = range(f.world) if d.everyone else (owner,)
        regions = [box(d.buffer, p, f.slot, rank * g.stride + first) for p in readers]
    elif d.kind == "publish":
        regions = [box(d.buffer, rank, f.slot, first if d.everyone else row)]
    elif d.stage and owner == rank:
        regions = [box(d.stage, rank, f.slot, row)]
    else:
        regions = [box(d.buffer, rank, f.slot if f.kinds[d.buffer] == "symmetric" else 0, row)]
    return [Access(Act.PUT, r, None, f.sum_name, 1 << rank, (origin, 0)) for r in regions]


def _sum_writes(f: Frame, rank: int, owner: int, first: int, origin: int, box: Box) -> list[Access]:
    """Copies the first addend and adds the others in place; a broadcast then copies the total to every peer. Within the
    tiles of the product the first addend is their own, which has been nowhere before."""
    n, g, stage = f.launch, f.geometry, f.launch.sums.parts.source
    row = owner * g.stride + first
    if n.sums.ring or n.sums.routing:
        partial = next(m.source for x in f.op.launches for m in x.moves if m.buffer == stage)
    if n.sums.routing:
        shard = owner if n.space == "all" else rank
        base, low, count, _ = n.sums.routing.storage(f.grid).final(rank, shard, first // _part_rows(f))
        places = [q for q in (base, *range(low, low + count)) if q != OWN]
        parts = [box(partial, rank, f.slot if f.kinds[partial] == "symmetric" else 0, row)] if base == OWN else []
        parts += [box(stage, rank, f.slot, q * g.stride + first) for q in places]
    elif n.sums.ring:
        parts = [box(partial, rank, 0, row)] + ([box(stage, rank, f.slot, row)] if f.world > 1 else [])
    elif n.sums.side == "pull":
        parts = [box(stage, q, f.slot, row if n.space == "own" else first) for q in range(f.world)]
    else:
        parts = [box(stage, rank, f.slot, q * g.stride + first) for q in range(f.world)]
    d = n.destination
    to = _local(f, rank, first, origin, box) if d.kind == "local" else box(d.buffer, rank, f.slot, row)
    first_addend = Access(Act.COPY, to, parts[0])
    if n.within:
        first_addend = Access(Act.PUT, to, None, f.contents.of(n)[0], 1 << rank, (origin, 0))
        parts.insert(0, parts.pop(rank))
    made = [first_addend] + [Access(Act.ADD, to, p) for p in parts[1:]]
    if d.kind == "broadcast":
        made += [Access(Act.COPY, box(d.buffer, p, f.slot, row), to) for p in range(f.world) if p != rank]
    return made
