"""Proves the schedule of an op for a list of world sizes, over the sequences of calls that reuse depends on.

With B buffers the plan is unrolled B + 1 calls: all at the largest shape, all at the smallest, all at fewer rows than
ranks; then with the middle ones at the smallest between the largest, and with fewer rows than ranks between ragged ones.
Three equal calls prove nothing about what lies between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chunkdsl.check.prove import Refutation, prove
from chunkdsl.ir.policy import ChunkCount
from chunkdsl.ir.types import shard_rows
from chunkdsl.plan.schedule import OpSchedule, Schedule
from chunkdsl.plan.unroll import unroll

CHUNKS = 4  # a shard with more chunks adds no new kind of edge: every chunk's waits and signals are its own
MANY = 16  # beyond, only the largest shape and the smallest between two of it


@dataclass(frozen=True)
class Verdict:
    """What is known of one op at one world size. `note` says why no module serves that size, and then nothing is proven."""

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
    if note:  # no module runs this size, so there is nothing to prove
        return Verdict(op.name, world, (), note)
    found: list[Refutation] = []
    for calls in call_sequences(schedule, op, world):
        # One resident program is the hardest case: progress with some number implies it with every larger one.
        found = prove(unroll(schedule, op, world, calls), programs=1)
        if found:
            break
    return Verdict(op.name, world, tuple(found))


def call_sequences(schedule: Schedule, op: OpSchedule, world: int) -> Iterator[list[dict[str, int]]]:
    """Bindings of the run-time dims for consecutive calls."""
    full = {r.name: largest(op, r.name, r.high, r.step, world) for r in schedule.ranges}

    def pick(kind: str) -> dict[str, int]:
        dims = {}
        for r in schedule.ranges:
            least = -(-r.low // r.step) * r.step
            value = {"low": least, "few": world // 2 + 1, "ragged": full[r.name] - 1}[kind]
            dims[r.name] = max(least, min(full[r.name], value // r.step * r.step))
        return dims

    least, few, ragged = (pick(name) for name in ("low", "few", "ragged"))
    yield [full] * (op.slots + 1)
    sequences = [[full, *[least] * max(1, op.slots - 1), full]]
    if world <= MANY:
        sequences += [[least] * (op.slots + 1), [few] * (op.slots + 1)]
        sequences += [[ragged, *[few] * max(1, op.slots - 1), ragged]]
    seen: list[list[dict[str, int]]] = []
    for calls in sequences:
        if any(dims != full for dims in calls) and calls not in seen:
            seen.append(calls)
            yield calls


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
    """Why a world size cannot run fused whatever its plan: a TMA stride that is no multiple of 16 bytes."""
    sizes = {"bf16": 2, "f16": 2, "f32": 4}
    parameters = {p.name: p for p in op.parameters}
    for n in op.launches:
        sources = [o.source for o in ([n.a] if n.a else []) + [p.b for p in n.products]]
        for source in sources + ([n.staging.source] if n.staging else []):
            p = parameters.get(source)
            if p is None or not isinstance(p.shape[-1].size, int):
                continue
            for rank in range(world):
                e = p.shape[-1]
                cols = shard_rows(e.size, world, rank) if e.sharded else e.size
                if cols * sizes[p.dtype] % 16:
                    return f"rank {rank}'s rows of {p.name} have {cols} elements, {cols * sizes[p.dtype]} bytes: no TMA stride"
    return ""
