"""The twin of a schedule: the same schedule with small numbers, so that the interpreter can run it in seconds.

Only constants change: sizes, tile, pieces, chunk rows, communication programs. Every shard keeps at least two
chunks, every product two K steps and two column tiles, with ragged edges. Routes, transports, buffers and order are
those of the spec, so the twin's source differs from the shipped one in numbers alone (a test holds that).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace

from chunkdsl.ir.layouts import Cyclic
from chunkdsl.ir.meshes import World, ranks_of
from chunkdsl.ir.policy import ChunkRows, FuseFrom
from chunkdsl.ir.types import DimRange, DimRef, Share, SymSize, dims_in, evaluate
from chunkdsl.lower.facts import ROWWISE
from chunkdsl.plan.ahead import Ahead
from chunkdsl.plan.body import KernelBody
from chunkdsl.plan.exchange import Exchange, Form
from chunkdsl.plan.schedule import Deal, Extent, Launch, Moves, OpSchedule, Schedule, Tiling
from chunkdsl.plan.settled import Gate
from chunkdsl.plan.tile_kernels import settle_kernels

TILE = 16  # rows, columns and depth of the twin's tile
LONG_CHUNK, SHORT_CHUNK = 24, 6  # chunk of one and a half tiles; tile of several chunks
ROWS = 2 * LONG_CHUNK + 8  # of a shard: two chunks and a ragged third
SMALL_ROWS, SMALL_BLOCK, SMALL_WORDS = 9, 64, (96, 256)  # exchanges: two blocks, and payloads of all forms
SMALL_UNIT = 96  # their columns: with fewer, they would need many rows, and thereby programs
TALL, LONG_BLOCK, SHORT_BLOCK = 128, 40, 8  # of a cyclic layout: rows of a tile; blocks of two and a half, half a tile
UNIT = 24  # one and a half tiles: two steps, the second ragged; 16 bytes divide it in every dtype


def shrink(schedule: Schedule, world: World) -> Schedule:
    """The twin for one world size."""
    small = all(op.exchange for op in schedule.ops)
    long_rows = small and any(op.exchange.long_rows for op in schedule.ops)
    sizes = Sizes(schedule, ranks_of(world), (SMALL_UNIT << long_rows) if small else UNIT)
    rows = (1, SMALL_ROWS) if small else (ranks_of(world), ROWS)
    limits = row_limits(schedule)
    ranges = tuple(twin_range(r, *rows, limits.get(DimRef(r.name))) for r in schedule.ranges)
    twins = tuple(twin_op(op, sizes) for op in open_gates(schedule, world).ops)
    return replace(schedule, ranges=ranges, ops=twins)


def open_gates(schedule: Schedule, world: World) -> Schedule:
    """With the gates of this world size, and open where a gate would let no call run fused: what is simulated is the
    fused code."""

    def opened(op: OpSchedule) -> OpSchedule:
        captured, eager = (op.gate.of(captured).at(world) for captured in (True, False))
        if captured.count is None and eager.count is None:
            captured = eager = FuseFrom(0)
        apart = None if eager == captured else Gate(eager, op.gate.fallback)
        return replace(op, gate=Gate(captured, op.gate.fallback, eager=apart))

    return replace(schedule, ops=tuple(map(opened, schedule.ops)))


def twin_range(r: DimRange, world: int, rows: int = ROWS, limit: int | None = None) -> DimRange:
    """Bounds for `rows` in every shard, or for `limit` in all; small steps stay steps."""
    step = 1 if r.step == 1 else 4
    low = min(r.low, step) if r.low else 0
    high = world * rows if limit is None else min(limit, world * rows) // step * step
    return replace(r, low=low, high=max(low, high), step=step)


def bodies(schedule: Schedule) -> Iterator[tuple[KernelBody, SymSize, int]]:
    """Each user's kernel with the rows of its launch and the most of them."""
    highs = {r.name: r.high for r in schedule.ranges}
    for n in (n for op in schedule.ops for n in op.launches if n.body):
        yield n.body, n.rows, evaluate(whole(n.rows), highs)


