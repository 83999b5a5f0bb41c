"""Predicted time per rank and lane: how long each lane works, until when, and how long it stands still for
communication.

A lane is what a person watches on a GPU: its stream, its copy engines, the programs that carry chunks, those that
compute, or those of a small all-reduce, which do both.
"""

from __future__ import annotations

from collections.abc import Iterable

from chunkdsl.cost.predict import Prediction
from chunkdsl.plan.plan import Plan, Task
from chunkdsl.record import record

ORDER = ("stream", "copy engine", "communication", "compute", "exchange")


@record
class LaneTime:
    """Microseconds. `busy`: with at least one task running; `exposed`: its stand-stills for communication, each counted
    for the part of the lane that stood still; `end`: when its last task ends."""

    rank: int
    lane: str
    busy: float
    exposed: float
    end: float


def lane_namer(plan: Plan):
    """task -> the name of its lane. One copy lane is `copy engine`; of several each keeps its name."""
    copying = [lane.name for lane in plan.lanes if lane.serial and not lane.launch and lane.name != "main"]
    kept = {lane.name for lane in plan.lanes if lane.programs}

    def name(task: Task) -> str:
        if task.lane == "main":
            return ORDER[0]
        if task.lane.endswith(" blocks"):
            return ORDER[4]
        if task.lane in copying:
            return ORDER[1] if len(copying) == 1 else task.lane
        return ORDER[2 if task.lane in kept else 3]

    return name


def place(lane: str) -> tuple[int, str]:
    """Sorts names of lanes."""
    return (ORDER.index(lane) if lane in ORDER else 1, lane)


def lane_times(p: Prediction) -> tuple[LaneTime, ...]:
    """By rank, then lane."""
    name = lane_namer(p.plan)
    found: dict[tuple[int, str], list[int]] = {}
    for i, task in enumerate(p.plan.tasks):
        found.setdefault((task.rank, name(task)), []).append(i)
    made = []
    for rank, lane in sorted(found, key=lambda key: (key[0], place(key[1]))):
        tasks = found[rank, lane]
        spans = [p.spans[i] for i in tasks]
        stood = sum(max(0.0, s.start - p.stood_still(s.task)) * s.idle for s in spans)
        made.append(LaneTime(rank, lane, covered((s.start, s.end) for s in spans), stood, max(s.end for s in spans)))
    return tuple(made)


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """The length of the union."""
    total, until = 0.0, 0.0
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total
