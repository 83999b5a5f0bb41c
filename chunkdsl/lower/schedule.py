"""Typed program -> schedule. One op at a time; an op that cannot be scheduled is refused and left out."""

from __future__ import annotations

import hashlib

from chunkdsl.diagnostics import Report
from chunkdsl.ir.graph import Op, Program
from chunkdsl.lower.fuse import OpBuilder
from chunkdsl.plan.schedule import OpSchedule, Schedule


def schedule_program(program: Program, report: Report) -> Schedule:
    """Schedule of every op that can be fused. What cannot is reported as CD5 or CD6 and missing from `ops`."""
    kernels: set[str] = set()
    ops = tuple(s for op in program.ops if (s := schedule_op(op, program, report, kernels)))
    mesh = program.mesh.axes[0] if program.mesh.axes else None
    return Schedule(
        path=program.source.path,
        digest=hashlib.sha256("\0".join((program.source.text, *program.imported)).encode()).hexdigest(),
        axis=mesh.name if mesh else "",
        link=mesh.link if mesh else None,
        world=mesh.size if mesh else 1,
        ranges=tuple(program.ranges.values()),
        ops=ops,
    )


def schedule_op(op: Op, program: Program, report: Report, kernels: set[str]) -> OpSchedule | None:
    """`kernels`: names of launches that are taken; those of this op are added."""
    return OpBuilder(op, program, report, kernels).build()
