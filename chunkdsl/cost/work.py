"""What each task of a plan costs on a machine: microseconds of one program, bytes between ranks. Queues nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from chunkdsl.cost.constants import Machine
from chunkdsl.cost.library import library_gemm_us
from chunkdsl.ir.meshes import grid_of
from chunkdsl.ir.types import DimRef
from chunkdsl.plan.body import KernelBody
from chunkdsl.plan.footprint import ITEM
from chunkdsl.plan.geometry import local_size
from chunkdsl.plan.limits import TMA_TARGETS
from chunkdsl.plan.plan import Act, Plan, Signal, Task
from chunkdsl.plan.schedule import Launch, OpSchedule
from chunkdsl.plan.summary import elements, moved
from chunkdsl.plan.tile_kernels import WarpShape, narrowed, warp_shape
from chunkdsl.plan.within import sum_within
from chunkdsl.record import record


@record
class Cost:
    """Of a task: each of its `count` tiles or pieces keeps a program for `each_us`. `routes`: (source, destination,
    bytes) that cross the link as `how` (a field of Link) says, `early` from the start on (loads), else once a tile is
    computed (stores), which takes `tail_us` at least. `held`: the program is held that long too; else it goes on with
    its next tile, which ends no sooner. `late`: what the task waits for is needed once a tile is computed, not before.
    `head_us` passes from when a copy may start until it does, `settle_us` behind all that, before the task's
    signals."""

    each_us: float
    count: int = 1
    routes: tuple[tuple[int, int, int], ...] = ()
    how: str = "programs"
    early: bool = True
    tail_us: float = 0.0
    head_us: float = 0.0
    settle_us: float = 0.0
    held: bool = True
    late: bool = False

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
        self._shapes: dict[tuple[str, int], WarpShape | None] = {}
        self._within = {n.name: sum_within(op, n) for n in op.launches}
        self._counts = Counter()
        for task in plan.tasks:
            self._counts[task.lane, task.rank] += task.count
        self.begin_us = machine.kernels.first_tile_us

    def programs(self, lane: str, rank: int) -> int:
        """Programs of an issue-ordered lane: those that it asks for, or what its launch leaves. Specialised warps take
        as many as their waves need."""
        found = self.lanes[lane]
        if found.programs:
            return found.programs
        most, n = max(1, self.machine.gpu.multiprocessors - self._others(lane)), self.launches.get(lane)
        tiles = self._made(lane, rank)
        return -(-tiles // -(-tiles // most)) if n and tiles and self._shape(n, rank) else most

    def _others(self, lane: str) -> int:
        """Programs of other kinds in the launch of a lane, each on a multiprocessor of its own."""
        return sum(x.programs for x in self.plan.lanes if x.launch == self.lanes[lane].launch)

    def _made(self, lane: str, rank: int) -> int:
        """Tiles of a lane, of the shape that its kernel has."""
        tiles, n = self._counts[lane, rank], self.launches.get(lane)
        shape = self._shape(n, rank) if n else None
        return self._narrowed(tiles, n, rank, shape) if shape else tiles

    def beside(self, lane: str) -> str:
        """The lane of tiles whose multiprocessors those of `lane` get as they become free: the first of the launches
        beside which it runs. "" for none."""
        behind, found = self.lanes[lane].behind, ""
        while behind:
            found = f"{behind} tiles"
            behind = self.lanes[found].behind
        return found

    def spare(self, lane: str, rank: int) -> int:
        """Multiprocessors that the programs of a launch of tiles leave free. One of products holds all registers of
        its own."""
        used = min(self.programs(lane, rank), self._made(lane, rank))
        return max(0, self.machine.gpu.multiprocessors - self._others(lane) - used)

    def queue(self, i: int) -> str:
        """Task `i` begins after those before it in its queue: its lane."""
        return self.plan.tasks[i].lane

    def trip_us(self, task: Task, signal: Signal) -> float:
        """From the moment when a signal is given until a task that waits for it goes on."""
        if signal.signaller == task.rank == signal.owner:
            return self.machine.kernels.local_flag_us
        return self.machine.between(signal.signaller, task.rank).flag_us

    def cost(self, task: Task) -> Cost:
        if task.lane == "main":
            return self._stream(task)
        if (n := self.launches.get(task.lane)) is not None and n.library:
            return self._call(task, n)
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
        joins = any(lane.startswith("copies ") for lane in after)
        return Cost(k.join_us if joins else 0.0)

    def _copy(self, task: Task) -> Cost:
        k, routes = self.machine.kernels, self._routes(task)
        pulled = any(destination == task.rank for _, destination, _ in routes)
        how = "copy_pull" if pulled else "copy_push"
        return Cost(0.0, 1, routes, how, tail_us=k.copy_flag_us, head_us=k.copy_us if routes else 0.0)

    def _call(self, task: Task, n: Launch) -> Cost:
        """A call of the library for the rows that a task writes, behind a kernel of its own that waits, if it does."""
        made = [a.region for a in task.accesses if a.act is Act.PUT]
        rows = sum(r.row1 - r.row0 for r in made)
        if not rows:
            return Cost(0.0)
        depth = local_size(n.depth, self.dims, self.plan.world, task.rank, self.op.over)
        cols = made[0].col1 - made[0].col0
        read = (rows * depth + depth * cols + rows * cols) * ITEM[n.a.dtype]  # each call reads the weight anew
        us = max(library_gemm_us(rows, cols, depth, n.a.dtype, self.machine), 1e-3 * read / self.machine.gpu.memory_gbs)
        return Cost(us + (self.machine.kernels.kernel_us if task.waits else 0.0))

    def _pieces(self, task: Task) -> Cost:
        routes, tma = self._routes(task), self._by_tma(task.lane)
        return Cost(self.machine.kernels.ticket_us + self._alone_us(routes, task.count, tma), task.count, routes)

    def _by_tma(self, lane: str) -> bool:
        """Do the programs of a lane have a tensor memory accelerator that carries for them?"""
        move = self.moves.get(lane)
        return move is not None and move.via == "tma" and self.machine.gpu.target in TMA_TARGETS

    def _alone_us(self, routes: tuple[tuple[int, int, int], ...], count: int, tma: bool = False) -> float:
        """How long one program needs for its part of what `count` of them carry, whatever the others do."""
        links = ((self.machine.between(source, to), size) for source, to, size in routes)
        return sum(1e-3 * size / count / (x.tma_program_gbs if tma else x.program_gbs) for x, size in links)

    def _crowded_us(self, lane: str, n: Launch, rank: int) -> float:
        """What each tile loses to programs beside it whose loads and stores offer more than the link takes."""
        link = self.machine.link
        key = (f"beside {lane}", rank)
        if not link.crowding or not n.moves:
            return 0.0
        if key not in self._tiles:
            sent = (m for m in n.moves if m.leaving)
            many = {m.name for m in sent if m.programs * link.program_gbs > link.programs}
            many = {name for name in many if not self._by_tma(name)}
            carried = (self._routes(t) for t in self.plan.tasks if t.rank == rank and t.lane in many)
            us = link.crowding * 1e-3 * sum(size for routes in carried for _, _, size in routes) / link.programs
            self._tiles[key] = us * self.programs(lane, rank) / max(1, self._counts[lane, rank])
        return self._tiles[key]

    def _tile(self, task: Task, n: Launch) -> Cost:
        routes = self._routes(task)
        if not task.accesses:  # no rows or no columns: flags alone
            return Cost(self.machine.kernels.ticket_us, task.count)
        each = self._tile_us(task.lane, n, task.rank) + self._crowded_us(task.lane, n, task.rank)
        if n.rounds:  # a task for each shard that the tiles walk, and those of the result
            each = 0.0 if any(a.act is Act.PUT for a in task.accesses) else each / self.plan.world
        early = task.kind == "reduce"
        within, added = self._within[n.name], 0.0
        late = within is not None and any(a.act is Act.ADD for a in task.accesses)
        if late:
            added = self._added_us(task.lane, n, within, task.rank)
        tail = self._alone_us(routes, task.count)
        if shape := self._shape(n, task.rank):  # storers do all that while the next tile is computed
            count = self._narrowed(task.count, n, task.rank, shape)
            part, each = task.count / count, each * shape.columns / n.tiling.bn
            stored = part * max(tail, added + self._stored_us(n, task.rank))
            return Cost(each, count, routes, "warp_stores", False, stored, held=False, late=late)
        return Cost(each + added, task.count, routes, "programs" if early else "tile_stores", early, tail, late=late)

    def _shape(self, n: Launch, rank: int) -> WarpShape | None:
        """The tile of specialised warps that computes a launch in this call; None: another kernel does."""
        if not n.warps:
            return None
        if (n.name, rank) not in self._shapes:
            world, gpu = self.plan.world, self.machine.gpu
            cols, depth = (local_size(size, self.dims, world, rank, self.op.over) for size in (n.cols, n.depth))
            tiles = self._counts[f"{n.name} tiles", rank]
            found = warp_shape(n, self.op, gpu.target, world, tiles, cols, depth, gpu.multiprocessors)
            self._shapes[n.name, rank] = found
        return self._shapes[n.name, rank]

    def _narrowed(self, tiles: int, n: Launch, rank: int, shape: WarpShape) -> int:
        return narrowed(tiles, local_size(n.cols, self.dims, self.plan.world, rank, self.op.over), shape)

    def _area(self, n: Launch, rank: int) -> int:
        """Elements of a tile of the result."""
        cols, t = max(1, local_size(n.cols, self.dims, self.plan.world, rank, self.op.over)), n.tiling
        return t.bm * min(n.body.column_block or cols if n.body else t.bn, cols)

    def _stored_us(self, n: Launch, rank: int) -> float:
        """How long a program stores the result of a tile of products."""
        return 1e-3 * self._area(n, rank) * ITEM[n.destination.dtype] / self.machine.kernels.store_gbs

    def _memory(self, lane: str, rank: int) -> float:
        """GB/s of a program's part of the memory."""
        gpu = self.machine.gpu
        return gpu.memory_gbs / min(gpu.multiprocessors, self.programs(lane, rank))

    def _added_us(self, lane: str, n: Launch, within: Launch, rank: int) -> float:
        """What a tile of the own shard that adds up reads: the others' addends, and what the sum is used with."""
        used = sum(ITEM[o.dtype] for o in within.operands if o.role == "full")
        read = self._area(n, rank) * ((self.plan.world - 1) * ITEM[within.sums.parts.dtype] + used)
        return 1e-3 * read / self._memory(lane, rank)

    def _tile_us(self, lane: str, n: Launch, rank: int) -> float:
        """One tile of a launch: steps along K by FLOPs or by what the cache delivers, then its operands and result. Of
        specialised warps the steps alone: tickets and results are others' work meanwhile."""
        known = self._tiles.get((lane, rank))
        if known is not None:
            return known
        k, t = self.machine.kernels, n.tiling
        memory, warps = self._memory(lane, rank), self._shape(n, rank) is not None
        item, area = ITEM[n.destination.dtype], self._area(n, rank)
        read = sum(area * ITEM[o.dtype] for o in n.operands if o.role == "full")
        if n.sums:
            read += area * ITEM[n.sums.parts.dtype] * self._added(n, rank)
        if n.fold:
            rows = local_size(n.depth, self.dims, self.plan.world, rank, self.op.over)
            read += rows * t.bn * ITEM[n.fold.operand.dtype]
        us = (0.0 if warps else k.ticket_us / n.crowd) + 1e-3 * read / memory
        if n.body:
            us += body_us(n.body, self.plan.world, self.machine) + self._stored_us(n, rank)
        elif n.products:
            depth = -(-local_size(n.depth, self.dims, self.plan.world, rank, self.op.over) // t.bk) * t.bk
            busy = self._busy(lane, rank)
            us += self._steps_us(n, depth, warps, busy) + (0.0 if warps else self._stored_us(n, rank))
        else:
            us += 1e-3 * area * item / memory
        self._tiles[lane, rank] = us
        return us

    def _added(self, n: Launch, rank: int) -> float:
        """Of how many addends a tile of a sum is made, on average."""
        world, routing = self.plan.world, n.sums.routing
        if routing is None:
            return 2 if n.sums.ring else world
        grid = grid_of(world, tuple([self.dims[axis] for axis in self.op.over]))
        shards, parts = range(world) if n.space == "all" else (rank,), range(routing.parts(grid))
        made = [routing.storage(grid).final(rank, s, part)[2] for s in shards for part in parts]
        return 1 + sum(made) / len(made)

    def _busy(self, lane: str, rank: int) -> float:
        """The part of all multiprocessors that have a tile, or carry what tiles make, at the start of a launch."""
        used = self._others(lane) + min(self.programs(lane, rank), max(1, self._made(lane, rank)))
        return min(1.0, used / self.machine.gpu.multiprocessors)

    def _steps_us(self, n: Launch, depth: int, warps: bool, busy: float) -> float:
        t, products, gpu = n.tiling, len(n.products), self.machine.gpu
        loads = (t.bm + t.bn * products) * depth * ITEM[n.a.dtype]
        sustained = gpu.warps_loop if warps else gpu.inner_loop
        return program_us(2 * t.bm * t.bn * depth * products, loads, n.a.dtype, self.machine, sustained, busy)

    def _routes(self, task: Task) -> tuple[tuple[int, int, int], ...]:
        found: dict[tuple[int, int], int] = {}
        for _, source, destination, size in moved(task, self.sizes):
            found[source, destination] = found.get((source, destination), 0) + size
        return tuple((*pair, size) for pair, size in found.items())


def body_us(body: KernelBody, world: int, machine: Machine) -> float:
    """One program of a user's kernel: by the operations of its products or by the bytes that it loads, which were
    counted at whole sizes. A sharded size that the result does not have is one that the program goes along."""
    kept = {d.name for d in body.tensors[-1].dims if isinstance(d, DimRef)}
    part = 1 / world if any(extent.sharded and name not in kept for name, extent in body.sizes) else 1.0
    return part * program_us(body.flops, body.loads, body.tensors[0].dtype, machine)


def program_us(
    flops: int, loads: int, dtype: str, machine: Machine, sustained: float | None = None, busy: float = 1.0
) -> float:
    """A program of products that does `flops` operations on what it loads, `loads` bytes, while the `busy` part of all
    multiprocessors does so. `sustained`: the fraction of the peak, by default that of Triton's kernel."""
    gpu = machine.gpu
    rate = gpu.gflops[dtype] * (sustained or gpu.inner_loop) * gpu.clock(busy)
    return gpu.multiprocessors * 1e-3 * max(flops / rate, loads * busy / gpu.cache_gbs)
