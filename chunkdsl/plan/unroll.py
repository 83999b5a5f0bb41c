"""Schedule -> plan: every task of every rank for one world size and one sequence of calls.

Follows the schedule's own rules (`schedule`), not the text of the templates: what the emitted code does is compared
with this plan by the simulator's conformance check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chunkdsl.ir.types import evaluate
from chunkdsl.plan.geometry import Geometry, local_size
from chunkdsl.plan.plan import Access, Act, Buffer, Lane, Plan, Region, Signal, Task
from chunkdsl.plan.routes import Walk
from chunkdsl.plan.schedule import Launch, Moves, OpSchedule, Schedule


def unroll(schedule: Schedule, op: OpSchedule, world: int, calls: Sequence[Mapping[str, int]], bounds=None) -> Plan:
    """Plan of `op` for consecutive fused calls with these run-time dims. `bounds` (default: each dim's largest value
    among the calls) sizes buffers and flag words, as construction does."""
    if bounds is None:
        bounds = {k: max(c[k] for c in calls) for k in calls[0]} if calls and calls[0] else {}
    u = Unroller(schedule, op, world, calls, bounds)
    return u.plan()


class Unroller:
    def __init__(self, schedule: Schedule, op: OpSchedule, world: int, calls, bounds) -> None:
        self.schedule, self.op, self.world, self.calls, self.bounds = schedule, op, world, calls, bounds
        self.kinds = {b.name: b for b in op.buffers}
        self.flags = {f.name: f for f in (*op.flags,)}
        self.tasks: list[Task] = []
        self.signals: dict[tuple[str, int, int, int], int] = {}
        self.signal_list: list[Signal] = []
        self.lanes: dict[str, Lane] = {"main": Lane("main", True)}
        self.last: dict[int, int] = {}  # each rank's last task on the main lane
        self.pending: dict[int, list[int]] = {}  # copy lanes to join

    def plan(self) -> Plan:
        for call, dims in enumerate(self.calls):
            for rank in range(self.world):
                self._main(rank, call, "start", self.op.line, "call begins")
            for launch in self.op.launches:
                self._launch(launch, call, dims)
            for rank in range(self.world):
                self._finish(rank, call, dims)
        return Plan(
            op=self.op.name,
            world=self.world,
            calls=tuple(tuple(sorted(c.items())) for c in self.calls),
            buffers=tuple(self._buffers()),
            lanes=tuple(self.lanes.values()),
            signals=tuple(self.signal_list),
            tasks=tuple(self.tasks),
            spec=self.schedule.path,
        )

    # ---- parts of a call

    def _launch(self, n: Launch, call: int, dims) -> None:
        g = Geometry.of(n.rows, n.space == "whole", self.op.pad, dims, self.world)
        if n.staging:
            for rank in range(self.world):
                self._stage(n, g, rank, call)
        tile_lane, orders = self._lanes(n)
        for rank in range(self.world):
            begin = self._main(rank, call, "start", n.line, f"{n.name} begins")
            made: list[int] = []
            for m in n.moves:
                if m.via == "copy_engine":
                    made_copy = self._copies(n, m, g, rank, call, begin)
                    self.pending.setdefault(rank, []).extend(made_copy[-1:])
            own = [m for m in n.moves if m.via != "copy_engine" and m.programs]
            mixed = next((m for m in n.moves if m.via != "copy_engine" and not m.programs), None)
            for m in own:
                for step in range(self.world - 1):
                    made += self._move_step(n, m, g, rank, call, step, orders[m.name], begin)
            steps = self.world if n.space == "all" else 1
            for step in range(steps):
                if mixed and mixed.kind == "gather" and step < self.world - 1:
                    made += self._move_step(n, mixed, g, rank, call, step, tile_lane, begin)
                made += self._tile_step(n, g, rank, call, step, dims, tile_lane, begin)
                if mixed and mixed.kind == "scatter" and step > 0:
                    made += self._move_step(n, mixed, g, rank, call, step - 1, tile_lane, begin)
            self._main(rank, call, "end", n.line, f"{n.name} ends", after=tuple(made))

    def _finish(self, rank: int, call: int, dims) -> None:
        joins = tuple(self.pending.pop(rank, ()))
        if joins:
            self._main(rank, call, "end", self.op.line, "copy lanes join", after=joins)
        if self.op.closing:
            said = [self._signal(f"{self.op.name}_closed", p, rank, rank, call, "closing barrier") for p in range(self.world)]
            self._main(rank, call, "barrier", self.op.line, "tells all that it has finished reading", signals=tuple(said))
            waits = [self._signal(f"{self.op.name}_closed", rank, p, p, call, "closing barrier") for p in range(self.world)]
            self._main(rank, call, "barrier", self.op.line, "waits until all have finished reading", waits=tuple(waits))
        needs = []
        for n in self.op.launches:
            if n.destination.kind == "local" and n.destination.buffer not in self.kinds:
                needs += self._final(n, rank, call, dims)
        written = {n.destination.buffer for n in self.op.launches}
        for r in self.op.results:
            if r.name not in written:  # nothing makes it: coverage says so
                needs.append(Access(Act.NEED, Region(r.name, rank, call, 0, 1, 0, 1), None, r.name))
        self._main(rank, call, "end", self.op.line, "call ends", accesses=tuple(needs))

    def _final(self, n: Launch, rank: int, call: int, dims) -> list[Access]:
        """What must be in a result when the call ends."""
        d = n.destination
        cols = local_size(n.cols, dims, self.world, rank)
        rows = evaluate(n.rows, dims)
        g = Geometry.of(n.rows, False, self.op.pad, dims, self.world)
        count = g.height(rank) if d.layout == "own" else rows
        origin = rank * g.shard if d.layout == "own" else 0
        region = Region(d.buffer, rank, call, 0, count, 0, cols)
        what, mask = self._content(n)
        return [] if region.empty else [Access(Act.NEED, region, None, what, mask, (origin, 0))]

    def _content(self, n: Launch) -> tuple[str, int]:
        """Name and addends of what a launch leaves in its destination."""
        if n.sums:
            return f"{n.sums.parts.source} sum", (1 << self.world) - 1
        if n.operands and n.operands[0].arrived and not n.products and not n.moves:
            source = next((m for m in self.op.launches if m.destination.buffer == n.operands[0].source), None)
            if source is not None:
                return self._content(source)
        return n.name, 1

    # ---- tasks

    def _stage(self, n: Launch, g: Geometry, rank: int, call: int) -> None:
        s = n.staging
        height = g.height(rank)
        slot = (call + 1) % self.op.slots
        region = Region(s.buffer, rank, slot, rank * g.stride, rank * g.stride + height, 0, self._width(s.buffer, call))
        reads = []
        if s.source in self.kinds:
            reads = self._reads_local(s.source, rank, call, 0, height)
        put = () if region.empty else (Access(Act.PUT, region, None, s.source, 1, (rank * g.shard, 0)),)
        signals = ()
        if s.ready:
            signals = tuple(self._signal(s.ready, p, rank, rank, call, f"{s.source} staged") for p in range(self.world))
        label = f"stages its shard of {s.source}"
        self._main(rank, call, "stage", s.line, label, accesses=(*reads, *put), signals=signals)
        if s.wait_all:
            waits = tuple(self._signal(s.ready, rank, p, p, call, f"{s.source} staged") for p in range(self.world))
            self._main(rank, call, "barrier", s.line, f"entry barrier before copies of {s.source}", waits=waits)

    def _copies(self, n: Launch, m: Moves, g: Geometry, rank: int, call: int, begin: int) -> list[int]:
        lane = f"copies {m.name}"
        self.lanes.setdefault(lane, Lane(lane, True))
        made = []
        # The lane forks from the main lane before the kernel starts: after the staging and its barrier.
        for step in range(self.world - 1):
            peer = m.walk.at(rank, step, self.world)
            made += self._gather_move(n, m, g, rank, call, step, peer, lane, begin)
        return made

    def _move_step(self, n: Launch, m: Moves, g: Geometry, rank: int, call: int, step: int, lane: str, begin: int) -> list[int]:
        peer = (rank + 1) % self.world if m.ring else m.walk.at(rank, step, self.world)
        if m.kind == "gather":
            return self._gather_move(n, m, g, rank, call, step, peer, lane, begin)
        return self._scatter_move(n, m, g, rank, call, step, peer, lane, begin)

    def _gather_move(self, n, m, g, rank, call, step, peer, lane, begin) -> list[int]:
        content = Walk.DOWN.at(rank, step, self.world) if m.ring else rank if m.side == "push" else peer
        reader, holder = (rank, peer) if m.side == "pull" else (peer, rank)
        slot, width, made = (call + 1) % self.op.slots, self._width(m.buffer, call), []
        size = g.chunk(n.chunk)
        for c in range(g.chunks(n.chunk)):
            first, end = c * size, min((c + 1) * size, g.height(content))
            at = content * g.stride
            accesses = ()
            if first < end:
                to, origin = (Region(m.buffer, r, slot, at + first, at + end, 0, width) for r in (reader, holder))
                accesses = (Access(Act.COPY, to, origin),)
            waits = []
            if m.ready and m.via != "copy_engine":
                waits.append(self._signal(m.ready, rank, peer, peer, call, "staged"))
            if m.ring and step:
                waits.append(self._chunk_signal(m.arrived, rank, content, c, (rank - 1) % self.world, call, g, n.chunk))
            gives = self._chunk_signal(m.arrived, reader, content, c, rank, call, g, n.chunk)
            made.append(
                self._task(
                    rank, lane, call, "move", m.line, f"carries shard {content}, chunk {c} from rank {holder} to rank {reader}",
                    accesses, (begin,), tuple(waits), (gives,), self._pieces(n, m, size, g),
                )  # fmt: skip
            )
        return made

    def _scatter_move(self, n, m, g, rank, call, step, peer, lane, begin) -> list[int]:
        owner = Walk.DOWN_OWN.at(rank, step, self.world) if m.ring else peer
        slot, width, made = (call + 1) % self.op.slots, self._width(m.buffer, call), []
        size = g.chunk(n.out_chunk)
        group = owner if m.ring else rank
        for c in range(g.chunks(n.out_chunk)):
            first, end = c * size, min((c + 1) * size, g.height(owner))
            accesses = ()
            if first < end:
                source = Region(m.source, rank, 0, owner * g.stride + first, owner * g.stride + end, 0, width)
                to = Region(m.buffer, peer, slot, group * g.stride + first, group * g.stride + end, 0, width)
                accesses = (Access(Act.COPY, to, source),)
                if m.ring and step:
                    here = Region(m.buffer, rank, slot, group * g.stride + first, group * g.stride + end, 0, width)
                    accesses += (Access(Act.ADD, to, here),)
            waits = [self._chunk_signal(m.done, rank, owner, c, rank, call, g, n.out_chunk)]
            if m.ring and step:
                waits.append(self._chunk_signal(m.arrived, rank, owner, c, (rank - 1) % self.world, call, g, n.out_chunk))
            gives = self._chunk_signal(m.arrived, peer, group, c, rank, call, g, n.out_chunk)
            made.append(
                self._task(
                    rank, lane, call, "move", m.line, f"carries partial sums of shard {owner}, chunk {c} to rank {peer}",
                    accesses, (begin,), tuple(waits), (gives,), self._pieces(n, m, size, g),
                )  # fmt: skip
            )
        return made

    def _tile_step(self, n: Launch, g: Geometry, rank: int, call: int, step: int, dims, lane: str, begin: int) -> list[int]:
        owner = n.walk.at(rank, step, self.world) if n.space == "all" else rank if n.space == "own" else 0
        columns = max(1, -(-local_size(n.cols, dims, self.world, rank) // n.tiling.bn))
        made = []
        for first, end, awaited, signalled in g.blocks(n):
            live = min(end, g.height(owner))
            accesses: list[Access] = []
            if first < live:
                accesses = self._tile_accesses(n, g, rank, call, owner, first, live, dims)
            waits = self._tile_waits(n, g, rank, call, owner, awaited)
            signals = [s for c in signalled for s in self._tile_signals(n, g, rank, call, owner, c)]
            count = -(-(end - first) // n.tiling.bm) * columns
            what = "adds" if n.sums else "computes"
            label = f"{what} rows {first}..{end} of shard {owner} in {n.name}"
            kind = "reduce" if n.sums else "tile"
            made.append(
                self._task(rank, lane, call, kind, n.line, label, tuple(accesses), (begin,), waits, tuple(signals), count)
            )
        return made

    def _tile_waits(self, n: Launch, g: Geometry, rank: int, call: int, owner: int, awaited) -> tuple[int, ...]:
        if not n.chunk_flags:
            return ()
        gather = next((m for x in self.op.launches for m in x.moves if m.arrived == n.chunk_flags and m.kind == "gather"), None)
        if n.sums and not n.sums.ring:
            pairs = [(q, q, c) for q in range(self.world) for c in awaited]
        elif n.sums:
            pairs = [((rank - 1) % self.world, rank, c) for c in awaited] if self.world > 1 else []
        elif gather is not None:
            if owner == rank:
                return ()
            giver = rank if gather.side == "pull" else (rank - 1) % self.world if gather.ring else owner
            pairs = [(giver, owner, c) for c in awaited]
        else:
            pairs = [(owner, owner, c) for c in awaited]
        return tuple(self._chunk_signal(n.chunk_flags, rank, q, c, giver, call, g, n.chunk) for giver, q, c in pairs)

    def _tile_signals(self, n: Launch, g: Geometry, rank: int, call: int, owner: int, c: int):
        d = n.destination
        if d.kind == "hand_over":
            if d.stage and owner == rank:
                yield self._chunk_signal(d.arrived, rank, rank, c, rank, call, g, n.out_chunk)
            else:
                yield self._chunk_signal(d.done, rank, owner, c, rank, call, g, n.out_chunk)
        elif d.kind in ("push", "publish", "broadcast"):
            readers = range(self.world) if d.everyone or d.kind == "broadcast" else (owner,)
            for reader in readers:
                yield self._chunk_signal(d.arrived, reader, rank, c, rank, call, g, n.out_chunk)

    def _tile_accesses(self, n: Launch, g: Geometry, rank: int, call: int, owner: int, first: int, live: int, dims) -> list[Access]:
        slot, found = (call + 1) % self.op.slots, []
        origin = (owner * g.shard + first, 0)
        operands = ([n.a] if n.a else []) + list(n.operands)
        for o in operands:
            if o.source not in self.kinds or o.role not in ("a", "full"):
                continue
            if self.kinds[o.source].kind == "symmetric":
                region = Region(o.source, rank, slot, owner * g.stride + first, owner * g.stride + live, 0, self._width(o.source, call))
                what, mask = self._gathered_content(o.source)
                found.append(Access(Act.NEED, region, None, what, mask, origin))
            else:
                low = first if o.layout == "own" else owner * g.shard + first
                found += self._reads_local(o.source, rank, call, low, low + live - first)
        cols = local_size(n.cols, dims, self.world, rank)
        if cols:
            found += self._writes(n, g, rank, slot, owner, first, live, cols, call, origin)
        return found

    def _gathered_content(self, source: str) -> tuple[str, int]:
        for x in self.op.launches:
            if x.staging and x.staging.buffer == source:
                return x.staging.source, 1
        return next(self._content(x) for x in self.op.launches if x.destination.buffer == source)

    def _reads_local(self, source: str, rank: int, call: int, low: int, high: int) -> list[Access]:
        maker = next(x for x in self.op.launches if x.destination.buffer == source)
        what, mask = self._content(maker)
        own = maker.destination.layout == "own"
        g = Geometry.of(maker.rows, False, self.op.pad, self.calls[call], self.world)
        origin = (rank * g.shard if own else 0) + low
        region = Region(source, rank, 0, low, high, 0, local_size(maker.cols, self.calls[call], self.world, rank))
        return [] if region.empty else [Access(Act.NEED, region, None, what, mask, (origin, 0))]

    def _writes(self, n: Launch, g: Geometry, rank, slot, owner, first, live, cols, call, origin) -> list[Access]:
        d = n.destination

        def box(buffer: str, on: int, which: int, row: int) -> Region:
            return Region(buffer, on, which, row, row + live - first, 0, cols)

        if n.sums:
            return self._sum_writes(n, g, rank, slot, owner, first, live, call, box)
        what, mask = self._content(n)
        if d.kind == "local":
            row = first if d.layout == "own" else owner * g.shard + first
            region = box(d.buffer, rank, call if d.buffer not in self.kinds else 0, row)
            moved = next((o for o in n.operands if o.arrived and not n.products), None)
            if moved is not None and what != n.name:
                source = box(moved.source, rank, slot, owner * g.stride + first)
                return [Access(Act.COPY, region, source)]
            return [Access(Act.PUT, region, None, what, mask, origin)]
        what, mask = f"{self._stage_of(n)} sum", 1 << rank
        if d.kind == "push":
            group = rank * g.stride + first
            peers = range(self.world) if d.everyone else (owner,)
            regions = [box(d.buffer, p, slot, group) for p in peers]
        elif d.kind == "publish":
            regions = [box(d.buffer, rank, slot, (0 if d.everyone else owner * g.stride) + first)]
        elif d.stage and owner == rank:
            regions = [box(d.stage, rank, slot, owner * g.stride + first)]
        else:
            regions = [box(d.buffer, rank, 0, owner * g.stride + first)]
        return [Access(Act.PUT, r, None, what, mask, origin) for r in regions]

    def _stage_of(self, n: Launch) -> str:
        """The stage that a launch's partial sums end in."""
        at = self.op.launches.index(n)
        return next(x.sums.parts.source for x in self.op.launches[at:] if x.sums)

    def _sum_writes(self, n: Launch, g: Geometry, rank, slot, owner, first, live, call, box) -> list[Access]:
        d, stage = n.destination, n.sums.parts.source
        if n.sums.ring:
            partial = next(m.source for x in self.op.launches for m in x.moves if m.buffer == stage)
            parts = [box(partial, rank, 0, owner * g.stride + first)]
            if self.world > 1:
                parts.append(box(stage, rank, slot, owner * g.stride + first))
        elif n.sums.side == "pull":
            row = (owner * g.stride if n.space == "own" else 0) + first
            parts = [box(stage, q, slot, row) for q in range(self.world)]
        else:
            parts = [box(stage, rank, slot, q * g.stride + first) for q in range(self.world)]
        if d.kind == "local":
            row = first if d.layout == "own" else owner * g.shard + first
            to = box(d.buffer, rank, call if d.buffer not in self.kinds else 0, row)
        else:
            to = box(d.buffer, rank, slot, owner * g.stride + first)
        made = [Access(Act.COPY, to, parts[0])] + [Access(Act.ADD, to, p) for p in parts[1:]]
        if d.kind == "broadcast":
            peers = [p for p in range(self.world) if p != rank]
            made += [Access(Act.COPY, box(d.buffer, p, slot, owner * g.stride + first), to) for p in peers]
        return made

    # ---- bookkeeping

    def _lanes(self, n: Launch) -> tuple[str, dict[str, str]]:
        """Lanes of a launch in the order in which they get programs: gathers, tiles, scatters."""
        tiles = f"{n.name} tiles"
        moves = [m for m in n.moves if m.via != "copy_engine" and m.programs]
        order = [m for m in moves if m.kind == "gather"]
        for m in order:
            self.lanes.setdefault(m.name, Lane(m.name, False, n.name, m.programs))
        self.lanes.setdefault(tiles, Lane(tiles, False, n.name, 0))
        for m in moves:
            self.lanes.setdefault(m.name, Lane(m.name, False, n.name, m.programs))
        return tiles, {m.name: m.name for m in moves}

    def _pieces(self, n: Launch, m: Moves, size: int, g: Geometry) -> int:
        return 1 if m.via == "copy_engine" else -(-min(size, g.shard) // n.tiling.piece_rows)

    def _width(self, buffer: str, call: int | None = None) -> int:
        """Columns of a buffer in a call; without one, of the allocation."""
        b = self.kinds[buffer]
        size = evaluate(b.cols.size, self.bounds if call is None else self.calls[call])
        return -(-size // self.world) if b.cols.sharded else size

    def _buffers(self):
        b_world = self.world
        for b in self.op.buffers:
            g = Geometry.of(b.rows, b.groups != "world", self.op.pad, self.bounds, b_world)
            rows = evaluate(b.rows, self.bounds) if b.groups == "whole" and b.kind == "local" else g.stride
            rows *= 1 if b.groups == "whole" else b_world
            yield Buffer(b.name, b.kind, b.dtype, max(1, rows), max(1, self._width(b.name)), b.slots)
        for r in self.op.results:
            rows = evaluate(r.shape[0].size, self.bounds)
            yield Buffer(r.name, "output", r.dtype, max(1, rows), max(1, evaluate(r.shape[1].size, self.bounds)), len(self.calls))

    def _chunk_signal(self, flags: str, owner: int, group: int, c: int, giver: int, call: int, g: Geometry, chunk) -> int:
        f = self.flags[flags]
        cap = Geometry.of(f.rows, f.whole, self.op.pad, self.bounds, self.world).chunk_cap(chunk)
        return self._signal(flags, owner, group * cap + c, giver, call, f"({group}, {c})")

    def _signal(self, flags: str, owner: int, index: int, giver: int, call: int, label: str) -> int:
        key = (flags, owner, index, call)
        if key not in self.signals:
            self.signals[key] = len(self.signal_list)
            self.signal_list.append(Signal(flags, owner, index, giver, call, label))
        return self.signals[key]

    def _main(self, rank: int, call: int, kind: str, line: int, label: str, accesses=(), after=(), waits=(), signals=()) -> int:
        t = self._task(rank, "main", call, kind, line, label, accesses, after, waits, signals)
        self.last[rank] = t
        return t

    def _task(self, rank, lane, call, kind, line, label, accesses=(), after=(), waits=(), signals=(), count=1) -> int:
        name = f"rank {rank}, call {call}: {label}"
        self.tasks.append(Task(name, rank, lane, call, kind, line, accesses, after, waits, signals, count))
        return len(self.tasks) - 1
