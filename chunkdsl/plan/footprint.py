"""Memory that an instance of a generated module holds on each rank, from the schedule alone.

The same rules as `allocate` and `allocate_flags` in templates/triton/_operation.py.jinja and `Operation.__init__` in
runtime/operation.py; a test constructs modules on a machine that counts. What an allocator adds is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chunkdsl.ir.meshes import World, bindings, grid_of
from chunkdsl.ir.policy import ChunkCount
from chunkdsl.ir.types import evaluate
from chunkdsl.plan.schedule import Buffer, Flags, OpSchedule, Schedule
from chunkdsl.plan.tables import route_tables
from chunkdsl.plan.tile_kernels import tickets_of
from chunkdsl.plan.unroll_exchange import buffer_of, each_words, memory_forms, payload_words, row_words

STATE_WORDS = 16
TICKET_WORDS = 8
ITEM = {"bf16": 2, "f16": 2, "f32": 4, "i32": 4, "i64": 8}
ALIGNMENT = 16  # bytes to which rows are padded


@dataclass(frozen=True, slots=True)
class Memory:
    """One allocation of every rank. `kind` is symmetric or local, `use` data, flags, counters or scratch. `rows` x
    `cols` elements in all slots together; words stand in one row."""

    name: str
    kind: str
    use: str
    dtype: str
    rows: int
    cols: int
    slots: int = 1

    @property
    def bytes(self) -> int:
        return self.rows * self.cols * ITEM[self.dtype]


def symmetric_bytes(schedule: Schedule, op: OpSchedule, world: int, bounds: Mapping[str, int]) -> int:
    """Bytes of symmetric memory of one op on each rank, for an instance with these bounds of the run-time dims.

    Dims that `bounds` leaves out have the upper bound of their range.
    """
    return sum(m.bytes for m in memory(schedule, op, world, bounds) if m.kind == "symmetric")


def memory(schedule: Schedule, op: OpSchedule, world: int, bounds: Mapping[str, int]) -> tuple[Memory, ...]:
    """Every allocation of one op on each rank: buffers, flags, counters, then the words that each op has."""
    full = {r.name: r.high for r in schedule.ranges} | bindings(schedule.mesh) | dict(bounds)
    if op.exchange:
        return exchange_memory(op, world, full)
    grid = grid_of(world, tuple([full[axis] for axis in op.over]))
    return (
        *(_buffer(b, op, world, full, grid) for b in op.buffers),
        *(_words(f, "flags", world, full, grid) for f in op.flags),
        *(_words(f, "counters", world, full, grid) for f in op.counters),
        Memory(f"{op.name}_state", "symmetric", "flags", "i32", 1, STATE_WORDS),
        *([Memory(f"{op.name}_closed", "symmetric", "flags", "i32", 1, world)] if op.closing else ()),
        *(Memory(name, "local", "scratch", "i32", 1, TICKET_WORDS) for name in tickets_of(op)),
        *(Memory(t.name, "local", "scratch", "i32", 1, t.words(grid)) for t in route_tables(op)),
        Memory(f"{op.name}_opening", "local", "scratch", "i32", 1, TICKET_WORDS),
        Memory(f"{op.name}_nothing", "local", "scratch", "f32", 256, 256),
    )


def exchange_memory(op: OpSchedule, world: int, bounds: Mapping[str, int]) -> tuple[Memory, ...]:
    """The same for an exchange: words and epochs of each form, flags by block (`ExchangeOperation.memory`)."""
    x, made, name = op.exchange, [], op.name
    rounds = 2 if x.algorithm == "two_shot" else 1
    most = max(1, payload_words(x, bounds))
    sent = each_words(x, most, world)
    blocks = max(1, evaluate(x.rows, bounds) if x.rowwise else -(-sent // x.forms[0].blocks[0][0]))
    for f in memory_forms(x):
        cap = row_words(x, f, bounds, world)
        dtype = "i64" if f.name == "word" else "i32"
        rows = rounds if x.via == "multimem" else rounds * world
        made.append(Memory(buffer_of(f), "symmetric", "data", dtype, f.slots * rows, cap, f.slots))
        made.append(Memory(f"epochs{buffer_of(f)[-1]}", "local", "scratch", "i32", 1, 1028))
        if f.name in ("flag", "speculative"):
            made.append(Memory("arrived", "symmetric", "flags", "i32", rounds * world, blocks))
        if f.name == "speculative":
            made.append(Memory("counts", "local", "scratch", "i32", 1, 8))
        if f.slots == 1:
            made.append(Memory("closed", "symmetric", "flags", "i32", world, blocks))
    if x.long_rows:
        programs, cols = max(1, min(evaluate(x.rows, bounds), 1024)), evaluate(x.cols.size, bounds)
        made.append(Memory("parked", "local", "scratch", "f32", programs, cols))
        if x.algorithm == "two_shot":
            made.append(Memory("added", "local", "scratch", "f32", programs, x.forms[0].blocks[0][0] + 32))
    return (
        *made,
        Memory(f"{name}_state", "symmetric", "flags", "i32", 1, STATE_WORDS),
        Memory(f"{name}_opening", "local", "scratch", "i32", 1, TICKET_WORDS),
        Memory(f"{name}_nothing", "local", "scratch", "f32", 256, 256),
    )


def _buffer(b: Buffer, op: OpSchedule, world: int, bounds: Mapping[str, int], grid: World) -> Memory:
    rows = evaluate(b.rows, bounds)
    cols = evaluate(b.cols.size, bounds)
    cols = max(1, b.cols.layout.shard(cols, world) if b.cols.sharded else cols)
    vector = ALIGNMENT // ITEM[b.dtype]
    pitch = -(-cols // vector) * vector
    if b.kind == "local" and b.groups == "whole":
        return Memory(b.name, b.kind, "data", b.dtype, max(1, rows), pitch, b.slots)
    shard = max(1, b.layout.shard(rows, world) if b.groups in ("world", "shard", "places") else rows)
    stride = -(-shard // op.pad) * op.pad
    groups = 1 if b.groups in ("whole", "shard") else b.routing.places(grid) if b.routing else world
    return Memory(b.name, b.kind, "data", b.dtype, b.slots * groups * stride, pitch, b.slots)


def _words(f: Flags, use: str, world: int, bounds: Mapping[str, int], grid: World) -> Memory:
    if f.per == "rank":
        return Memory(f.name, f.kind, use, "i32", 1, world)
    rows = evaluate(f.rows, bounds)
    cap = max(1, rows if f.whole else f.layout.shard(rows, world))
    per = f.chunk.count if isinstance(f.chunk, ChunkCount) else -(-cap // f.chunk.count)
    kind = f.kind if use == "flags" else "local"
    groups = f.routing.places(grid) if f.routing else world
    return Memory(f.name, kind, use, "i32", 1, groups * per * (world if f.per == "pair" else 1))
