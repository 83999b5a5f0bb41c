"""Typed program -> schedule. One op at a time; an op that cannot be scheduled is refused and left out."""

from __future__ import annotations

import hashlib

from chunkdsl.diagnostics import Report
from chunkdsl.ir.graph import Op, Program
from chunkdsl.lower.choices import NOTHING
from chunkdsl.lower.exchange import ExchangeBuilder, find_exchange, refuse_outside
from chunkdsl.lower.facts import Refused
from chunkdsl.lower.fuse import OpBuilder
from chunkdsl.plan.schedule import OpSchedule, Schedule
from chunkdsl.plan.settled import Settlement


def schedule_program(program: Program, report: Report, settled: Settlement = NOTHING) -> Schedule:
    """Schedule of every op that can be fused. What cannot is reported as CD5 or CD6 and missing from `ops`.

    `settled`: what the cost model found (cost.choose) for (collective or op, key of its policy); without it `auto`
    becomes what the fixed rules say."""
    kernels: set[str] = set()
    ops = tuple(s for op in program.ops if (s := schedule_op(op, program, report, kernels, settled)))
    return Schedule(
        path=program.source.path,
        digest=hashlib.sha256("\0".join((program.source.text, *program.imported)).encode()).hexdigest(),
        mesh=program.mesh,
        ranges=tuple(program.ranges.values()),
        ops=ops,
        gradients=tuple(g for g in program.gradients if {g.op, g.forward, g.backward} <= {op.name for op in ops}),
        tuning=settled.tuning,
    )


def schedule_op(
    op: Op, program: Program, report: Report, kernels: set[str], settled: Settlement = NOTHING
) -> OpSchedule | None:
    """`kernels`: names of launches that are taken; those of this op are added."""
    report.watch()
    try:
        reduction = find_exchange(op, program)
        if reduction is not None:
            return ExchangeBuilder(op, program, report, kernels, settled).build(reduction)
        if refuse_outside(op, program, report):
            return None
        return OpBuilder(op, program, report, kernels, settled).build()
    except Refused:
        return None
