"""Progress with few resident programs: launches start their tasks in order, and a program stays until it finishes.

Programs only ever complete, so executing greedily whatever can go on is exact: if it stops, every execution stops
there. Launches of a call that nothing orders share a rank's resident programs; of their orders the plan's own and its
reverse are tried. One that starts beside the launch ahead gets programs that this one leaves.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from chunkdsl.check import plans
from chunkdsl.check.prove.graph import Graph, refute_cycle
from chunkdsl.check.prove.refutation import Findings, Refutation
from chunkdsl.check.prove.structure import brief, check_structure, who
from chunkdsl.plan.plan import Lane, Plan


def resident(plan: Plan, programs: int) -> list[Refutation]:
    """CD304 if the plan stops with `programs` (at least 1) programs resident on each rank.

    Lanes of one launch get programs in the order of `plan.lanes`, each up to its own number (0: the rest). A launch
    starts when what its first task comes `after` is complete. A malformed or cyclic plan gives those refutations.
    """
    found = check_structure(plan)
    if found:
        return found
    graph = Graph(plan)
    return refute_cycle(graph) or refute_residency(graph, programs)


def least_programs(plan: Plan) -> int:
    """Programs with which progress must hold: the largest launch's communication programs and one more."""
    own: dict[str, int] = {}
    for lane in plan.lanes:
        if _launched(lane):
            name = lane.launch or lane.name
            own[name] = own.get(name, 0) + _most(lane)
    return max(own.values(), default=0) + 1


def refute_residency(graph: Graph, programs: int) -> list[Refutation]:
    """`resident` for a graph without a cycle. ValueError if there is no program at all."""
    if programs < 1:
        raise ValueError(f"{programs} resident programs")
    run = _Execution(graph, programs, latest_first=False)
    if run.finished and run.contended:
        run = _Execution(graph, programs, latest_first=True)
    return [] if run.finished else run.explain()


def _launched(lane: Lane) -> bool:
    return bool(lane.launch) or not lane.serial


def _most(lane: Lane) -> int:
    """Programs that a lane holds at most; 0: all that are left."""
    return max(1, lane.programs) if lane.serial else lane.programs


@dataclass(eq=False)
class _Queue:
    """One lane of one launch: tasks not yet started, how much of the first is, and programs held."""

    most: int
    tasks: deque[int] = field(default_factory=deque)
    started: int = 0  # of the first task's `count`
    held: int = 0


@dataclass(eq=False)
class _Launch:
    name: str
    rank: int
    call: int
    queues: list[_Queue]
    behind: str = ""  # the launch whose programs must all run before one of this
    gate: int = 0  # causes of the start that are not complete
    open: bool = False


