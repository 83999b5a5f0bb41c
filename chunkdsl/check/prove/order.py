"""Happens-before, asked while walking the topological order: does task a complete before task t starts?

Vector clocks (Fidge, Mattern 1988) over serial lanes only. A task on no such lane has no place in them; it is before t
if one of the first serial tasks after it is, or if t is reached from it over tasks without a clock alone.
Only serial tasks keep a clock; the others keep the last serial tasks before them, which most tiles share.
"""

from __future__ import annotations

from collections.abc import Iterator

from chunkdsl.check.prove.graph import Graph


class Clocks:
    """Call `enter(t)` for each task in `graph.order`, then `before(a, t)` for the task just entered.

    A front maps lanes to places on them: the last serial tasks that are before a task, nothing between. It is enough
    for most questions; a clock is the elementwise maximum of the clocks of a front.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._fronts: list[dict[int, int]] = [{}] * len(graph.plan.tasks)  # of what comes after each task
        self._signals: list[dict[int, int] | None] = [None] * len(graph.plan.signals)
        self._clocks: list[list[list[int]]] = [[] for _ in range(graph.strands)]  # by lane and place on it
        self._front: dict[int, int] = {}  # of the task entered last
        self._clock: list[int] | None = None

    def enter(self, t: int) -> None:
        graph, fronts = self._graph, self._fronts
        task, lane = graph.plan.tasks[t], graph.strand[t]
        parts = [fronts[graph.earlier[t]]] if graph.earlier[t] >= 0 else []
        parts += [fronts[a] for a in task.after]
        for s in task.waits:
            givers = graph.givers[s]
            parts.append(fronts[givers[0]] if len(givers) == 1 else self._published(s))
        self._front, self._clock = _union(parts), None
        if lane < 0:
            fronts[t] = self._front
            return
        clock = self._now().copy()
        clock[lane] = graph.position[t]
        self._clocks[lane].append(clock)
        self._clock = clock
        fronts[t] = {lane: graph.position[t]}

    def before(self, a: int, t: int) -> bool:
        """Exact for a task a entered before t, the one entered last."""
        graph = self._graph
        strand, position, place, tasks = graph.strand, graph.position, graph.place, graph.plan.tasks
        if strand[a] >= 0:
            return self._knows(strand[a], position[a])
        limit, queue, seen = place[t], [a], {a}
        for x in queue:
            for group in (graph.followers[x], *[graph.waiters[s] for s in tasks[x].signals]):
                for y in group:
                    if y == t:
                        return True
                    if strand[y] >= 0:
                        if place[y] < limit and self._knows(strand[y], position[y]):
                            return True
                    elif y not in seen and place[y] < limit:
                        seen.add(y)
                        queue.append(y)
        return False

    def _knows(self, lane: int, position: int) -> bool:
        if self._front.get(lane, 0) >= position:
            return True
        return (self._clock or self._now())[lane] >= position

    def _now(self) -> list[int]:
        """The clock of the front of the task entered last. What is before it on its own lane comes first and knows
        most of the rest."""
        clocks, base, more = self._clocks, None, []
        for lane, position in self._front.items():
            clock = clocks[lane][position - 1]
            if base is None:
                base = clock
            elif base[lane] < position:
                more.append(clock)
        if base is None:
            base = [0] * self._graph.strands
        self._clock = list(map(max, base, *more)) if more else base
        return self._clock

    def _published(self, s: int) -> dict[int, int]:
        front = self._signals[s]
        if front is None:
            front = self._signals[s] = _union([self._fronts[g] for g in self._graph.givers[s]])
        return front


def _union(fronts: list[dict[int, int]]) -> dict[int, int]:
    """The furthest place on each lane. One of the given objects if the others add nothing: fronts are shared."""
    if not fronts:
        return {}
    result, own = fronts[0], False
    for front in fronts:
        if front is result:
            continue
        for lane, position in front.items():
            if result.get(lane, 0) < position:
                if not own:
                    result, own = result.copy(), True
                result[lane] = position
    return result


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
