"""Proves the schedule of an op for a list of world sizes, over the sequences of calls that reuse depends on.

With B buffers the plan is unrolled B + 1 calls: all at the largest shape, then with the middle ones at the smallest, at
fewer rows than ranks and at a ragged size. Three equal calls prove nothing about what lies between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chunkdsl.check.prove import Refutation, prove
from chunkdsl.check.prove.progress import least_programs, resident
from chunkdsl.ir.policy import ChunkCount
from chunkdsl.ir.types import shard_rows
from chunkdsl.plan.limits import MULTIPROCESSORS
from chunkdsl.plan.schedule import OpSchedule, Schedule
from chunkdsl.plan.unroll import unroll

CHUNKS = 4  # a shard with more chunks adds no new kind of edge: every chunk's waits and signals are its own
MANY = 16  # beyond, only the largest shape and the smallest between two of it


@dataclass(frozen=True)
class Verdict:
    """What is known of one op at one world size. `note` says why the module refuses it although nothing is refuted."""

    op: str
    world: int
    refutations: tuple[Refutation, ...]
    note: str = ""

    @property
    def proven(self) -> bool:
        return not self.refutations and not self.note


def prove_worlds(schedule: Schedule, worlds: list[int]) -> list[Verdict]:
    """A verdict for every op and world size, in that order."""
    return [prove_op(schedule, op, world) for op in schedule.ops for world in worlds]


def prove_op(schedule: Schedule, op: OpSchedule, world: int) -> Verdict:
    note = misfit(op, world)
    found: list[Refutation] = []
    for calls in call_sequences(schedule, op, world):
        plan = unroll(schedule, op, world, calls)
        found = prove(plan)
        if not found:
            for programs in sorted({1, least_programs(plan), min(MULTIPROCESSORS.values())}):
                found = found or resident(plan, programs)
        if found:
            break
    return Verdict(op.name, world, tuple(found), note)


def call_sequences(schedule: Schedule, op: OpSchedule, world: int) -> Iterator[list[dict[str, int]]]:
    """Bindings of the run-time dims for consecutive calls."""
    full = {r.name: largest(op, r.name, r.high, r.step, world) for r in schedule.ranges}
    middles = []
    for pick in ("low", "few", "ragged"):
        dims = {}
        for r in schedule.ranges:
            least = -(-r.low // r.step) * r.step
            value = {"low": least, "few": world // 2 + 1, "ragged": full[r.name] - 1}[pick]
            dims[r.name] = max(least, min(full[r.name], value // r.step * r.step))
        if dims not in middles:
            middles.append(dims)
    yield [full] * (op.slots + 1)
    for middle in middles[:1] if world > MANY else middles:
        if middle != full:
            yield [full, *[middle] * max(1, op.slots - 1), full]
            if world <= MANY:
                yield [middle] * (op.slots + 1)


def largest(op: OpSchedule, dim: str, high: int, step: int, world: int) -> int:
    """The bound of a dim, or as many rows as give every shard CHUNKS whole chunks and a ragged one."""
    rows = [
        n.tiling.bm * CHUNKS if isinstance(chunk, ChunkCount) else chunk.count * CHUNKS
        for n in op.launches
        for chunk in (n.chunk, n.out_chunk)
        if chunk is not None
    ]
    cap = world * (max(rows, default=1) + 1)
    return max(step, min(high, cap) // step * step)


def misfit(op: OpSchedule, world: int) -> str:
    """Why a world size cannot run fused although its plan is sound: a TMA stride that is no multiple of 16 bytes."""
    sizes = {"bf16": 2, "f16": 2, "f32": 4}
    parameters = {p.name: p for p in op.parameters}
    for n in op.launches:
        for operand in ([n.a] if n.a else []) + [p.b for p in n.products]:
            p = parameters.get(operand.source)
            if p is None or not isinstance(p.shape[-1].size, int):
                continue
            for rank in range(world):
                e = p.shape[-1]
                cols = shard_rows(e.size, world, rank) if e.sharded else e.size
                if cols * sizes[p.dtype] % 16:
                    return f"rank {rank}'s rows of {p.name} have {cols} elements, {cols * sizes[p.dtype]} bytes: no TMA stride"
    return ""
