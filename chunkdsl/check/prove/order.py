"""Happens-before, asked while walking the topological order: does task a complete before task t starts?

Vector clocks (Fidge, Mattern 1988) over serial lanes only. A task on no such lane has no place in them; it is before t
if one of the first serial tasks after it is, or if t is reached from it over tasks without a clock alone.
Clocks are shared between tasks that know the same, which is most tiles.
"""

from __future__ import annotations

from collections.abc import Iterator

from chunkdsl.check.prove.graph import Graph


class Clocks:
    """Call `enter(t)` for each task in `graph.order`, then `before(a, t)` for the task just entered."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: list[list[int] | None] = [None] * len(graph.plan.tasks)
        self._signal: list[list[int] | None] = [None] * len(graph.plan.signals)
        self._zero = [0] * graph.strands
        self._now: list[int] = self._zero

    def enter(self, t: int) -> None:
        """The clock of t: everything its causes know, and itself if its lane has a clock."""
        graph, known = self._graph, self._known
        task = graph.plan.tasks[t]
        strand, position = graph.strand, graph.position
        first, others = self._zero, None
        earlier = graph.earlier[t]
        if earlier >= 0:
            first = known[earlier]
        for a in task.after:
            clock = known[a]
            if clock is first:
                continue
            if first is self._zero:
                first = clock
            elif strand[a] < 0 or first[strand[a]] < position[a]:
                others = others or {}
                others[id(clock)] = clock
        for s in task.waits:
            givers = graph.givers[s]
            clock = known[givers[0]] if len(givers) == 1 else self._signal[s] or self._join(s)
            if clock is first:
                continue
            if first is self._zero:
                first = clock
            else:
                others = others or {}
                others[id(clock)] = clock
        clock = list(map(max, first, *others.values())) if others else first
        if strand[t] >= 0:
            if clock is first:
                clock = clock.copy()
            clock[strand[t]] = position[t]
        known[t] = self._now = clock

    def before(self, a: int, t: int) -> bool:
        """Exact for tasks a entered before t; t is the task entered last."""
        graph, now = self._graph, self._now
        strand, position, place, tasks = graph.strand, graph.position, graph.place, graph.plan.tasks
        lane = strand[a]
        if lane >= 0:
            return now[lane] >= position[a]
        limit, queue, seen = place[t], [a], {a}
        for x in queue:
            for group in (graph.followers[x], *(graph.waiters[s] for s in tasks[x].signals)):
                for y in group:
                    if y == t:
                        return True
                    lane = strand[y]
                    if lane >= 0:
                        if now[lane] >= position[y]:
                            return True
                    elif y not in seen and place[y] < limit:
                        seen.add(y)
                        queue.append(y)
        return False

    def _join(self, s: int) -> list[int]:
        distinct = {id(self._known[g]): self._known[g] for g in self._graph.givers[s]}
        clocks = list(distinct.values())
        joined = list(map(max, *clocks)) if len(clocks) > 1 else clocks[0]
        self._signal[s] = joined
        return joined


def path_to(graph: Graph, t: int, rank: int) -> list[tuple[int, str]]:
    """The last task of `rank` that happens before t, and the way from it: (task, reason it is before the next) ...,
    (t, ""). Only t itself if nothing of that rank is before it."""
    toward: dict[int, tuple[int, str]] = {}
    queue = [t]
    for x in queue:
        for cause, reason in graph.causes(x):
            if cause not in toward:
                toward[cause] = x, reason
                queue.append(cause)
    best = max((x for x in toward if graph.plan.tasks[x].rank == rank), key=graph.place.__getitem__, default=t)
    return list(_walk(toward, best, t))


def _walk(toward: dict[int, tuple[int, str]], x: int, t: int) -> Iterator[tuple[int, str]]:
    while x != t:
        following, reason = toward[x]
        yield x, reason
        x = following
    yield t, ""
