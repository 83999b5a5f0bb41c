"""Proves the schedule of an op for a list of world sizes, over the sequences of calls that reuse depends on.

Three equal calls prove nothing about what lies between them, so with B buffers these are unrolled for every world size:

    B + 1 calls at the largest shape
    the largest, then up to B calls at the smallest that the dims allow (no rows, if a range begins at 0), the largest

and up to MANY ranks also

    B + 1 calls at the smallest
    B + 1 calls with fewer rows than ranks
    a ragged shape, then B calls with fewer rows than ranks, the ragged shape

With two buffers, shapes that differ meet both in neighbouring calls and in calls that share a buffer. The largest shape
is the bound of a dim, or what gives a shard all kinds of edges between tiles and chunks (`largest`). Every call sizes
its buffers by the largest of its sequence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from chunkdsl.check.prove import Refutation, prove
from chunkdsl.ir.meshes import World, bindings, outside, ranks_of, route_world, scope, subgroup
from chunkdsl.ir.policy import ChunkCount
from chunkdsl.ir.types import DimRange, Share, dims_in
from chunkdsl.plan.body import stagings
from chunkdsl.plan.geometry import local_size
from chunkdsl.plan.schedule import OpSchedule, Schedule
from chunkdsl.plan.trace_breaches import Breach
from chunkdsl.plan.unroll import unroll

CHUNKS = 3  # a shard with more chunks adds no new kind of edge: every chunk's waits and signals are its own
MANY = 16  # ranks: beyond, the cost of a proof grows with their square
TRANSFERS = 8192  # chunks x ranks x ranks above which tiles of many chunks are proven with one tile a shard


@dataclass(frozen=True)
class Verdict:
    """What is known of one op at one world size (ir/meshes). `note` says why no module serves it, and then nothing is
    proven."""

    op: str
    world: World
    refutations: tuple[Refutation, ...]
    note: str = ""

    @property
    def proven(self) -> bool:
        return not self.refutations and not self.note


def prove_worlds(schedule: Schedule, worlds: list[World]) -> list[Verdict]:
    """A verdict for every op and world size, in that order."""
    return [prove_op(schedule, op, world) for op in schedule.ops for world in worlds]


def prove_op(schedule: Schedule, op: OpSchedule, world: World) -> Verdict:
    """Of a mesh of two axes the first subgroup and the last, whose shards are the largest and the smallest: all others
    hold as many rows as one of them, or some number between."""
    note = misfit(schedule, op, world)
    if note:  # no module runs this size, so there is nothing to prove
        return Verdict(op.name, world, (), note)
    ranks = scope(schedule.mesh, op.over, world)
    found = route_breaches(op, route_world(schedule.mesh, op.over, world))
    if found:  # the route breaks its contract; the plan that follows from it has nothing more to say
        return Verdict(op.name, world, tuple(found))
    for calls in mesh_sequences(schedule, op, world):
        # One resident program is the hardest case: progress with some number implies it with every larger one.
        found = prove(unroll(schedule, op, ranks, calls), programs=1)
        if found:
            break
    return Verdict(op.name, world, tuple(found))


def served(schedule: Schedule, world: World) -> bool:
    """Whether a world size can run every op of a schedule at all: its routes are for it, and the hardware suits."""
    return not any(
        misfit(schedule, op, world) or route_breaches(op, route_world(schedule.mesh, op.over, world))
        for op in schedule.ops
    )


def route_breaches(op: OpSchedule, world: World) -> list[Refutation]:
    """Why the routes that plans give an op do not serve a world size."""
    found: dict[tuple[str, str], list[Breach]] = {}
    for n in op.launches:
        for m in n.moves:
            if m.routing is not None:
                breaches = list(m.routing.breaches(world))
                if not breaches:
                    chunk = n.out_chunk if m.leaving else n.chunk
                    asked = m.routing.uneven(chunk, world), m.routing.differing(world), m.routing.uncopied(world)
                    breaches = [b for b in asked if b]
                breaches = [m.routing.compared(b) for b in breaches]
                found.setdefault((m.routing.name, m.routing.contract), []).extend(breaches)
    return [
        Refutation(b.code, b.message, b.counterexample, b.line, b.label, b.other_line, b.other_label, 0, b.span, b.mend)
        for b in dict.fromkeys(b for breaches in found.values() for b in breaches)
    ]


def mesh_sequences(schedule: Schedule, op: OpSchedule, world: World) -> Iterator[list[dict[str, int]]]:
    """`call_sequences`, with the axes bound where there are two."""
    mesh, ranks = schedule.mesh, scope(schedule.mesh, op.over, world)
    cutting = {s.axis for s in shares_in(op)}
    parts = math.prod(n for axis, n in bindings(mesh, world).items() if axis in cutting and axis not in op.over)
    last = ranks_of(world) - 1 if parts > 1 else 0
    for rank in (0, last) if last else (0,):
        bound = outside(mesh, op.over, world, rank)
        for calls in call_sequences(schedule, op, ranks, parts):
            yield [c | bound for c in calls]


def shares_in(op: OpSchedule) -> Iterator[Share]:
    """Sizes that axes outside of an op have cut."""
    for n in op.launches:
        for size in (n.rows, n.cols.size, *([n.depth.size] if n.depth else [])):
            while isinstance(size, Share):
                yield size
                size = size.size


def call_sequences(schedule: Schedule, op: OpSchedule, world: int, parts: int = 1) -> Iterator[list[dict[str, int]]]:
    """Bindings of the run-time dims for consecutive calls, as the head of this file lists them, each sequence once.
    `parts`: into how many the rest of the mesh has cut the rows of the op."""
    found = {r.name: shapes(op, r, world, parts) for r in schedule.ranges}
    full, low, few, ragged = ({name: picked[i] for name, picked in found.items()} for i in range(4))
    again = op.slots + 1
    sequences = [[full] * again, *([full, *[low] * n, full] for n in range(1, op.slots + 1))]
    if world <= (MANY // 2 if op.exchange else MANY):  # in one round of an exchange all ranks meet all
        sequences += [[low] * again, [few] * again, [ragged, *[few] * op.slots, ragged]]
    seen: list[list[dict[str, int]]] = []
    for calls in sequences:
        if calls not in seen and (not seen or any(dims != full for dims in calls)):
            seen.append(calls)
            yield calls


def shapes(op: OpSchedule, r: DimRange, world: int, parts: int = 1) -> tuple[int, int, int, int]:
    """Sizes of a dim: the largest, the smallest, fewer rows than ranks, ragged, as the range and its step allow.
    Where the range begins above the largest, that one and the next smaller stand for all."""
    full, least = largest(op, r.high, r.step, world, parts), -(-r.low // r.step) * r.step
    if least > full:
        return full, full, full, max(r.step, full - r.step)
    few = parts * ((world + 1) // 2) // r.step * r.step
    return full, least, max(least, min(few, full)), max(least, full - r.step)


def largest(op: OpSchedule, high: int, step: int, world: int, parts: int = 1) -> int:
    """The bound of a dim, or as many rows as give every shard CHUNKS whole chunks and a ragged one, and a second tile
    where tiles hold many chunks. It may be less than a range allows: the shape stands for larger ones of its kind."""
    if op.exchange:
        return high // step * step  # its blocks are grouped, whatever the size
    chunks, rows = CHUNKS if world <= MANY else CHUNKS - 1, 1
    for n in op.launches:
        for chunk in (n.chunk, n.out_chunk):
            if chunk is None:
                continue
            if isinstance(chunk, ChunkCount):
                small, wide, each = n.tiling.bm, n.tiling.bm * chunks, chunk.count
            else:
                small, wide = chunk.count * chunks, max(chunk.count * chunks, chunk.count + n.tiling.bm)
                each = -(-wide // chunk.count)
            rows = max(rows, wide if each * world * world <= TRANSFERS else small)
    return max(min(high, parts * world * (rows + 1)) // step, min(high // step, 1)) * step


def misfit(schedule: Schedule, op: OpSchedule, world: World) -> str:
    """Why a world size cannot run fused whatever its plan: a TMA stride that is no multiple of 16 bytes."""
    sizes = {"bf16": 2, "f16": 2, "f32": 4, "i32": 4, "i64": 8}
    parameters = {p.name: p for p in op.parameters}
    if op.exchange and isinstance(op.exchange.cols.size, int):
        length = op.exchange.cols.size * sizes[op.exchange.dtype]
        unit = op.exchange.unit
        return f"rows of {op.exchange.payload} have {length} bytes: no multiple of {unit}" if length % unit else ""
    for n in op.launches:
        sources = [o.source for o in ([n.a] if n.a else []) + [p.b for p in n.products]]
        sources += [n.fold.operand.source] if n.fold else []
        sources += [s.source for s in stagings(n) if not s.deal]
        rows = [(p.name, p.shape[-1], p.dtype) for p in map(parameters.get, sources) if p is not None]
        # An operand that the op makes has the depth in its rows.
        if n.products and not n.over and n.a.source not in parameters:
            rows.append((n.a.source, n.depth, n.a.dtype))
        for name, extent, dtype in rows:
            if dims_in(extent.size):
                continue
            for rank in range(ranks_of(world)):
                members = subgroup(schedule.mesh, op.over, world, rank)
                bound = outside(schedule.mesh, op.over, world, rank)
                cols = local_size(extent, bound, len(members), members.index(rank), op.over)
                length = cols * sizes[dtype]
                if length % 16:
                    return f"rank {rank}'s rows of {name} have {cols} elements, {length} bytes: no TMA stride"
        for t in n.body.tensors if n.body else ():
            length = local_size(t.shape[-1], {}, world, 0) * sizes[t.dtype] if isinstance(t.shape[-1].size, int) else 0
            if t.source in {b.name for b in op.buffers} and not t.strided and length % 16:
                mend = "pass one, or let the op return them"
                return f"rows of {t.parameter} have {length} bytes, and {n.body.function} takes no stride: {mend}"
    return ""
