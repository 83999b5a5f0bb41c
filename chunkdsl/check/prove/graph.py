"""The order of a plan: what comes before what, one topological order, and the deadlock where there is none.

Edges: the order of a serial lane, `after`, and from each task that gives a signal to each that waits for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from chunkdsl.check import plans
from chunkdsl.check.prove.refutation import Refutation
from chunkdsl.check.prove.structure import who
from chunkdsl.plan.plan import Plan

LANES_WITH_CLOCKS = 128  # in all; at least two on each rank


class Graph:
    """Edges of a well-formed plan. Tasks and signals are named by their index.

    followers[t]   tasks after t by `after` or by a serial lane (not by signals)
    earlier[t]     the task before t on its serial lane, or -1
    givers[s], waiters[s]   tasks that give and that wait for signal s
    order, place   a topological order, the plan's own where that is one, and each task's place in it;
                   shorter than the plan if there is a cycle
    strand, position   of tasks on a lane that has a clock: the lane's number and the 1-based place on it; else -1, 0
    """

    def __init__(self, plan: Plan) -> None:
        tasks, n = plan.tasks, len(plan.tasks)
        self.plan = plan
        self.followers: list[list[int]] = [[] for _ in range(n)]
        self.earlier = [-1] * n
        self.givers: list[list[int]] = [[] for _ in plan.signals]
        self.waiters: list[list[int]] = [[] for _ in plan.signals]
        serial = {lane.name for lane in plan.lanes if lane.serial}
        last: dict[tuple[int, str], int] = {}
        for t, task in enumerate(tasks):
            for a in task.after:
                self.followers[a].append(t)
            if task.lane in serial:
                key = task.rank, task.lane
                before = last.get(key, -1)
                if before >= 0:
                    self.followers[before].append(t)
                    self.earlier[t] = before
                last[key] = t
            for s in task.signals:
                self.givers[s].append(t)
            for s in task.waits:
                self.waiters[s].append(t)
        self.order = self._topological()
        self.place = [n] * n
        for i, t in enumerate(self.order):
            self.place[t] = i
        self._number_lanes(serial)

    @property
    def cyclic(self) -> bool:
        return len(self.order) < len(self.plan.tasks)

    def causes(self, t: int) -> Iterator[tuple[int, str]]:
        """Tasks directly before t, each with the reason."""
        task = self.plan.tasks[t]
        if self.earlier[t] >= 0:
            yield self.earlier[t], f"order of lane {task.lane}"
        for a in task.after:
            yield a, "stream order"
        for s in task.waits:
            signal = self.plan.signals[s]
            label = f" ({signal.label})" if signal.label else ""
            reason = f"signal {signal.flags}[{signal.index}] on rank {signal.owner}{label}"
            for g in self.givers[s]:
                yield g, reason

    def _topological(self) -> list[int]:
        """Kahn's algorithm; ties go to the plan's order, so that counterexamples read like the plan."""
        tasks = self.plan.tasks
        last = [max(g, default=-1) for g in self.givers]
        if all(last[s] < t for t, task in enumerate(tasks) for s in task.waits):
            return list(range(len(tasks)))
        missing = [len(x.after) + len(x.waits) + (self.earlier[t] >= 0) for t, x in enumerate(tasks)]
        unsignalled = [len(g) for g in self.givers]
        ready, order = [t for t, m in enumerate(missing) if not m], []
        heapify(ready)
        while ready:
            t = heappop(ready)
            order.append(t)
            freed = list(self.followers[t])
            for s in tasks[t].signals:
                unsignalled[s] -= 1
                if not unsignalled[s]:
                    freed += self.waiters[s]
            for f in freed:
                missing[f] -= 1
                if not missing[f]:
                    heappush(ready, f)
        return order

    def _number_lanes(self, serial: set[str]) -> None:
        """Which serial lanes get a clock. All, or the first of each rank if they are many; this decides speed only."""
        tasks = self.plan.tasks
        allowed = max(2, LANES_WITH_CLOCKS // max(1, self.plan.world))
        numbers: dict[tuple[int, str], int] = {}
        used: Counter[int] = Counter()
        length: list[int] = []
        self.strand, self.position = [-1] * len(tasks), [0] * len(tasks)
        for t in self.order:
            task = tasks[t]
            if task.lane not in serial:
                continue
            key = task.rank, task.lane
            number = numbers.get(key)
            if number is None:
                if used[task.rank] == allowed:
                    continue
                number = numbers[key] = len(length)
                used[task.rank] += 1
                length.append(0)
            length[number] += 1
            self.strand[t], self.position[t] = number, length[number]
        self.strands = len(length)


def refute_cycle(graph: Graph) -> list[Refutation]:
    """CD303 with the shortest round found from the first task that cannot start, or nothing."""
    if not graph.cyclic:
        return []
    tasks, stuck = graph.plan.tasks, set(range(len(graph.plan.tasks))) - set(graph.order)
    t, seen, path = min(stuck), {}, []
    while t not in seen:
        seen[t] = len(path)
        cause, reason = next((c, r) for c, r in graph.causes(t) if c in stuck)
        path.append((t, cause, reason))
        t = cause
    path = path[seen[t] :]
    lines = ["these tasks wait for each other for ever:"]
    for task, cause, reason in path:
        lines.append(f"  {who(tasks[task])}")
        lines.append(f"    waits for {who(tasks[cause])}: {reason}")
    first = tasks[path[0][0]]
    other = next((tasks[c] for _, c, _ in path if tasks[c].line != first.line), first)
    message = f"{who(first)} waits for itself, through {len(path) - 1} other task{'s' * (len(path) != 2)}"
    return [
        Refutation(
            plans.cyclic_wait.code, message, "\n".join(lines), first.line, "waits here", other.line, "and for this"
        )
    ]