def row_limits(schedule: Schedule) -> dict[SymSize, int]:
    """Most rows in the twin, where users' kernels go through few blocks of them: not more blocks than the spec allows.
    What is known of a kernel (its order, whether a program takes all rows) holds for so many."""
    limits: dict[SymSize, int] = {}
    for body, rows, most in bodies(schedule):
        if body.block and whole(rows) == rows:
            blocks = -(-most // body.block)
            limits[rows] = min(limits.get(rows, most), blocks * twin_body(body, most).block)
    return limits


class Sizes:
    """Small sizes for the spec's: one for each distinct number, but two for a number that is a sharded size here and a
    whole one there, as one number cannot be ragged on every rank and also as a whole. An all_to_all has its columns in
    both ways: one size for them, sharded or not."""

    def __init__(self, schedule: Schedule, world: int, unit: int = UNIT) -> None:
        self.world = world
        self.kept = {size for body in walk(schedule, KernelBody) for size in tied_sizes(body)}
        self.units: dict[int, int] = {}
        for body, _, most in bodies(schedule):
            for size, unit_of in even_sizes(body, most).items():
                self.units[size] = max(unit_of, self.units.get(size, 1))
        used = {(whole(e.size), cut(e)) for e in walk(schedule, Extent)}
        used = {(size, sharded) for size, sharded in used if isinstance(size, int) and size > 3}
        rows = {whole(n.rows) for op in schedule.ops for n in op.launches}
        rows |= {whole(a.rows) for a in walk(schedule, Ahead)}
        rows = {size for size in rows if isinstance(size, int) and size > 3}
        limits = row_limits(schedule)
        many = {size: (ROWS + TILE * i) * world for i, size in enumerate(sorted(rows))}
        self.rows = {size: min(small, limits.get(size, small)) for size, small in many.items()}
        self.most = {body: most for body, _, most in bodies(schedule)}
        others = enumerate(sorted(u for u in used if u[0] not in rows))
        self.sizes = {u: (unit + TILE * i) * (world if u[1] else 1) for i, u in others}
        deals = [x for x in walk(schedule, Deal) if (x.cols.size, True) in self.sizes]
        onto_columns = {x.cols.size for x in deals if x.onto == "columns"}  # these shards may be operands: 16 bytes
        for size in {x.cols.size for x in deals}:
            small = self.sizes[size, True] - (0 if size in onto_columns else 8)
            self.sizes |= {(size, True): small, (size, False): small}

    def of(self, size: SymSize, sharded: bool) -> SymSize:
        if isinstance(size, Share):
            return replace(size, size=self.of(size.size, True))
        if not isinstance(size, int) or size in self.kept:
            return size
        small = self.rows.get(size) or self.sizes.get((size, sharded), size)
        unit = self.units.get(size, 1) * (self.world if sharded else 1)
        return -(-small // unit) * unit if size in self.units else small


def whole(size: SymSize) -> SymSize:
    return whole(size.size) if isinstance(size, Share) else size


def cut(extent: Extent) -> bool:
    """By any axis of the mesh."""
    return extent.sharded or isinstance(extent.size, Share)


def walk(value, kind: type):
    """Every instance of `kind` inside nested dataclasses and tuples."""
    if isinstance(value, kind):
        yield value
    if is_dataclass(value):
        for f in fields(value):
            yield from walk(getattr(value, f.name), kind)
    elif isinstance(value, tuple):
        for v in value:
            yield from walk(v, kind)


def twin_op(op: OpSchedule, sizes: Sizes) -> OpSchedule:
    small = settle_kernels(rebuild(op, sizes))
    if small.exchange:
        x = small.exchange
        forms = tuple(replace(f, blocks=small_blocks(x, f)) for f in few_words(x, sizes.world))
        return replace(small, exchange=replace(x, forms=forms))
    return replace(small, pad=1 if any(n.body for n in small.launches) else max(n.reach for n in small.launches))


def small_blocks(x: Exchange, form: Form) -> tuple[tuple[int, int], ...]:
    """As many sizes; a block that holds a row, or, of rows that are longer, half of one and more."""
    if not x.rowwise:
        return tuple((SMALL_BLOCK * form.wide << i, 4 << i) for i in range(len(form.blocks)))
    words = x.cols.size * (2 if x.dtype == "f32" else 1) // 2 if isinstance(x.cols.size, int) else SMALL_UNIT
    return ((max(SMALL_BLOCK, 1 << (words - 1).bit_length()) >> x.long_rows, 4),)


def few_words(x: Exchange, world: int) -> tuple[Form, ...]:
    """The forms of a small all-reduce, each for so few words that small payloads take all of them."""
    others, parts = max(1, world - 1), world if x.algorithm == "two_shot" else 1
    return tuple(replace(f, words=SMALL_WORDS[i] // parts * others if f.words else 0) for i, f in enumerate(x.forms))


def rebuild(value, sizes: Sizes, tile_rows: int = 0):
    """The same structure with the numbers replaced."""
    if isinstance(value, Extent):
        return replace(value, size=sizes.of(value.size, value.sharded), layout=rebuild(value.layout, sizes))
    if isinstance(value, Tiling):
        return twin_tiling(value)
    if isinstance(value, ChunkRows):
        return value
    if isinstance(value, Cyclic):
        return replace(value, block=LONG_BLOCK if value.block >= TALL else SHORT_BLOCK)
    if isinstance(value, FuseFrom):
        return value if value.count in (None, 0) else replace(value, count=2)
    if isinstance(value, OpSchedule):
        chunks = chunk_map(value)
        made = {f.name: rebuild(getattr(value, f.name), sizes) for f in fields(value)}
        return replace_chunks(OpSchedule(**made), chunks)
    if isinstance(value, Launch) and value.body:
        made = {f.name: rebuild(getattr(value, f.name), sizes) for f in fields(value)}
        body = twin_body(made["body"], sizes.most[value.body])
        tiling = replace(value.tiling, bm=max(1, body.block), piece_rows=4, piece_cols=TILE)
        return Launch(**{**made, "rows": sizes.of(value.rows, True), "body": body, "tiling": tiling})
    if isinstance(value, Moves):
        small = dict(cols=rebuild(value.cols, sizes), deal=rebuild(value.deal, sizes))
        return replace(value, programs=min(value.programs, 1), **small)
    if is_dataclass(value):
        made = {f.name: rebuild(getattr(value, f.name), sizes) for f in fields(value)}
        if "rows" in made:
            made["rows"] = sizes.of(value.rows, True)
        if isinstance(value, Launch) and any(s.op in ROWWISE for s in value.epilogue):
            made["tiling"] = replace(made["tiling"], bn=1 << (made["cols"].size - 1).bit_length())
        return type(value)(**made)
    if isinstance(value, tuple):
        return tuple(rebuild(v, sizes) for v in value)
    return value


def tied_sizes(body: KernelBody) -> set[int]:
    """Sizes that a user's kernel fixes: those that a constant of its item equals, all where a dim is a number."""
    sizes = {e.size for t in body.tensors for e in t.shape if isinstance(e.size, int)}
    if any(isinstance(d, int) for t in body.tensors for d in t.dims):
        return sizes
    return sizes & {v for _, v in body.constants if isinstance(v, int)}


def even_sizes(body: KernelBody, most: int) -> dict[int, int]:
    """Sizes of which a user's kernel takes whole blocks, as was found, and the elements of a block in the twin."""
    blocks, found = dict(twin_body(body, most).whole), {}
    for name, extent in body.sizes:
        size = whole(extent.size)
        if name in blocks and isinstance(size, int):
            found[size] = max(blocks[name], found.get(size, 1))
    return found


def twin_body(body: KernelBody, most: int) -> KernelBody:
    """A user's kernel with smaller tiles: constants that its grid names are tile sizes. Only powers of two shrink, and
    none of a kernel of which one program takes all rows, `most` of them: its block is no constant's."""
    named = set().union(*(dims_in(g) for g in body.grid))
    tiles = {v: TILE for n, v in body.constants if n in named and isinstance(v, int) and v > TILE and not v & (v - 1)}
    numbers = any(isinstance(b, int) and b > 1 for t in body.tensors for b in t.block)
    if numbers or {n for t in body.turns for n in (t.lead, t.each)} & tiles.keys():
        tiles = {}  # which constant these follow is not known
    if body.block >= most and body.block not in tiles:
        tiles = {}
    constants = tuple((n, tiles.get(v, v) if n in named else v) for n, v in body.constants)
    shrunk: dict[int, int] = {}
    for (_, v), (_, w) in zip(body.constants, constants, strict=True):
        if isinstance(v, int):
            shrunk[v] = max(w, shrunk.get(v, 0))
    blocks = tuple((name, shrunk.get(unit, unit)) for name, unit in body.whole)
    small = dict(constants=constants, block=tiles.get(body.block, body.block), whole=blocks)
    return replace(body, **small, columns=tiles.get(body.columns, body.columns))


def twin_tiling(t: Tiling) -> Tiling:
    if t.stages == 1 and t.bk == TILE:  # a launch without a product
        return replace(t, bm=8, bn=TILE, bk=TILE, piece_rows=4, piece_cols=TILE)
    return replace(t, bm=TILE, bn=TILE, bk=TILE, piece_rows=4, piece_cols=TILE)


def chunk_map(op: OpSchedule) -> dict[int, int]:
    """Rows of each chunk of the op in the twin: longer than a tile, or shorter, as in the spec."""
    tile = max((n.tiling.bm for n in op.launches if n.products), default=TILE)
    rows = {c.count for c in walk(op, ChunkRows)}
    return {r: LONG_CHUNK if r >= tile else SHORT_CHUNK for r in rows}


def replace_chunks(value, chunks: dict[int, int]):
    if isinstance(value, ChunkRows):
        return replace(value, count=chunks[value.count])
    if isinstance(value, (OpSchedule, Launch)) or is_dataclass(value):
        return replace(value, **{f.name: replace_chunks(getattr(value, f.name), chunks) for f in fields(value)})
    if isinstance(value, tuple):
        return tuple(replace_chunks(v, chunks) for v in value)
    return value
