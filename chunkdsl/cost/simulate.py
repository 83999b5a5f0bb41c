"""Plays one call of a plan out: when each task of each rank starts and ends. Deterministic; judges no plan.

Tasks are served lane by lane in turn, always the first of a lane whose waits are known. That order follows from the
plan alone, never from the times, so more bandwidth cannot reorder anything (servers.py says why that matters). A turn
is a wave of programs or TURN bytes of a copy: whoever shares a link shares it fairly, however large chunks are. A
launch that starts beside one of tiles is served behind it: it gets the multiprocessors that this one leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chunkdsl.cost.constants import Machine
from chunkdsl.cost.exchanges import ExchangeWork
from chunkdsl.cost.servers import Links, Programs
from chunkdsl.cost.work import Cost, Work
from chunkdsl.plan.plan import Plan, Task
from chunkdsl.plan.schedule import OpSchedule

TURN = 2 << 20


@dataclass(frozen=True, slots=True)
class Span:
    """When a task ran, in microseconds from the start of the call. `idle_from`: since when its lane, or the first of
    its programs, stood still for what it waits for; equal to `start` where nothing stood still. `idle`: how much of the
    lane did so, from 0 to 1. `bytes` crossed the link."""

    task: int
    idle_from: float
    start: float
    end: float
    bytes: int
    idle: float = 1.0


class Stuck(Exception):
    """No task that is left can go on: the plan waits for signals that nobody gives. A proof would have said so."""


def simulate(op: OpSchedule, plan: Plan, machine: Machine) -> list[Span]:
    """A span for every task, in the order of `plan.tasks`. `plan` is of one call. Stuck if it cannot end."""
    return _Run(op, plan, machine).run()


class _Run:
    def __init__(self, op: OpSchedule, plan: Plan, machine: Machine) -> None:
        self.plan, self.machine = plan, machine
        self.work = (ExchangeWork if op.exchange else Work)(op, plan, machine)
        self.spans: list[Span | None] = [None] * len(plan.tasks)
        self.given: dict[int, float] = {}  # signal -> when the last task that gives it ended
        self.missing = [0] * len(plan.signals)  # tasks that have yet to give it
        self.heard: list[list[int]] = [[] for _ in plan.signals]  # tasks that wait for it
        self.pending = [0] * len(plan.tasks)  # signals that a task still waits for
        self.lanes: dict[tuple[int, str], list[int]] = {}
        for i, task in enumerate(plan.tasks):
            self.lanes.setdefault((task.rank, self.work.queue(i)), []).append(i)
            for s in task.signals:
                self.missing[s] += 1
        for i, task in enumerate(plan.tasks):
            for s in task.waits:
                if self.missing[s]:
                    self.heard[s].append(i)
                    self.pending[i] += 1
        self.serial = {lane.name: lane.serial for lane in plan.lanes}
        self.free: dict[tuple[int, str], float] = {}  # serial lanes
        self.programs: dict[tuple[int, str], Programs] = {}
        behind = {lane.name for lane in plan.lanes if lane.behind}
        self.beside = {key: (key[0], self.work.beside(key[1])) for key in self.lanes if key[1] in behind}
        self.cpu = self._enqueued()
        self.links = Links(machine)

    def run(self) -> list[Span]:
        ahead = {key: 0 for key in self.lanes}
        serving: dict[tuple[int, str], Iterator[Span | None]] = {}
        while ahead:
            moved = False
            for key in list(ahead):
                if self.beside.get(key) in ahead:
                    continue
                i = self.lanes[key][ahead[key]]
                if key not in serving:
                    if self.pending[i] or not all([self.spans[t] for t in self.plan.tasks[i].after]):
                        continue
                    serving[key] = self._serve(key, i)
                span, moved = next(serving[key]), True
                if span is None:
                    continue
                self._finish(i, span)
                del serving[key]
                ahead[key] += 1
                if ahead[key] == len(self.lanes[key]):
                    del ahead[key]
            if not moved:
                heads = [self.plan.tasks[self.lanes[key][at]] for key, at in ahead.items()]
                waiting = [t for t in heads if any(self.missing[s] for s in t.waits)]
                raise Stuck((waiting or heads)[0].name)
        return self.spans

    def _ready(self, task: Task) -> float:
        at = max([self.spans[t].end for t in task.after], default=0.0)
        for s in task.waits:
            at = max(at, self.given.get(s, 0.0) + self.work.trip_us(task, self.plan.signals[s]))
        return at

    def _serve(self, key: tuple[int, str], i: int) -> Iterator[Span | None]:
        """None as often as others get their turn in between, then the span."""
        task = self.plan.tasks[i]
        cost, ready = self.work.cost(task), self._ready(task)
        if self.serial[task.lane]:
            return self._stream(key, i, task, cost, max(ready, self.cpu.get(i, 0.0)))
        return self._tiles(key, i, task, cost, ready)

    def _finish(self, i: int, span: Span) -> None:
        self.spans[i] = span
        for s in self.plan.tasks[i].signals:
            self.missing[s] -= 1
            self.given[s] = max(self.given.get(s, 0.0), span.end)
            if not self.missing[s]:
                for waiting in self.heard[s]:
                    self.pending[waiting] -= 1

    def _stream(self, key: tuple[int, str], i: int, task: Task, cost: Cost, ready: float) -> Iterator[Span | None]:
        forked = max([self.spans[t].end for t in task.after], default=0.0) if key[1] != "main" else 0.0
        free = max(self.free.get(key, 0.0), forked)
        start = max(free, ready)
        offered = max(free, ready + cost.head_us)  # while the lane is busy the next copy is got ready
        end = offered + cost.each_us
        turns = -(-cost.bytes // TURN)
        for turn in range(turns):
            for source, destination, size in cost.routes:
                end = max(end, self.links.carry(offered, source, destination, size / turns, cost.how))
            if turn < turns - 1:
                yield None
        end += cost.tail_us
        self.free[key] = end
        yield Span(i, free, start, end, cost.bytes)

    def _tiles(self, key: tuple[int, str], i: int, task: Task, cost: Cost, ready: float) -> Iterator[Span | None]:
        if key not in self.programs:
            self.programs[key] = self._programs(key)
        width = self.work.programs(task.lane, task.rank)
        begun = max([self.spans[t].end for t in task.after], default=0.0) + self.work.begin_us
        ready = max(ready, begun)
        idle, first, last, still, beside = None, None, ready, 0, key in self.beside
        programs, wave = self.programs[key], width if cost.routes else cost.count
        for done in range(0, cost.count, wave):
            for since, count in programs.take(min(wave, cost.count - done)):
                since = max(since, begun)
                start = since if cost.late else max(since, ready)
                end = start + cost.each_us
                made = max(end, ready)
                offered, limit = (start, made) if cost.early else (made, made + cost.tail_us)
                for source, destination, size in cost.routes:
                    part = size * count / cost.count
                    limit = max(limit, self.links.carry(offered, source, destination, part, cost.how, beside))
                programs.give(limit if cost.held else max(end, limit - cost.each_us), count)
                still += count * (since < start)
                idle = since if idle is None else idle
                first = start if first is None else first
                last = max(last, limit)
            if done + wave < cost.count:
                yield None
        yield Span(i, idle, first, last + cost.settle_us, cost.bytes, min(1.0, still / width))

    def _programs(self, key: tuple[int, str]) -> Programs:
        """Of a lane beside another those that this one spares, and its own as they have no tile left."""
        rank, lane = key
        root = self.beside.get(key)
        if root not in self.programs:
            return Programs(self.work.programs(lane, rank))
        return Programs(self.work.spare(root[1], rank), self.programs[root].free)

    def _enqueued(self) -> dict[int, float]:
        """When the CPU has enqueued each kernel and copy, for calls outside a CUDA graph: in stream order, a copy
        taking two operations (data and flag)."""
        clock: dict[int, float] = {}
        made: dict[int, float] = {}
        if self.machine.captured:
            return made
        k = self.machine.kernels
        for i, task in enumerate(self.plan.tasks):
            if not self.serial[task.lane]:
                continue
            kernel = task.kind in ("start", "stage") or (task.kind == "barrier" and task.signals)
            spent = 2 * k.enqueue_cpu_us if task.lane != "main" else k.launch_cpu_us if kernel else 0.0
            made[i] = clock[task.rank] = clock.get(task.rank, 0.0) + spent
        return made
