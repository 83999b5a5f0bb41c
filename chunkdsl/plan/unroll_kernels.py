"""Programs of a user's kernel: tasks for runs of row blocks that wait for and signal the same chunks.

Row blocks are counted over the whole row dim: a block may straddle shards, and comes with the shard in which it begins.
Blocks beyond the last row wait and signal like the others and run nothing. A kernel whose programs are not tied to
rows is one task that waits for everything.
"""

from __future__ import annotations

from collections.abc import Iterator

from chunkdsl.plan.body import Turn
from chunkdsl.plan.plan import Access, Act, Region
from chunkdsl.plan.unroll_accesses import tile_accesses
from chunkdsl.plan.unroll_frame import Frame
from chunkdsl.plan.unroll_tiles import visited

Words = tuple[tuple[int, int], ...]  # (shard, chunk)


def add_programs(f: Frame, rank: int, step: int, lane: str, begin: int) -> list[int]:
    """The programs whose row blocks begin in the shard that a rank comes to at this step."""
    n, body = f.launch, f.launch.body
    everywhere = n.space == "all"
    if not body.block:
        if everywhere and step < f.world - 1:
            return []
        if body.turns:
            return list(_turns(f, rank, lane, begin))
        waits = tuple(_words(f, 0, f.geometry.shard * f.world, n.chunk)) if n.chunk_flags else ()
        accesses = (*_reads(f, rank, [(0, f.geometry.rows)]), *_local_reads(f, rank), *_whole_result(f, rank))
        label = f"runs {body.function}"
        return [_task(f, rank, lane, label, begin, accesses, waits, (), 1)]
    owner = visited(n, rank, step, f.world) if everywhere else 0
    made = []
    for first, end, waits, signals in _runs(f, owner, rank):
        live = min(end, f.geometry.rows if n.space != "own" else f.heights[rank])
        accesses: tuple[Access, ...] = ()
        if first < live:
            accesses = (*_reads(f, rank, _spans(f, first, live)), *_block_accesses(f, rank, first, live))
        label = f"runs {body.function} for rows {first}..{end}"
        made.append(_task(f, rank, lane, label, begin, accesses, waits, signals, -(-(end - first) // body.block)))
    return made


def _turns(f: Frame, rank: int, lane: str, begin: int) -> Iterator[int]:
    """Programs that wait as they go: a task for what they read first, one for the rounds of each chunk in each loop,
    and one for what they store at the end."""
    label = f"runs {f.launch.body.function}"
    yield _task(f, rank, lane, f"{label}: what is here", begin, tuple(_local_reads(f, rank)), (), (), 1)
    for turn in f.launch.body.turns:
        yield from _rounds(f, rank, lane, begin, turn)
    yield _task(f, rank, lane, f"{label}: its result", begin, tuple(_whole_result(f, rank)), (), (), 1)


def _rounds(f: Frame, rank: int, lane: str, begin: int, turn: Turn) -> Iterator[int]:
    """Of one loop. A round belongs to the chunk of its last row, and reads `each` rows."""
    n, g, rows, each = f.launch, f.geometry, f.geometry.rows, turn.each
    label, flags = f"runs {n.body.function}", n.body.arriving_in(turn)
    for shard, c in _words(f, 0, g.shard * f.world, n.chunk):
        low, top = (shard * g.shard + min((c + i) * g.chunk(n.chunk), g.shard) for i in (0, 1))
        first, end = (rows if low >= rows else low // each * each), (rows if top >= rows else top // each * each)
        accesses, waits = (), ((shard, c),)
        if first < end:
            accesses = tuple(_reads(f, rank, [(first, end)], turn.parameters))
            waits = tuple(_words(f, first, max(end, top), n.chunk))
        yield _task(f, rank, lane, f"{label}: rounds up to row {end}", begin, accesses, waits, (), 1, flags)


def _task(
    f: Frame, rank: int, lane: str, label: str, begin: int, accesses, waits: Words, signals: Words, count: int,
    arriving: tuple[str, ...] | None = None,
) -> int:  # fmt: skip
    """`arriving`: the flags of which it awaits `waits`, None for those of all gathered arguments."""
    n, label = f.launch, f"{label} in {f.launch.name}"
    others = [(s, c) for s, c in waits if s != rank]
    heard_of = n.body.arriving if arriving is None else arriving
    heard = tuple([f.chunk(w, rank, s, c, _giver(f, w, rank, s)) for w in heard_of for s, c in others])
    said = tuple([w for s, c in signals for w in _signals(f, rank, s, c)])
    return f.book.task(rank, lane, f.call, "tile", n.line, label, accesses, (begin,), heard, said, count)


def _giver(f: Frame, flags: str, rank: int, shard: int) -> int:
    moves = next(m for n in f.op.launches for m in n.moves if m.arrived == flags and not m.leaving)
    return rank if moves.side == "pull" else (rank - 1) % f.world if moves.ring else shard


def _signals(f: Frame, rank: int, owner: int, c: int) -> Iterator[int]:
    d = f.launch.destination
    if d.kind == "hand_over":
        yield f.chunk(d.done, rank, owner, c, rank)
    else:
        for reader in range(f.world) if d.everyone else (owner,):
            yield f.chunk(d.arrived, reader, rank, c, rank)


def _runs(f: Frame, owner: int, rank: int) -> Iterator[tuple[int, int, Words, Words]]:
    """(first row, last row + 1, words awaited, words signalled) of the row blocks that begin in a shard."""
    n, g, size = f.launch, f.geometry, f.launch.body.block
    everywhere = n.space == "all"
    low, top = (owner * g.shard, f.world * g.shard) if everywhere else (0, g.shard)
    run: list | None = None
    for block in range(-(-low // size), -(-(low + g.shard) // size)):
        first, end = block * size, min((block + 1) * size, top)
        waits: Words = ()
        if n.chunk_flags:
            waits = tuple(sorted({w for a, b in ((first, end), *_surplus(f, first)) for w in _words(f, a, b, n.chunk)}))
        signals = tuple(_words(f, first, end, n.out_chunk)) if n.out_chunk else ()
        if run and run[2:] == [waits, signals]:
            run[1] = end
            continue
        if run:
            yield tuple(run)
        run = [first, end, waits, signals]
    if run:
        yield tuple(run)


def _words(f: Frame, first: int, end: int, chunk) -> Iterator[tuple[int, int]]:
    """Chunks that hold nominal rows first..end."""
    g = f.geometry
    for shard in range(first // g.shard, (end - 1) // g.shard + 1):
        a, b = max(first - shard * g.shard, 0), min(end - shard * g.shard, g.shard)
        for c in g.covering(a, b - 1, chunk):
            yield shard, c


def _surplus(f: Frame, first: int) -> list[tuple[int, int]]:
    """Rows from the beginning that a block reads in place of those beyond the last one."""
    fetched, size, rows = f.launch.body.fetched, f.launch.body.block, f.geometry.rows
    if fetched is None or fetched.gathered != "wrap" or first + size <= rows:
        return []
    end = min(first + size - rows, rows)
    return [(0, end)] if end > 0 else []


def _spans(f: Frame, first: int, live: int) -> list[tuple[int, int]]:
    if f.launch.body.fetched is not None and f.launch.body.fetched.gathered == "whole":
        return [(0, f.geometry.rows)]
    last = live - (live - 1) % f.launch.body.block - 1  # row with which the last block begins
    return [(first, live), *(_surplus(f, last) if live == f.geometry.rows else ())]


def _reads(f: Frame, rank: int, spans: list[tuple[int, int]], of: tuple[str, ...] = ()) -> Iterator[Access]:
    """The gathered arguments (of these parameters), shard by shard: their rows stand one behind the other. One that
    is read by blocks beside another of which all rows are awaited is said to be read whole: that asks no less of the
    plan."""
    g = f.geometry
    gathered = [t for t in f.launch.body.tensors if (t.parameter in of if of else t.gathered)]
    for source in dict.fromkeys(t.source for t in gathered):
        what, mask = f.contents.gathered(source)
        for first, end in spans:
            for shard in range(f.world):
                a, b = max(first, shard * g.shard), min(end, shard * g.shard + f.heights[shard])
                if a < b:
                    region = Region(source, rank, f.slot, a, b, 0, f.widths[source])
                    yield Access(Act.NEED, region, None, what, mask, (a, 0))


def _local_reads(f: Frame, rank: int) -> Iterator[Access]:
    """Buffers of this rank that earlier launches filled; a program may read all of them."""
    for t in f.launch.body.tensors:
        if not (t.gathered or t.result) and f.kinds.get(t.source) == "local":
            maker = f.contents.maker(t.source)
            own = maker.destination.layout == "own"
            g = f.geometry_of(maker.body.made_rows if maker.body else maker.rows)
            yield from f.reads_local(t.source, rank, 0, g.height(rank) if own else g.rows)


def _block_accesses(f: Frame, rank: int, first: int, live: int) -> Iterator[Access]:
    yield from _local_reads(f, rank)
    if f.launch.space == "all":
        g = f.geometry
        for shard in range(f.world):
            a, b = max(first - shard * g.shard, 0), min(live - shard * g.shard, f.heights[shard])
            if a < b:
                yield from tile_accesses(f, rank, shard, shard, a, b)
                yield from _beside(f, rank, shard, a, b)
    else:
        owner = rank if f.launch.space == "own" else 0
        yield from tile_accesses(f, rank, owner, owner, first, live)
        yield from _beside(f, rank, owner, first, live)


def _beside(f: Frame, rank: int, owner: int, first: int, live: int) -> Iterator[Access]:
    """Rows first..live of a shard of the results behind the first, which stay on this rank."""
    for t in f.launch.body.results[1:]:
        what, mask = f.contents.of(f.launch, t.source)
        for row, origin, rows in f.geometry.runs(owner, first, live):
            at = row if f.launch.destination.layout == "own" else origin
            slot, cols = 0 if t.source in f.kinds else f.call, f.local(t.shape[-1], rank)
            region = Region(t.source, rank, slot, at, at + rows, 0, cols)
            if not region.empty:
                yield Access(Act.PUT, region, None, what, mask, (origin, 0))


def _whole_result(f: Frame, rank: int) -> Iterator[Access]:
    """All of the results, by a kernel that is not tied to rows."""
    d, body = f.launch.destination, f.launch.body
    for t in body.results:
        rows, cols = (f.local(e, rank) for e in (t.shape[0], t.shape[-1]))
        what, mask = f.contents.of(f.launch, t.source)
        start = f.start(t.shape[0], rank) if d.layout == "own" else 0
        region = Region(t.source, rank, 0 if t.source in f.kinds else f.call, 0, rows, 0, cols)
        if not region.empty:
            yield Access(Act.PUT, region, None, what, mask, (start, 0))