class _Execution:
    def __init__(self, graph: Graph, programs: int, latest_first: bool) -> None:
        self._graph, self._programs = graph, programs
        tasks = graph.plan.tasks
        self._launches: list[_Launch] = []
        self._of: list[tuple[_Launch, _Queue] | None] = [None] * len(tasks)
        self._gates: dict[int, list[_Launch]] = {}
        self._named: dict[tuple[int, int, str], _Launch] = {}
        self._form_launches()
        if latest_first:
            self._launches.reverse()
            self._launches.sort(key=lambda launch: launch.call)  # calls are issued in order
        self._on_rank: list[list[_Launch]] = [[] for _ in range(graph.plan.world)]
        for launch in self._launches:
            self._on_rank[launch.rank].append(launch)
        self._free = [programs] * graph.plan.world
        self._holds = [0] * len(tasks)  # programs held by a task
        self._done = [False] * len(tasks)
        self._missing = [len(x.after) + len(x.waits) + (graph.earlier[t] >= 0) for t, x in enumerate(tasks)]
        self._left = [len(g) for g in graph.givers]  # tasks that have yet to give a signal
        self.contended = False
        self._completed = 0
        self._ready = deque(t for t, m in enumerate(self._missing) if not m and self._of[t] is None)
        self._touched = set(range(graph.plan.world))  # ranks with programs to give or launches to start
        while self._ready or self._touched:
            while self._ready:
                self._complete(self._ready.popleft())
            if self._touched:  # nothing can complete: only now may a later launch come before an earlier one
                self._give(self._touched.pop())
        self.finished = self._completed == len(tasks)

    def _form_launches(self) -> None:
        plan = self._graph.plan
        lanes = {lane.name: lane for lane in plan.lanes if _launched(lane)}
        order = {name: i for i, name in enumerate(lanes)}
        members: dict[tuple[int, int, str], dict[str, _Queue]] = {}
        first: dict[tuple[int, int, str], int] = {}
        for t, task in enumerate(plan.tasks):
            lane = lanes.get(task.lane)
            if lane is None:
                continue
            key = task.rank, task.call, lane.launch or lane.name
            queues = members.setdefault(key, {})
            first.setdefault(key, t)
            queues.setdefault(lane.name, _Queue(_most(lane))).tasks.append(t)
        for key, queues in members.items():
            names = sorted(queues, key=order.__getitem__)
            launch = _Launch(key[2], key[0], key[1], [queues[name] for name in names], lanes[names[0]].behind)
            self._launches.append(launch)
            self._named[key] = launch
            for queue in launch.queues:
                for t in queue.tasks:
                    self._of[t] = launch, queue
            for a in plan.tasks[first[key]].after:
                launch.gate += 1
                self._gates.setdefault(a, []).append(launch)
            launch.open = not launch.gate

    def _give(self, rank: int) -> None:
        """Programs to the first open launch of a rank that takes any, and again once that led to whatever it can."""
        busy = [x for x in self._on_rank[rank] if x.open and any(q.tasks or q.held for q in x.queues)]
        launches = [x for x in busy if not self._comes_later(x)]
        self.contended = self.contended or len(launches) > 1
        for launch in launches:
            if self._serve(launch):
                self._touched.add(rank)
                return

    def _comes_later(self, launch: _Launch) -> bool:
        """Has the launch that it may start beside programs yet to start?"""
        ahead = self._named.get((launch.rank, launch.call, launch.behind)) if launch.behind else None
        return ahead is not None and any(q.tasks for q in ahead.queues)

    def _serve(self, launch: _Launch) -> bool:
        tasks, rank, taken_any = self._graph.plan.tasks, launch.rank, False
        for queue in launch.queues:
            while queue.tasks:
                room = self._free[rank]
                if queue.most:
                    room = min(room, queue.most - queue.held)
                if room <= 0:
                    break
                t = queue.tasks[0]
                left = tasks[t].count - queue.started
                waits = self._missing[t] > 0
                taken = min(room, left) if waits else 1  # without a wait the tiles pass one after another
                taken_any = True
                self._holds[t] += taken
                queue.held += taken
                self._free[rank] -= taken
                if not waits:
                    self._ready.append(t)
                elif taken < left:
                    queue.started += taken
                    break
                queue.tasks.popleft()
                queue.started = 0
        return taken_any

    def _complete(self, t: int) -> None:
        graph = self._graph
        task = graph.plan.tasks[t]
        self._done[t] = True
        self._completed += 1
        if self._of[t] is not None:
            _, queue = self._of[t]
            queue.held -= self._holds[t]
            self._free[task.rank] += self._holds[t]
            self._holds[t] = 0
            if queue.tasks and queue.tasks[0] == t:  # part of it had not started
                queue.tasks.popleft()
                queue.started = 0
            self._touched.add(task.rank)
        for f in graph.followers[t]:
            self._satisfy(f)
        for s in task.signals:
            self._left[s] -= 1
            if not self._left[s]:
                for f in graph.waiters[s]:
                    self._satisfy(f)
        for launch in self._gates.get(t, ()):
            launch.gate -= 1
            if not launch.gate:
                launch.open = True
                self._touched.add(launch.rank)

    def _satisfy(self, t: int) -> None:
        self._missing[t] -= 1
        if not self._missing[t] and (self._of[t] is None or self._holds[t]):
            self._ready.append(t)

    # ---- what stopped

    def explain(self) -> list[Refutation]:
        """CD304: a round of tasks, each waiting for the next or for the program that the next one holds."""
        tasks = self._graph.plan.tasks
        t = next((i for i, held in enumerate(self._holds) if held), self._done.index(False))
        seen: dict[int, int] = {}
        path: list[tuple[int, str]] = []
        while t not in seen:
            seen[t] = len(path)
            following, reason = self._obstacle(t)
            path.append((t, reason))
            t = following
        path = path[seen[t] :]
        lines = [f"with {self._programs} resident program{'s' * (self._programs > 1)} on each rank:"]
        for i, (x, reason) in enumerate(path):
            following = path[(i + 1) % len(path)][0]
            lines += [f"  {who(tasks[x])}", f"    {reason} {who(tasks[following])}"]
        holder = next((x for x, _ in path if self._holds[x]), path[0][0])
        victim = next((x for x, _ in path if not self._holds[x]), path[0][0])
        one, two = tasks[holder], tasks[victim]
        message = (
            f"with {self._programs} resident program{'s' * (self._programs > 1)} {brief(one)} waits for what cannot "
            f"start: {brief(two)}"
        )
        code, found = plans.programs_wait.code, Findings()
        found.add(code, 0, lambda: Refutation(code, message, "\n".join(lines), one.line, "holds a program and waits",
                                              two.line, "cannot start"))  # fmt: skip
        return found.refutations

    def _obstacle(self, t: int) -> tuple[int, str]:
        """What keeps t from completing, and how."""
        member = self._of[t]
        if member is not None and not self._holds[t]:
            launch, queue = member
            if not launch.open:
                gate = next(a for a, opens in self._gates.items() if launch in opens and not self._done[a])
                return gate, f"is in launch {launch.name}, which starts after"
            if queue.tasks[0] != t:
                return queue.tasks[0], "starts after"
            holder = next(
                (x for x, held in enumerate(self._holds) if held and self._of[x][1] is queue),
                None if queue.most and queue.held >= queue.most else
                next(x for x, held in enumerate(self._holds) if held and self._of[x][0].rank == launch.rank),
            )  # fmt: skip
            return holder, "needs the program held by"
        cause, reason = next((c, r) for c, r in self._graph.causes(t) if not self._done[c])
        return cause, f"waits ({reason}) for"
