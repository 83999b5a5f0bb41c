"""What one call of an op does on one rank, as numbers: read off the unrolled plan wherever the plan has them, else off
the schedule. Decides nothing and lays nothing out (`report/plan_text` does)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from chunkdsl.ir.layouts import CONTIGUOUS
from chunkdsl.ir.meshes import grid_of, inner_of
from chunkdsl.ir.policy import ChunkCount, FuseFrom
from chunkdsl.plan.body import stagings
from chunkdsl.plan.exchange import Exchange
from chunkdsl.plan.exchange_shape import shape_of
from chunkdsl.plan.footprint import ITEM, Memory, memory
from chunkdsl.plan.geometry import Geometry, local_size, nominal_size
from chunkdsl.plan.limits import MULTIPROCESSORS, stages_for, tile_columns
from chunkdsl.plan.plan import Act, Plan, Region, Task
from chunkdsl.plan.schedule import Extent, Launch, Moves, OpSchedule, Schedule
from chunkdsl.plan.unroll_exchange import RUNS, buffer_of, form_of, payload_words
from chunkdsl.plan.unroll_moves import steps_of
from chunkdsl.plan.within import sum_within
from chunkdsl.runtime.blocks import most_each


@dataclass(frozen=True, slots=True)
class Started:
    """One kernel or copy lane in stream order. `tiles` and `copies` are those of this rank; `grid` multiplies to tiles:
    (shards, row blocks, column blocks). `programs` and `stages` by target; of the programs `movers` carry chunks."""

    name: str
    kind: str  # open, stage, tiles, calls (of the library), copies, close
    line: int
    text: str
    space: str = ""
    walk: str = ""
    tile: str = ""
    warps: int = 0
    grid: tuple[int, ...] = ()
    tiles: int = 0
    copies: int = 0
    movers: int = 0
    programs: tuple[tuple[str, int], ...] = ()
    stages: tuple[tuple[str, int], ...] = ()
    waits_for: str = ""
    beside: bool = False  # starts once all programs of the one ahead run
    adds: str = ""  # flags of the others' addends, which its own tiles wait for and add up


@dataclass(frozen=True, slots=True)
class Chunks:
    """How rows travel: `rows` of each chunk, `per_shard` of them in each of `shards`, `bytes` of a full one. `layout`:
    of shards that are not contiguous; `held`: rows of the whole in that of this rank, as runs (first, end)."""

    what: str
    rule: str
    rows: int
    per_shard: int
    shards: int
    bytes: int
    layout: str = ""
    held: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes that this rank moves between itself and another, in `pieces`: chunks, or the tiles of one chunk."""

    what: str
    source: int
    destination: int
    pieces: int
    bytes: int
    via: str
    side: str
    lane: str


@dataclass(frozen=True, slots=True)
class Signals:
    """Words of one flag buffer in this call: `gives` by this rank, `gets` on this rank, `waits` by its tasks."""

    flags: str
    meaning: str
    gives: int
    gets: int
    waits: int


@dataclass(frozen=True, slots=True)
class PayloadForm:
    """Payloads of a small all-reduce of up to `most` bytes of each rank (None: all others) travel as `form`, `wide`
    words at a time, in `rounds` rounds, with `slots` copies of their buffer. form: that of a Form, or `fallback`.
    `taken`: by this call."""

    most: int | None
    form: str
    rounds: int
    slots: int
    taken: bool
    wide: int = 1


@dataclass(frozen=True, slots=True)
class Summary:
    op: str
    line: int
    world: int
    rank: int
    link: str
    dims: tuple[tuple[str, int], ...]
    bounds: tuple[tuple[str, int], ...]
    slots: int
    closing: bool
    gate: str
    eager_gate: str  # of calls outside of CUDA graphs
    fallback: str
    fused: bool  # False: these dims lie below the gate, and the rest of this says what a fused call would do
    fused_eagerly: bool
    started: tuple[Started, ...]
    chunks: tuple[Chunks, ...]
    transfers: tuple[Transfer, ...]
    signals: tuple[Signals, ...]
    memory: tuple[Memory, ...]
    symmetric_bytes: int
    local_bytes: int
    sent_bytes: int
    received_bytes: int
    forms: tuple[PayloadForm, ...] = ()


