"""Schedule -> plan: every task of every rank for one world size and one sequence of calls.

Follows the schedule's own rules (`schedule`), not the text of the templates: what the emitted code does is compared
with this plan by the simulator's conformance check.

    unroll.py            the order of a call: launches and their lanes, joins, closing barrier, results
    unroll_moves.py      staging, gathers and scatters between ranks
    unroll_hops.py       the same along the route of a plan
    unroll_tiles.py      tiles: chunks that they wait for and signal
    unroll_rounds.py     tiles that wait for gathered rows in their loop, shard by shard
    unroll_ahead.py      products whose right operand is gathered while they run
    unroll_library.py    products that the library computes, a call for each chunk
    unroll_kernels.py    programs of users' kernels: the same of row blocks that may straddle shards
    unroll_accesses.py   tiles: regions that they read and write
    unroll_deal.py   all_to_all: the same for its staging, moves and tiles
    unroll_given.py      parameters that copies and tiles read where the caller has them
    unroll_frame.py      what the tasks of one launch in one call share
    unroll_contents.py   names of values and their addends
    unroll_exchange.py   small all-reduces, which are one launch of their own kind
    unroll_book.py       tasks, signals and lanes get their indices
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from chunkdsl.ir.meshes import grid_of, inner_of
from chunkdsl.ir.types import evaluate
from chunkdsl.plan.body import columns_of, stagings, written_by
from chunkdsl.plan.geometry import Geometry, local_size, nominal_size
from chunkdsl.plan.plan import Access, Act, Buffer, Plan, Region
from chunkdsl.plan.schedule import Launch, OpSchedule, Schedule
from chunkdsl.plan.unroll_ahead import add_ahead
from chunkdsl.plan.unroll_book import Book
from chunkdsl.plan.unroll_contents import Contents
from chunkdsl.plan.unroll_exchange import unroll_exchange
from chunkdsl.plan.unroll_frame import Frame
from chunkdsl.plan.unroll_given import given, given_buffers
from chunkdsl.plan.unroll_kernels import add_programs
from chunkdsl.plan.unroll_library import add_calls
from chunkdsl.plan.unroll_moves import add_chunk, add_copies, add_move, add_moves, add_staging
from chunkdsl.plan.unroll_rounds import add_rounds, carrier_of
from chunkdsl.plan.unroll_tiles import add_tiles

Dims = Mapping[str, int]


def unroll(
    schedule: Schedule, op: OpSchedule, world: int, calls: Sequence[Dims], bounds: Dims | None = None
) -> Plan:
    """Plan of `op` for consecutive fused calls with these bindings of run-time dims. `bounds` (default: the largest of
    each among the calls) sizes buffers and flag words, as construction does.

    On a mesh of two axes `world` counts the ranks of one subgroup, those that the op communicates with, and `calls` and
    `bounds` also bind the axes (ir/meshes): other subgroups do the same on other rows, and share nothing with it."""
    if bounds is None:
        bounds = {k: max(c[k] for c in calls) for k in calls[0]} if calls and calls[0] else {}
    if op.exchange:
        return unroll_exchange(op, world, calls, bounds, schedule.path)
    book, contents = Book(op, world, bounds), Contents(op, world)
    for call, dims in enumerate(calls):
        for rank in range(world):
            book.main(rank, call, "start", op.line, "call begins", accesses=given(op, world, rank, dims))
        ahead: list[Ends] = []  # of launches that run while the next one may start
        for n in (n for n in op.launches if not n.within):
            if not n.beside:
                _end_launches(ahead, book, call)
            behind = "" if not n.beside else ahead[-1].launch
            ahead.append(_add_launch(Frame(op, world, n, call, dims, book, contents), behind))
        _end_launches(ahead, book, call)
        for rank in range(world):
            _add_end(op, world, rank, call, dims, book, contents)
    return Plan(
        op=op.name,
        world=world,
        calls=tuple(tuple(sorted(c.items())) for c in calls),
        buffers=tuple(_buffers(op, world, len(calls), bounds)),
        lanes=tuple(book.lanes.values()),
        signals=tuple(book.signals),
        tasks=tuple(book.tasks),
        spec=schedule.path,
    )


@dataclass
class Ends:
    """What a launch has made on each rank: it ends once all of that is done."""

    launch: str
    line: int
    made: list[list[int]]


def _end_launches(ahead: list[Ends], book: Book, call: int) -> None:
    for ends in ahead:
        for rank, made in enumerate(ends.made):
            book.main(rank, call, "end", ends.line, f"{ends.launch} ends", after=tuple(made))
    ahead.clear()


def _add_launch(f: Frame, behind: str) -> Ends:
    """All tasks of a launch but its end. `behind`: the launch that it may start beside, "" for none."""
    n, world, book = f.launch, f.world, f.book
    ends = Ends(n.name, n.line, [])
    carrier = carrier_of(f)
    for s in stagings(n):
        for rank in range(world):
            add_staging(carrier, rank, s)
    tiles = _open_lanes(f, behind)
    carried = [m for m in n.moves if m.via != "copy_engine" and m.programs]
    mixed = next((m for m in n.moves if m.via != "copy_engine" and not m.programs), None)
    for rank in range(world):
        begin = book.main(rank, f.call, "start", n.line, f"{n.name} begins")
        made: list[int] = []
        for m in n.moves:
            if m.via == "copy_engine" and not m.leaving:
                add_copies(carrier, m, rank, begin)
        for m in carried:
            made += add_moves(carrier if m.kind == "gather" else f, m, rank, m.name, begin)
        by_chunk = mixed is not None and mixed.kind == "deal" and n.space == "own"
        for c in range(f.geometry.chunks(n.chunk) if by_chunk else 0):
            made += add_chunk(f, mixed, rank, c, tiles, begin)
            made += add_tiles(f, rank, 0, tiles, begin, c)
        for band in f.geometry.bands(n) if n.interleaved else ():
            for step in range(world):
                made += add_tiles(f, rank, step, tiles, begin, band=band)
        for step in range(0 if by_chunk or n.interleaved else world if n.by_shards else 1):
            if mixed and not mixed.leaving and step < world - 1:
                made += add_move(f, mixed, rank, step, tiles, begin)
            add = add_ahead if n.ahead else add_programs if n.body else add_rounds if n.rounds else add_tiles
            add = add_calls if n.library else add
            made += add(f, rank, step, tiles, begin)
            if mixed and mixed.leaving and step > 0:
                made += add_move(f, mixed, rank, step - 1, tiles, begin)
        ends.made.append(made)
    return ends


def _open_lanes(f: Frame, behind: str) -> str:
    """Lanes of a launch in the order in which they get programs: gathers, tiles, scatters. The name of the tiles'."""
    n, tiles = f.launch, f"{f.launch.name} tiles"
    carried = [m for m in n.moves if m.via != "copy_engine" and m.programs]
    for m in carried:
        if not m.leaving:
            f.book.open(m.name, False, n.name, m.programs)
    f.book.open(tiles, n.library, n.name, behind=behind)
    for m in carried:
        f.book.open(m.name, False, n.name, m.programs)
    return tiles


