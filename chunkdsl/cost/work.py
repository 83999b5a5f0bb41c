"""What each task of a plan costs on a machine: microseconds of one program, bytes between ranks. Queues nothing."""

from __future__ import annotations

from collections.abc import Mapping

from chunkdsl.cost.constants import Machine
from chunkdsl.plan.footprint import ITEM
from chunkdsl.plan.geometry import local_size
from chunkdsl.plan.plan import Plan, Task
from chunkdsl.plan.schedule import Launch, OpSchedule
from chunkdsl.plan.summary import elements, moved
from chunkdsl.record import record


@record
class Cost:
    """Of a task: each of its `count` tiles or pieces keeps a program for `each_us`. `routes`: (source, destination,
    bytes) that cross the link at `gbs` at most, `early` from the start on (loads), else once a tile is computed
    (stores). `tail_us` passes at the end, before the task's signals."""

    each_us: float
    count: int = 1
    routes: tuple[tuple[int, int, int], ...] = ()
    gbs: float = 0.0
    early: bool = True
    tail_us: float = 0.0
    head_us: float = 0.0

    @property
    def bytes(self) -> int:
        return sum(size for _, _, size in self.routes)


class Work:
    """Costs of the tasks of one plan, which is `op` unrolled for one call. Tasks of one launch that have equal numbers
    share them."""

    def __init__(self, op: OpSchedule, plan: Plan, machine: Machine) -> None:
        self.op, self.plan, self.machine = op, plan, machine
        self.dims: Mapping[str, int] = dict(plan.calls[0])
        self.sizes = {b.name: ITEM[b.dtype] for b in plan.buffers}
        self.launches = {f"{n.name} tiles": n for n in op.launches}
        self.moves = {m.name: m for n in op.launches for m in n.moves}
        self.lanes = {lane.name: lane for lane in plan.lanes}
        self._tiles: dict[tuple[str, int], float] = {}

    def programs(self, lane: str) -> int:
        """Programs of an issue-ordered lane: those that it asks for, or what its launch leaves."""
        found = self.lanes[lane]
        if found.programs:
            return found.programs
        taken = sum(x.programs for x in self.plan.lanes if x.launch == found.launch)
        return max(1, self.machine.gpu.multiprocessors - taken)

    def cost(self, task: Task) -> Cost:
        if task.lane == "main":
            return self._stream(task)
        if self.lanes[task.lane].serial:
            return self._copy(task)
        if task.kind == "move":
            return self._pieces(task)
        return self._tile(task, self.launches[task.lane])

    def _stream(self, task: Task) -> Cost:
        k = self.machine.kernels
        if task.kind == "start":
            return Cost(k.kernel_us)
        if task.kind == "stage":
            size = sum(elements(a.region) * self.sizes[a.region.buffer] for a in task.accesses)
            return Cost(k.kernel_us + 2e-3 * size / self.machine.gpu.memory_gbs)
        if task.kind == "barrier" and task.signals:  # a kernel of its own
            return Cost(k.kernel_us)
        after = [self.plan.tasks[t].lane for t in task.after]
        joins = any(lane != "main" and self.lanes[lane].serial for lane in after)
        return Cost(k.join_us if joins else 0.0)

    def _copy(self, task: Task) -> Cost:
        k, link = self.machine.kernels, self.machine.link
        routes = self._routes(task)
        pulled = any(destination == task.rank for _, destination, _ in routes)
        gbs = link.copy_pull if pulled else link.copy_push
        return Cost(0.0, 1, routes, gbs, tail_us=k.copy_flag_us, head_us=k.copy_us if routes else 0.0)

    def _pieces(self, task: Task) -> Cost:
        link = self.machine.link
        routes = self._routes(task)
        size = sum(s for _, _, s in routes)
        each = self.machine.kernels.ticket_us + 1e-3 * size / task.count / link.program_gbs
        return Cost(each, task.count, routes, link.programs)

    def _tile(self, task: Task, n: Launch) -> Cost:
        routes, link = self._routes(task), self.machine.link
        if not task.accesses:  # no rows or no columns: flags alone
            return Cost(self.machine.kernels.ticket_us, task.count)
        each = self._tile_us(task.lane, n, task.rank)
        early = task.kind == "reduce"
        size = sum(s for _, _, s in routes)
        tail = 1e-3 * size / task.count / link.program_gbs
        return Cost(each, task.count, routes, link.programs if early else link.tile_stores, early, tail)

    def _tile_us(self, lane: str, n: Launch, rank: int) -> float:
        """One tile of a launch: steps along K by FLOPs or by what the cache delivers, then its operands and result."""
        known = self._tiles.get((lane, rank))
        if known is not None:
            return known
        gpu, k, t = self.machine.gpu, self.machine.kernels, n.tiling
        memory = gpu.memory_gbs / min(gpu.multiprocessors, self.programs(lane))
        cols = max(1, local_size(n.cols, self.dims, self.plan.world, rank, self.op.over))
        item, area = ITEM[n.destination.dtype], t.bm * min(t.bn, cols)
        read = sum(area * ITEM[o.dtype] for o in n.operands if o.role == "full")
        if n.sums:
            read += area * ITEM[n.sums.parts.dtype] * (2 if n.sums.ring else self.plan.world)
        us = k.ticket_us + 1e-3 * read / memory
        if n.products:
            depth = -(-local_size(n.depth, self.dims, self.plan.world, rank, self.op.over) // t.bk) * t.bk
            us += self._steps_us(n, depth) + 1e-3 * area * item / k.store_gbs
        else:
            us += 1e-3 * area * item / memory
        self._tiles[lane, rank] = us
        return us

    def _steps_us(self, n: Launch, depth: int) -> float:
        gpu, t = self.machine.gpu, n.tiling
        each, products = ITEM[n.a.dtype], len(n.products)
        flops = 2 * t.bm * t.bn * depth * products
        loads = (t.bm + t.bn * products) * depth * each
        shares = gpu.multiprocessors * 1e-3
        return shares * max(flops / (gpu.gflops[n.a.dtype] * gpu.inner_loop), loads / gpu.cache_gbs)

    def _routes(self, task: Task) -> tuple[tuple[int, int, int], ...]:
        found: dict[tuple[int, int], int] = {}
        for _, source, destination, size in moved(task, self.sizes):
            found[source, destination] = found.get((source, destination), 0) + size
        return tuple((*pair, size) for pair, size in found.items())
