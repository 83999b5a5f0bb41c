"""One call of an op as predicted: the timeline and its totals. Times in microseconds.

    total          from the start of the call until the last rank has ended it
    compute        the same plan, with every byte and signal there at once
    communication  the same plan, with kernels that start and compute at once
    exposed        total - compute: what communication adds
    hidden         1 - exposed / communication, from 0 to 1
    overlap        (compute + communication - total) / min(compute, communication): 1 if the shorter vanishes behind the
                   longer, 0 if they follow one another
    ideal          max(compute, communication): no plan of these parts is faster
    baseline       whole collectives and whole products, one after the other (baseline.py)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chunkdsl.cost.baseline import Stage, baseline
from chunkdsl.cost.constants import Machine, without_communication, without_compute
from chunkdsl.cost.simulate import Span, simulate
from chunkdsl.plan.plan import Plan
from chunkdsl.plan.schedule import OpSchedule

COMPUTES = frozenset(("tile", "reduce"))


@dataclass(frozen=True)
class Prediction:
    """`spans[i]` is that of `plan.tasks[i]`."""

    op: OpSchedule
    plan: Plan
    machine: Machine
    spans: tuple[Span, ...]
    total: float
    compute: float
    communication: float
    stages: tuple[Stage, ...]

    @property
    def exposed(self) -> float:
        return max(0.0, self.total - self.compute)

    @property
    def hidden(self) -> float:
        return max(0.0, 1 - self.exposed / self.communication) if self.communication else 1.0

    @property
    def overlap(self) -> float:
        shorter = min(self.compute, self.communication)
        return (self.compute + self.communication - self.total) / shorter if shorter else 1.0

    @property
    def ideal(self) -> float:
        return max(self.compute, self.communication)

    @property
    def baseline(self) -> float:
        return sum(stage.us for stage in self.stages)

    @property
    def speedup(self) -> float:
        return self.baseline / self.total

    def stood_still(self, i: int) -> float:
        """Since when task `i` stood still for communication: tiles for chunks of other ranks, the stream for other
        ranks, for copies, or for programs that still carry chunks when the tiles are done. Its start if it did not."""
        task, span = self.plan.tasks[i], self.spans[i]
        if task.lane == "main":
            computed = [self.spans[t].end for t in task.after if self.plan.tasks[t].kind in COMPUTES]
            carried = task.waits or any(self.plan.tasks[t].kind == "move" for t in task.after)
            return min(span.start, max([span.idle_from, *computed])) if carried else span.start
        return span.idle_from if task.kind in COMPUTES and task.waits else span.start


def predict(op: OpSchedule, plan: Plan, machine: Machine) -> Prediction:
    """`plan` is `op` unrolled for one call. simulate.Stuck if the plan cannot end."""
    dims: Mapping[str, int] = dict(plan.calls[0])
    spans = tuple(simulate(op, plan, machine))
    return Prediction(
        op,
        plan,
        machine,
        spans,
        ending(spans),
        ending(simulate(op, plan, without_communication(machine))),
        ending(simulate(op, plan, without_compute(machine))),
        baseline(op, plan.world, dims, machine),
    )


def ending(spans) -> float:
    """When the last task ends."""
    return max(span.end for span in spans)