def _add_end(op: OpSchedule, world: int, rank: int, call: int, dims: Dims, book: Book, contents: Contents) -> None:
    joins = tuple(book.joins.pop(rank, ()))
    if joins:
        book.main(rank, call, "end", op.line, "copy lanes join", after=joins)
    if op.closing:
        word, label = f"{op.name}_closed", "closing barrier"
        said = tuple([book.signal(word, p, rank, rank, call, label) for p in range(world)])
        book.main(rank, call, "barrier", op.line, "tells all that it has finished reading", signals=said)
        heard = tuple([book.signal(word, rank, p, p, call, label) for p in range(world)])
        book.main(rank, call, "barrier", op.line, "waits until all have finished reading", waits=heard)
    needs = tuple(_results(op, world, rank, call, dims, contents))
    book.main(rank, call, "end", op.line, "call ends", accesses=needs)


def _results(op: OpSchedule, world: int, rank: int, call: int, dims: Dims, contents: Contents) -> Iterator[Access]:
    """What must be in the results when the call ends."""
    kept = {b.name for b in op.buffers}
    for n in op.launches:
        for name in written_by(n) if n.destination.kind == "local" else ():
            what, mask = contents.of(n, name)
            for region, origin in _result(op, n, name, world, rank, call, dims) if name not in kept else ():
                yield Access(Act.NEED, region, None, what, mask, (origin, 0))
    written = {name for n in op.launches for name in written_by(n)}
    for name in (name for r in op.results for name in r.written):
        if name not in written:  # nothing makes it: coverage says so
            yield Access(Act.NEED, Region(name, rank, call, 0, 1, 0, 1), None, name)


def _result(
    op: OpSchedule, n: Launch, name: str, world: int, rank: int, call: int, dims: Dims
) -> Iterator[tuple[Region, int]]:
    """The whole of a result on one rank, in regions with the rows of the tensor that they begin with."""
    declared = next((r.shape[0].layout for r in op.results if r.name == name and r.shape), n.layout)
    made = n.body.made_rows if n.body else n.rows
    g = Geometry.of(made, False, op.pad, dims, world, inner_of(op.over, dims), declared)
    cols = local_size(columns_of(n, name), dims, world, rank, op.over)
    runs = g.runs(rank, 0, g.height(rank)) if n.destination.layout == "own" else ((0, 0, g.rows),)
    for at, origin, rows in runs:
        region = Region(name, rank, call, at, at + rows, 0, cols)
        if not region.empty:
            yield region, origin


def _buffers(op: OpSchedule, world: int, calls: int, bounds: Dims) -> Iterator[Buffer]:
    grid = grid_of(world, tuple([bounds[axis] for axis in op.over]))
    for b in op.buffers:
        whole = b.groups not in ("world", "shard", "places")
        g = Geometry.of(b.rows, whole, op.pad, bounds, world, inner_of(op.over, bounds), b.layout)
        rows = evaluate(b.rows, bounds) if b.groups == "whole" and b.kind == "local" else g.stride
        rows *= 1 if b.groups in ("whole", "shard") else b.routing.places(grid) if b.routing else world
        yield Buffer(b.name, b.kind, b.dtype, max(1, rows), max(1, nominal_size(b.cols, bounds, world)), b.slots)
    yield from given_buffers(op, world, bounds)
    for r in op.results:
        *rows, cols = (max(1, evaluate(e.size, bounds)) for e in r.shape)  # a vector is a matrix of one row
        for name in r.written:
            yield Buffer(name, "output", r.dtype, rows[-1] if rows else 1, cols, calls)