def summarise(
    schedule: Schedule, op: OpSchedule, plan: Plan, rank: int, dims: Mapping[str, int], bounds: Mapping[str, int]
) -> Summary:
    """`plan` is `unroll(schedule, op, world, [dims], bounds)`."""
    held = memory(schedule, op, plan.world, bounds)
    links = dict.fromkeys(a.link for a in schedule.mesh.axes if a.link and (not op.over or a.name in op.over))
    sizes = {b.name: ITEM[b.dtype] for b in plan.buffers}
    sent, received = crossing(plan, rank, sizes)
    mesh = schedule.mesh
    ranks = tuple(dims[a.name] for a in mesh.axes) if len(mesh.axes) > 1 else plan.world
    least, eager = (op.gate.of(captured).at(ranks) for captured in (True, False))
    return Summary(
        op=op.name,
        line=op.line,
        world=plan.world,
        rank=rank,
        link=" and ".join(links),
        dims=tuple(sorted(dims.items())),
        bounds=tuple(sorted(bounds.items())),
        slots=form_of(op.exchange, payload_words(op.exchange, dims), plan.world).slots if op.exchange else op.slots,
        closing=op.closing,
        gate=gate_text(least),
        eager_gate=gate_text(eager),
        fallback=op.gate.fallback,
        fused=_is_open(least, dims),
        fused_eagerly=_is_open(eager, dims),
        started=tuple(_started(op, plan, rank, dims)),
        chunks=tuple(_chunks(op, plan.world, rank, dims)),
        transfers=tuple(_transfers(op, plan, rank, sizes)),
        signals=tuple(_signals(op, plan, rank)),
        memory=held,
        symmetric_bytes=sum(m.bytes for m in held if m.kind == "symmetric"),
        local_bytes=sum(m.bytes for m in held if m.kind == "local"),
        sent_bytes=sent,
        received_bytes=received,
        forms=tuple(_forms(op.exchange, plan.world, dims)) if op.exchange else (),
    )


def _forms(x: Exchange, world: int, dims: Mapping[str, int]):
    size, below = 4 * payload_words(x, dims), 0
    limit = x.limit // max(1, world - 1) if x.limit else None
    rounds = 2 if x.algorithm == "two_shot" else 1
    for f in x.forms:
        held = 4 * most_each(f.words, world) * (world if rounds == 2 else 1) if f.words else None
        most = min([n for n in (held, limit) if n is not None], default=None)
        yield PayloadForm(most, f.name, rounds, f.slots, below < size and (most is None or size <= most), f.wide)
        below = most
    if limit is not None:
        yield PayloadForm(None, "fallback", 0, 0, size > limit)


