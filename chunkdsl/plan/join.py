"""Plans of the subgroups of a mesh as one plan in ranks of the whole mesh. Derives nothing: it renumbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from chunkdsl.plan.plan import Access, Plan, Region, Task


def join_plans(parts: Sequence[tuple[Plan, Sequence[int]]], world: int) -> Plan:
    """One plan of `world` ranks. `parts`: plans of one op for the same calls, each with the rank in the mesh of its
    ranks 0, 1, ... Buffers and lanes are those of the first: all parts have the same. Masks of addends stay as they
    are, bits of ranks of a part, since no task touches two parts."""
    first, _ = parts[0]
    signals, tasks = [], []
    for plan, members in parts:
        said, done = len(signals), len(tasks)
        signals += [replace(s, owner=members[s.owner], signaller=members[s.signaller]) for s in plan.signals]
        tasks += [_moved(t, members, said, done) for t in plan.tasks]
    return replace(first, world=world, signals=tuple(signals), tasks=tuple(tasks))


def _moved(task: Task, members: Sequence[int], signals: int, tasks: int) -> Task:
    rank = members[task.rank]
    return replace(
        task,
        name=task.name.replace(f"rank {task.rank},", f"rank {rank},", 1),
        rank=rank,
        accesses=tuple([_placed(a, members) for a in task.accesses]),
        after=tuple([i + tasks for i in task.after]),
        waits=tuple([i + signals for i in task.waits]),
        signals=tuple([i + signals for i in task.signals]),
    )


def _placed(a: Access, members: Sequence[int]) -> Access:
    return replace(a, region=_region(a.region, members), source=a.source and _region(a.source, members))


def _region(r: Region, members: Sequence[int]) -> Region:
    return replace(r, rank=members[r.rank])
