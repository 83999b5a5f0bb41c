"""What the tasks of a small all-reduce cost: latencies of its forms, words over the link, passes over local memory.

One launch: its programs take block after block, and each block sends, waits and adds. A call of few words is a sum of
latencies (data/kernels.toml and `word_us` of data/links.toml). A program with several blocks has one behind the other:
words travel while it waits for others, so that only what of a trip outlasts the link counts again; a flag is released
behind all stores of its block, so that a block with flags costs its trips anew. Not modelled: contention between the
blocks of one multiprocessor, and the switch (`via = multimem`), which has not been run.
"""

from __future__ import annotations

from chunkdsl.cost.constants import Machine
from chunkdsl.cost.work import Cost, Work
from chunkdsl.ir.types import evaluate
from chunkdsl.plan.exchange_shape import shape_of
from chunkdsl.plan.footprint import ITEM
from chunkdsl.plan.plan import Plan, Signal, Task
from chunkdsl.plan.schedule import OpSchedule

TURNS = 8  # in which a group's words are offered to the links: all ranks send at once, and none is served first


class ExchangeWork(Work):
    """A task stands for a group of blocks that run side by side; the later blocks of its programs stand with the last
    task of the group, which adds or takes words."""

    def __init__(self, op: OpSchedule, plan: Plan, machine: Machine) -> None:
        super().__init__(op, plan, machine)
        self.x, self.kernels = op.exchange, machine.kernels
        self.shape = shape_of(op, plan.world, self.dims, machine.gpu.multiprocessors)
        self.form, self.begin_us = self.shape.form.name, machine.kernels.exchange_us
        self.rounds = 2 if self.x.algorithm == "two_shot" else 1
        row = evaluate(self.x.cols.size, self.dims) * ITEM[self.x.dtype] // 4
        self.words = row if self.x.rowwise else self.shape.block
        self.item = 8 if self.form == "word" else 4
        self.flags = self.form in ("flag", "speculative")

        self.queues, group = [], {}
        for task in plan.tasks:
            group[task.rank] = group.get(task.rank, 0) + (task.kind == "move")
            self.queues.append(task.lane if task.lane == "main" else f"{task.lane} {group[task.rank]}")

    def queue(self, i: int) -> str:
        """A group's tasks follow one another, and no group waits for the programs of another."""
        return self.queues[i]

    def programs(self, lane: str, rank: int) -> int:
        return 1

    def trip_us(self, task: Task, signal: Signal) -> float:
        return self.machine.link.word_us

    def cost(self, task: Task) -> Cost:
        if task.lane == "main":
            return Cost(self.kernels.null_us if task.kind == "start" else 0.0)
        if task.kind == "move":
            routes = self._routes(task)
            return Cost(self._block_us(routes) / TURNS, TURNS, routes, settle_us=self.kernels.fence_us * self.flags)
        return self._adds(task) if task.kind == "reduce" else Cost(0.0)

    def _block_us(self, routes: tuple[tuple[int, int, int], ...]) -> float:
        """How long a program needs to send one block to all others: stores leave it as fast as loads come in."""
        gpu = self.machine.gpu
        return 1e-3 * self.words * self.item * len(routes) * gpu.multiprocessors / gpu.cache_gbs

    def _adds(self, task: Task) -> Cost:
        k, routes = self.kernels, self._routes(task)
        ends = self.rounds == 1 or not task.signals
        each = self._pass_us(ends)
        waits = k.source_us * (self.plan.world - 2)
        waits += k.read_us * (self.form == "flag") + k.empty_us * ends * (self.form == "mark")
        each += waits + k.row_us * any(step.op == "rms_norm" for step in self.x.epilogue)
        settle = k.fence_us * ((self.flags and bool(routes)) or (self.op.closing and ends))
        if ends and self.shape.more and task.accesses and self._blocks(task) > 1:
            settle += self.shape.more * self._again_us(each)
        return Cost(each, 1, routes, early=False, tail_us=self._block_us(routes), settle_us=settle)

    def _blocks(self, task: Task) -> int:
        return -(-max(a.region.col1 - a.region.col0 for a in task.accesses) // self.words)

    def _again_us(self, each: float) -> float:
        """What one more block of a program costs: a pass over local memory and its trips. Words of the next block are
        on the link while it waits; what a fence waits for is not."""
        k, trip = self.kernels, self.machine.link.word_us
        if self.flags:
            return self.rounds * (k.fence_us + trip) + each + (k.fence_us + trip) * self.op.closing
        sent = self.shape.programs * self.words * self.item * (self.plan.world - 1) * self.rounds
        return max(0.0, self.rounds * trip + each - 1e-3 * sent / self.machine.link.programs)

    def _pass_us(self, ends: bool) -> float:
        """Local memory that a program reads and writes for one block: its payload, the words that it takes, and in the
        end what it leaves behind. The call before the one that is drawn has left marks to be emptied."""
        size = self.words * (4 + (self.plan.world - 1) * self.item)
        if ends:
            kept = len(self.x.stores) + sum(o.role == "full" for o in self.x.operands)
            emptied = self.rounds * self.plan.world if self.form == "mark" else 0
            size += 4 * self.words * (kept + emptied)
        return 1e-3 * size / (self.machine.gpu.cache_gbs / self.machine.gpu.multiprocessors)
