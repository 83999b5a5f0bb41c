"""Parameters of which a call reads the own shard where the caller has it (`OpSchedule.stays`): copies and tiles do.

The caller fills them before a call, and may do so again as soon as it has ended: nothing may read them then. Other
parameters are not in the plan, as nothing that runs beside the stream reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chunkdsl.plan.body import stagings
from chunkdsl.plan.geometry import Geometry, nominal_size
from chunkdsl.plan.plan import Access, Act, Buffer, Region
from chunkdsl.plan.schedule import OpSchedule, Staging
from chunkdsl.plan.unroll_frame import Frame


def left_in_place(op: OpSchedule) -> list[Staging]:
    return [s for n in op.launches for s in stagings(n) if s.buffer in op.stays]


def given_buffers(op: OpSchedule, world: int, bounds: Mapping[str, int]) -> Iterator[Buffer]:
    """Their memory, which is the caller's."""
    for s in left_in_place(op):
        g = _cut(op, s, world, bounds)
        yield Buffer(s.source, "input", s.dtype, g.shard, max(1, nominal_size(s.cols, bounds, world)))


def given(op: OpSchedule, world: int, rank: int, dims: Mapping[str, int]) -> tuple[Access, ...]:
    """What the caller has put there when a call begins."""
    found = []
    for s in left_in_place(op):
        g, width = _cut(op, s, world, dims), nominal_size(s.cols, dims, world)
        for at, origin, rows in g.runs(rank, 0, g.height(rank)) if width else ():
            box = Region(s.source, rank, 0, at, at + rows, 0, width)
            found.append(Access(Act.PUT, box, None, s.source, 1, (origin, 0)))
    return tuple(found)


def given_reads(f: Frame, source: str, buffer: str, rank: int, first: int, end: int) -> list[Access]:
    """What tiles read of the own shard of `source` instead of its place in `buffer`."""
    return [
        Access(Act.NEED, Region(source, rank, 0, at, at + rows, 0, f.widths[buffer]), None, source, 1, (origin, 0))
        for at, origin, rows in f.held(source).runs(rank, first, end)
    ]  # fmt: skip


def _cut(op: OpSchedule, s: Staging, world: int, dims: Mapping[str, int]) -> Geometry:
    layout = next(p.shape[0].layout for p in op.parameters if p.name == s.source)
    return Geometry.of(s.rows, False, op.pad, dims, world, layout=layout)
