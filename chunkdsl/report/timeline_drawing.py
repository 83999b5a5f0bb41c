"""A prediction laid out: which bar stands in which row of which rank, what its hover text says. Draws nothing.

Rows of a rank: its stream, its copy lanes, its communication programs, its compute programs (of all launches, which
follow one another), or those of its exchange, which send and add. Tasks of programs run side by side, so a lane has as
many rows as tasks at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from chunkdsl.cost.lanes import lane_namer, place
from chunkdsl.cost.predict import Prediction
from chunkdsl.plan.footprint import ITEM
from chunkdsl.plan.plan import Act, Plan, Task
from chunkdsl.plan.summary import moved
from chunkdsl.report.plan_text import size_text


@dataclass(frozen=True)
class Bar:
    """Task `task` from `start` to `end` microseconds in row `row` of its track; `source` is the rank whose rows it
    carries or computes, None where it has none."""

    task: int
    row: int
    start: float
    end: float
    kind: str
    source: int | None
    text: str
    waits: tuple[int, ...]
    signals: tuple[int, ...]


@dataclass(frozen=True)
class Wait:
    """From `start` to `end` a part of the track, from 0 to 1, stood still for communication."""

    task: int
    start: float
    end: float
    part: float
    text: str
    row: int | None = None  # in which the part stands; None: at the foot of the track


@dataclass
class Track:
    """One lane of one rank."""

    name: str
    bars: list[Bar] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)  # of the last bar of each row

    def row(self, start: float, end: float) -> int:
        """The first row that is free at `start`; it is taken until `end`."""
        for row, until in enumerate(self.ends):
            if until <= start + 1e-9:
                self.ends[row] = end
                return row
        self.ends.append(end)
        return len(self.ends) - 1

    @property
    def rows(self) -> int:
        return max(1, len(self.ends))


def tracks(p: Prediction) -> list[dict[str, Track]]:
    """For each rank its tracks by name, in order. Every task of the plan has one bar."""
    heights = {b.name: max(1, b.rows // p.plan.world) for b in p.plan.buffers}
    kinds = {b.name: b.kind for b in p.plan.buffers}
    lane_of = lane_namer(p.plan)
    named = signal_texts(p.plan)
    found: list[dict[str, Track]] = [{} for _ in range(p.plan.world)]
    order = sorted(range(len(p.plan.tasks)), key=lambda i: (p.spans[i].start, i))
    for i in order:
        task, span = p.plan.tasks[i], p.spans[i]
        name = lane_of(task)
        track = found[task.rank].setdefault(name, Track(name))
        source = source_of(task, heights, kinds)
        row = track.row(span.start, span.end)
        text = hover(p, i, named)
        kind = task.kind + " outer" * crosses(p, task)
        track.bars.append(Bar(i, row, span.start, span.end, kind, source, text, task.waits, task.signals))
        since = p.stood_still(i)
        if since < span.start:
            stood = f"rank {task.rank}: {span.start - since:.1f} us of exposed communication\nbefore it {label(task)}"
            alone = row if task.lane.endswith(" blocks") else None
            track.waits.append(Wait(i, since, span.start, span.idle, stood, alone))
    return [dict(sorted(ranks.items(), key=lambda item: place(item[0]))) for ranks in found]


def label(task: Task) -> str:
    """The task's name without its rank and call, which its place shows."""
    return task.name.partition(": ")[2] or task.name


def source_of(task: Task, heights: dict[str, int], kinds: dict[str, str]) -> int | None:
    """Whose rows a task carries or works on: the rank that has that shard before a gather or after a reduction."""
    if task.kind in ("stage", "reduce"):
        return task.rank
    if task.kind == "move":
        taken = [a.source for a in task.accesses if a.source is not None]
        if task.lane.endswith(" blocks") or (taken and kinds[taken[0].buffer] == "input"):
            return task.rank
        return taken[0].row0 // heights[taken[0].buffer] if taken else None
    if task.kind != "tile":
        return None
    for a in task.accesses:
        if a.act is Act.NEED and kinds[a.region.buffer] in ("input", "symmetric"):
            shard = a.region.row0 // heights[a.region.buffer]
            return task.rank if kinds[a.region.buffer] == "input" else shard
    for a in task.accesses:
        if a.act is not Act.NEED:
            region = a.region
            return region.rank if region.rank != task.rank else region.row0 // heights[region.buffer]
    return None


def signal_texts(plan: Plan) -> list[str]:
    """What a person calls each signal."""
    return [f"{s.flags} {s.label} on rank {s.owner}, set by rank {s.signaller}" for s in plan.signals]


def hover(p: Prediction, i: int, named: list[str]) -> str:
    """Lines about a task: what, when, how much, what it waits for and what it signals."""
    task, span = p.plan.tasks[i], p.spans[i]
    lines = [f"rank {task.rank}: {label(task)}", f"{span.start:.1f} to {span.end:.1f} us ({span.end - span.start:.1f})"]
    if task.count > 1:
        lines.append(f"{task.count} {'pieces' if task.kind == 'move' else 'tiles'}")
    if span.bytes:
        lines += [f"{size_text(size)} over {name}" for name, size in carried(p, task).items()]
    if (still := span.start - p.stood_still(i)) > 0:
        lines.append(f"waited {still:.1f} us for communication")
    lines += [f"waits for {named[s]}" for s in shortened(task.waits)]
    lines += [f"signals {named[s]}" for s in shortened(task.signals)]
    more = max(0, len(task.waits) - SHOWN) + max(0, len(task.signals) - SHOWN)
    if more:
        lines.append(f"and {more} more signals")
    lines.append(f"line {task.line} of {p.plan.spec}")
    return "\n".join(lines)


def carried(p: Prediction, task: Task) -> dict[str, int]:
    """Bytes of a task by the link that they cross."""
    sizes = {b.name: ITEM[b.dtype] for b in p.plan.buffers}
    found: dict[str, int] = {}
    for _, source, destination, size in moved(task, sizes):
        name = p.machine.between(source, destination).name
        found[name] = found.get(name, 0) + size
    return {name: size for name, size in found.items() if size}


def crosses(p: Prediction, task: Task) -> bool:
    """It carries something over the link of the outer axis."""
    outer = p.machine.outer
    return outer is not None and outer.name != p.machine.link.name and outer.name in carried(p, task)


SHOWN = 8  # signals of each kind in a hover text


def shortened(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return numbers[:SHOWN]


def ticks(total: float) -> Iterator[float]:
    """Round times from 0 up to `total`, eight to sixteen of them."""
    step = 10.0 ** -2
    for factor in (2, 2.5, 2) * 12:
        if total / step <= 16:
            break
        step *= factor
    at = 0
    while at * step <= total:
        yield at * step
        at += 1