def crossing(plan: Plan, rank: int, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Bytes that leave a rank over the link, and that arrive, whoever moves them. `sizes`: bytes of an element."""
    sent = received = 0
    for task in plan.tasks:
        for _, source, destination, size in moved(task, sizes):
            sent += size * (source == rank)
            received += size * (destination == rank)
    return sent, received


def moved(task: Task, sizes: Mapping[str, int]):
    """(buffer, source rank, destination rank, bytes) of a task's accesses that cross the link. What a task reads or
    writes twice travels once: a sum that is passed on is added up before it is stored."""
    seen: set[Region] = set()
    for a in task.accesses:
        if a.act is Act.NEED:
            ends = [(a.region, a.region.rank, task.rank)]
        else:
            ends = [(a.region, task.rank, a.region.rank)]
            if a.source is not None:
                ends.append((a.source, a.source.rank, task.rank))
        for region, source, destination in ends:
            if source != destination and region not in seen:
                seen.add(region)
                yield region.buffer, source, destination, elements(region) * sizes[region.buffer]


def elements(region: Region) -> int:
    return 0 if region.empty else (region.row1 - region.row0) * (region.col1 - region.col0)


def _is_open(gate: FuseFrom, dims: Mapping[str, int]) -> bool:
    return gate.count is not None and (not gate.dim or dims.get(gate.dim, gate.count) >= gate.count)


def gate_text(gate: FuseFrom) -> str:
    """As a policy writes it."""
    return "never" if gate.count is None else f"{gate.count} along {gate.dim}" if gate.dim else "always"


def expected_tasks(op: OpSchedule, world: int, dims: Mapping[str, int]) -> int:
    """About how many tasks the plan of one call has: a task for each chunk of a shard that a rank computes or moves."""
    if op.exchange:
        return 2 * RUNS * world
    count, grid = 0, grid_of(world, tuple([dims[axis] for axis in op.over]))
    for n in op.launches:
        g = Geometry.of(n.rows, n.space == "whole", op.pad, dims, world, inner_of(op.over, dims), n.layout)
        carried = Geometry.of(n.gathered.size, False, op.pad, dims, world) if n.other_rows else g
        chunks = max([of.chunks(c) for of, c in ((carried, n.chunk), (g, n.out_chunk)) if c is not None], default=1)
        runs = min(chunks, -(-g.shard // n.tiling.bm))
        count += world * ((world if n.by_shards else 1) * runs)
        count += sum(steps_of(m, rank, grid) * chunks for m in n.moves for rank in range(world))
    return count


# ---- launches


def _started(op: OpSchedule, plan: Plan, rank: int, dims: Mapping[str, int]):
    if op.exchange:
        x, shapes = op.exchange, {t: shape_of(op, plan.world, dims, sms) for t, sms in MULTIPROCESSORS.items()}
        shape = shapes["sm_90"]
        programs = tuple((target, s.programs) for target, s in shapes.items())
        stages = tuple((target, 1) for target in shapes)
        yield Started(
            x.name, "exchange", x.line, x.text, "whole", "", f"{shape.block:,} words", shape.warps, (shape.blocks,),
            shape.blocks, 0, 0, programs, stages,
        )  # fmt: skip
        return
    yield Started("open_call", "open", op.line, "takes the next epoch")
    for n in op.launches:
        g = Geometry.of(n.rows, n.space == "whole", op.pad, dims, plan.world, inner_of(op.over, dims), n.layout)
        for s in (s for s in stagings(n) if s.buffer not in op.stays):
            barrier = ", then an entry barrier" if s.wait_all else ""
            name, part = ("deal_block", "block") if s.deal else ("stage_shard", "shard")
            sent = f", all of it to {s.sent}" if s.sent else ""
            text = f"copies the own {part} of {s.source} to {s.buffer}{sent}{barrier}"
            yield Started(name, "stage", s.line, text, "own")
        if not n.within:
            yield _tiles(op, n, g, plan.world, rank, dims)
        for m in (m for m in n.moves if m.via == "copy_engine"):
            made = [t for t in plan.tasks if t.rank == rank and t.kind == "move" and t.lane == f"copies {m.name}"]
            data = sum(any(not a.region.empty for a in t.accesses) for t in made)
            words = f"{data} cop{'y' if data == 1 else 'ies'} of chunks and {len(made)} of flag words"
            words += f", from {m.source} itself" if m.buffer in op.stays else ""
            yield Started(m.name, "copies", m.line, words, copies=data + len(made))
    if op.closing:
        yield Started("close_call", "close", op.line, "waits until every rank has finished reading")


def _tiles(op: OpSchedule, n: Launch, g: Geometry, world: int, rank: int, dims: Mapping[str, int]) -> Started:
    walk, shards, flags = _order(n) if n.by_shards else "", world if n.by_shards else 1, n.chunk_flags or ""
    if n.library:
        calls = shards * len(list(g.blocks(n)))
        return Started(n.name, "calls", n.line, n.text, n.space, walk, "library", tiles=calls, waits_for=flags)
    t, own = n.tiling, local_size(n.cols, dims, world, rank, op.over)
    width = nominal_size(n.column_shards, dims, world) if n.column_shards else own
    grid = (shards, -(-g.shard // t.bm), max(1, -(-width // t.bn)))
    tiles = grid[0] * grid[1] * grid[2]
    movers = sum(m.programs for m in n.moves if m.via != "copy_engine")
    within = sum_within(op, n)
    return Started(
        n.name, "tiles", n.line, n.text, n.space, walk,
        f"{t.bm}x{t.bn}x{t.bk}" if n.products else f"{t.bm}x{t.bn}",
        t.warps, grid, tiles, 0, movers,
        tuple((target, max(1, min(sms * n.crowd, tiles + movers))) for target, sms in MULTIPROCESSORS.items()),
        tuple((target, _stages(n, target)) for target in MULTIPROCESSORS),
        flags, n.beside, within.chunk_flags if within else "",
    )  # fmt: skip


def _order(n: Launch) -> str:
    walk = "interleaved_" * n.interleaved + n.walk.value.removeprefix("walk_")
    return walk if n.visits is None else "leaving" if n.leaving else "arrival"


def _stages(n: Launch, target: str) -> int:
    """Software pipeline stages; 1 without a product (as `constants_of` in render/module writes them)."""
    if not n.products:
        return 1
    t = n.tiling
    columns = tile_columns(target, t.bm, t.bn, len(n.products)) * len(n.products)
    size = (t.bm + columns) * t.bk * (ITEM[n.a.dtype] if n.a else 2)
    return max(1, stages_for(target, size, t.stages))


# ---- what travels


def _chunks(op: OpSchedule, world: int, rank: int, dims: Mapping[str, int]):
    for n in op.launches:
        arriving = {m.buffer: m for m in n.moves if not m.leaving}  # a plan's may have two carriers
        found = [
            (n.gathered, n.chunk, m.buffer, m.deal.cols if m.deal else m.cols, m.dtype, False)
            for m in arriving.values()
        ]
        if n.out_chunk:
            d = n.destination
            cols = d.deal.cols if d.deal else n.cols
            own = Extent(n.rows, True, n.layout)
            found.append((own, n.out_chunk, d.stage or d.buffer, cols, d.dtype, n.space == "whole"))
        for of, chunk, buffer, cols, dtype, whole in found:
            g = Geometry.of(of.size, whole, op.pad, dims, world, inner_of(op.over, dims), of.layout)
            rule = f"{chunk.count} per shard" if isinstance(chunk, ChunkCount) else f"{chunk.count} rows"
            width = local_size(cols, dims, world, 0, op.over)
            rows = g.chunk(chunk)
            layout, held = "", ()
            if g.layout != CONTIGUOUS:
                layout = str(g.layout)
                held = tuple((at, at + run) for _, at, run in g.runs(rank, 0, g.height(rank)))
            yield Chunks(buffer, rule, rows, g.chunks(chunk), g.groups, rows * width * ITEM[dtype], layout, held)


def _transfers(op: OpSchedule, plan: Plan, rank: int, sizes: Mapping[str, int]):
    """Transfers that this rank's tasks make, in the order of the first of each kind."""
    moves = {m.name: m for n in op.launches for m in n.moves}
    launches = {n.name: n for n in op.launches}
    made: dict[tuple, list[int]] = {}
    for task in plan.tasks:
        if task.rank != rank:
            continue
        seen = set()  # what a task moves from one rank to another is one piece, also in several runs of rows
        for buffer, source, destination, size in moved(task, sizes):
            by = _carrier(task, moves, launches, op.exchange)
            found = made.setdefault((buffer, *by, source, destination), [0, 0])
            found[0] += (buffer, source, destination) not in seen
            found[1] += size
            seen.add((buffer, source, destination))
    for (what, via, lane, source, destination), (pieces, size) in made.items():
        yield Transfer(what, source, destination, pieces, size, via, "pull" if destination == rank else "push", lane)


def _carrier(
    task: Task, moves: Mapping[str, Moves], launches: Mapping[str, Launch], exchange: Exchange | None
) -> tuple[str, str]:
    """(via, lane) of a task's transfers."""
    if task.lane.endswith(" blocks"):
        return exchange.via, f"blocks of {task.lane.removesuffix(' blocks')}"
    name = task.lane.removeprefix("copies ")
    m = moves.get(name)
    if m is not None:
        by = "copy engine" if m.via == "copy_engine" else f"{m.programs} program{'s' * (m.programs > 1)}"
        return m.via if not m.otherwise else "ldst or tma", by
    n = launches[name.removesuffix(" tiles")]
    if task.kind == "move":  # carried by the programs that compute
        return next(m.via for m in n.moves if m.via != "copy_engine" and not m.programs), f"programs of {n.name}"
    return n.destination.via, f"tiles of {n.name}"


def _signals(op: OpSchedule, plan: Plan, rank: int):
    gives = Counter(s.flags for s in plan.signals if s.signaller == rank)
    gets = Counter(s.flags for s in plan.signals if s.owner == rank)
    waits = Counter(plan.signals[i].flags for t in plan.tasks if t.rank == rank for i in t.waits)
    if op.exchange:
        words = {buffer_of(f): "words that carry data" for f in op.exchange.forms}
        yield from (
            Signals(name, meaning, gives[name], gets[name], waits[name])
            for name, meaning in {**words, "arrived": "a block of words is here", "closed": "finished reading"}.items()
            if gives[name]
        )
        return
    blocks = {m.done for n in op.launches for m in n.moves if m.deal and m.leaving}
    meanings = {f.name: "a chunk of blocks is made" if f.name in blocks else _meaning(f.name, f.kind, f.per)
                for f in op.flags} | {f"{op.name}_closed": "finished reading"}  # fmt: skip
    for name, meaning in meanings.items():
        if gives[name] or gets[name] or waits[name]:
            yield Signals(name, meaning, gives[name], gets[name], waits[name])


def _meaning(name: str, kind: str, per: str) -> str:
    if per == "rank":
        return "a rank has staged its shard"
    return "a chunk is here" if kind == "symmetric" else "a chunk of partial sums is complete"
