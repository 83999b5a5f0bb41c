"""Plans to prove, written down directly: small all-reduce, gathers by several routes, GEMM with reduce-scatter, an MLP.

Each builder has switches that break it. Boxes are whole rows of `COLS` columns, two rows for each piece.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from chunkdsl.plan.plan import Access, Act, Buffer, Lane, Plan, Region, Signal, Task

COLS, ROWS = 8, 2


class Build:
    """Collects tasks. A signal is made when first named; its word is the same in every call."""

    def __init__(self, op: str, world: int, calls: int, buffers: Iterable[Buffer], lanes: Iterable[Lane]) -> None:
        self.op, self.world, self.calls = op, world, calls
        self.buffers, self.lanes = tuple(buffers), tuple(lanes)
        self.tasks: list[Task] = []
        self.signals: list[Signal] = []
        self._named: dict[tuple, int] = {}
        self._ends = [-1] * world
        self._since: list[list[int]] = [[] for _ in range(world)]

    def signal(self, flags: str, owner: int, index: int, signaller: int, call: int) -> int:
        key = flags, owner, index, signaller, call
        if key not in self._named:
            self._named[key] = len(self.signals)
            self.signals.append(Signal(flags, owner, index, signaller, call))
        return self._named[key]

    def task(self, name, rank, lane, call, kind, accesses=(), waits=(), signals=(), after=(), line=1, count=1) -> int:
        t = len(self.tasks)
        self.tasks.append(
            Task(name, rank, lane, call, kind, line, tuple(accesses), tuple(after), tuple(waits), tuple(signals), count)
        )
        self._since[rank].append(t)
        return t

    def start(self, rank: int, call: int, accesses=()) -> int:
        self._since[rank] = []
        after = [self._ends[rank]] if call else []
        return self.task("start", rank, "main", call, "start", accesses, after=after)

    def end(self, rank: int, call: int, accesses=(), waits=()) -> int:
        t = self.task("end", rank, "main", call, "end", accesses, waits=waits, after=self._since[rank], line=9)
        self._ends[rank] = t
        return t

    def barrier(self, call: int) -> None:
        """All ranks: a signal to every rank once this rank's tasks so far are complete, and a wait for all of them."""
        for r in range(self.world):
            gives = [self.signal("over", q, r, r, call) for q in range(self.world)]
            self.task("closing signal", r, "main", call, "barrier", after=self._since[r], signals=gives)
        for r in range(self.world):
            waits = [self.signal("over", r, q, q, call) for q in range(self.world)]
            self.task("closing wait", r, "main", call, "barrier", waits=waits)

    def join(self, call: int) -> int:
        """One node that comes after everything so far on all ranks: no lane, no signals."""
        return self.task("join", 0, "", call, "barrier", after=[t for ts in self._since for t in ts])

    def plan(self) -> Plan:
        calls = tuple((("M", 64),) for _ in range(self.calls))
        tasks = tuple(self.tasks)
        return Plan(self.op, self.world, calls, self.buffers, self.lanes, tuple(self.signals), tasks, "test.chunk")


def rows(buffer: str, rank: int, slot: int, first: int, count: int = ROWS, cols: int = COLS) -> Region:
    return Region(buffer, rank, slot, first, first + count, 0, cols)


def put(region: Region, what: str, origin: int, mask: int = 1) -> Access:
    return Access(Act.PUT, region, None, what, mask, (origin, 0))


def need(region: Region, what: str, origin: int, mask: int = 1) -> Access:
    return Access(Act.NEED, region, None, what, mask, (origin, 0))


def copy(to: Region, of: Region) -> Access:
    return Access(Act.COPY, to, of)


def add(to: Region, of: Region) -> Access:
    return Access(Act.ADD, to, of)


def one_shot(world, calls=3, buffers=2, barrier=None, blocks=1, flags=True, rank_slot=None) -> Plan:
    """Every rank publishes its addend, waits for all, reads all. barrier: None, "signals", "join"."""
    size = blocks * ROWS
    b = Build(
        "all_reduce", world, calls,
        [Buffer("payload", "symmetric", "bf16", size, COLS, buffers), Buffer("y", "output", "bf16", size, COLS)],
        [Lane("main", True), Lane("blocks", False, "kernel")],
    )  # fmt: skip
    every = (1 << world) - 1
    for e in range(calls):
        begun = [b.start(r, e) for r in range(world)]
        for r in range(world):
            for k in range(blocks):
                slot = e % buffers if rank_slot is None or r else rank_slot(e)
                gives = [b.signal("arrived", q, r * blocks + k, r, e) for q in range(world)]
                effect = put(rows("payload", r, slot, k * ROWS), "x", k * ROWS, 1 << r)
                b.task(f"publish block {k}", r, "blocks", e, "stage", [effect], (), gives, [begun[r]], 3)
        for r in range(world):
            for k in range(blocks):
                to, s = rows("y", r, 0, k * ROWS), e % buffers
                effects = [put(to, "x", k * ROWS, 0)]
                effects += [add(to, rows("payload", q, s, k * ROWS)) for q in range(world)]
                waits = [b.signal("arrived", r, q * blocks + k, q, e) for q in range(world) if flags or q == r]
                b.task(f"reduce block {k}", r, "blocks", e, "reduce", effects, waits, after=[begun[r]], line=4)
        if barrier == "signals":
            b.barrier(e)
        joined = b.join(e) if barrier == "join" else None
        for r in range(world):
            if joined is not None:
                b._since[r].append(joined)
            b.end(r, e, [need(rows("y", r, 0, 0, size), "x", 0, every)])
    return b.plan()


def gather_tiles(b, e, r, slot, begun, chunks, shards) -> None:
    """Tiles over a gathered buffer, each waiting for the chunk that it reads."""
    for d in shards:
        for c in range(chunks):
            first = (d * chunks + c) * ROWS
            reads = [need(rows("all", r, slot, first), "x", first)]
            waits = [b.signal("arrived", r, d * chunks + c, b.giver(d, r), e)]
            effects = [*reads, put(rows("h", r, 0, first), "h", first)]
            b.task(f"tile of shard {d}, chunk {c}", r, "tiles", e, "tile", effects, waits, after=[begun], line=5)


def gather_build(op, world, calls, buffers, chunks, lanes, giver_of):
    size = world * chunks * ROWS
    b = Build(
        op, world, calls,
        [Buffer("x", "input", "bf16", chunks * ROWS, COLS), Buffer("all", "symmetric", "bf16", size, COLS, buffers),
         Buffer("h", "output", "bf16", size, COLS)],
        [Lane("main", True), *lanes, Lane("tiles", False, "kernel")],
    )  # fmt: skip
    b.giver = giver_of
    return b


def stage_shards(b, e, chunks, slot, begun):
    """Each rank copies its input into its own place; a chunk's signal says that it may be read."""
    world = b.world
    for r in range(world):
        for c in range(chunks):
            first = (r * chunks + c) * ROWS
            gives = [b.signal("arrived", r, r * chunks + c, r, e)]
            effect = copy(rows("all", r, slot, first), rows("x", r, 0, c * ROWS))
            b.task(f"stage chunk {c}", r, "main", e, "stage", [effect], (), gives, [begun[r]], 3)


def begin(b, e, chunks):
    size = chunks * ROWS
    return [b.start(r, e, [put(rows("x", r, 0, 0, size), "x", r * size)]) for r in range(b.world)]


def finish(b, e, chunks, barrier):
    size = b.world * chunks * ROWS
    if barrier:
        b.barrier(e)
    for r in range(b.world):
        b.end(r, e, [need(rows("h", r, 0, 0, size), "h", 0)])


def ring_gather(world, calls=3, buffers=2, chunks=1, lanes=1, barrier=False, skip=None) -> Plan:
    """Forward to the right neighbour what came from the left. `skip` (rank, step): forgets its wait."""
    comm = [Lane(f"comm{k}", True, "kernel", 1) for k in range(lanes)]
    b = gather_build("ring", world, calls, buffers, chunks, comm, lambda d, r: r if d == r else (r - 1) % world)
    for e in range(calls):
        slot, begun = e % buffers, begin(b, e, chunks)
        stage_shards(b, e, chunks, slot, begun)
        for i in range(world - 1):
            for r in range(world):
                d, right = (r - i) % world, (r + 1) % world
                for c in range(chunks):
                    first, k = (d * chunks + c) * ROWS, d * chunks + c
                    waits = [] if (r, i) == skip else [b.signal("arrived", r, k, b.giver(d, r), e)]
                    moved = copy(rows("all", right, slot, first), rows("all", r, slot, first))
                    b.task(f"send shard {d}, chunk {c}", r, f"comm{c % lanes}", e, "move", [moved], waits,
                           [b.signal("arrived", right, k, r, e)], [begun[r]], line=4)  # fmt: skip
        for r in range(world):
            gather_tiles(b, e, r, slot, begun[r], chunks, [(r - i) % world for i in range(world)])
        finish(b, e, chunks, barrier)
    return b.plan()


def direct_gather(world, calls=3, buffers=2, chunks=1, side="push", engines=0, barrier=False, ready=True) -> Plan:
    """Every rank moves its shard to (push) or fetches from (pull) every other. With `engines` copy lanes, which do not
    wait: they start behind an entry barrier. `ready` False drops the flags that a pull waits for."""
    if engines:
        moves = [Lane(f"engine{k}", True) for k in range(engines)]
    else:
        moves = [Lane("moves", False, "kernel", 2)]
    giver_of = (lambda d, r: d) if side == "push" else (lambda d, r: r)
    b = gather_build("direct", world, calls, buffers, chunks, moves, giver_of)
    for e in range(calls):
        slot, begun = e % buffers, begin(b, e, chunks)
        stage_shards(b, e, chunks, slot, begun)
        entered = begun
        if engines or side == "pull":
            for r in range(world):
                gives = [b.signal("ready", q, r, r, e) for q in range(world)]
                b.task("say ready", r, "main", e, "barrier", signals=gives, line=3)
        if engines:
            entered = [
                b.task("entry barrier", r, "main", e, "barrier",
                       waits=[b.signal("ready", r, q, q, e) for q in range(world) if ready], line=3)
                for r in range(world)
            ]  # fmt: skip
        for r in range(world):
            for i in range(1, world):
                other = (r + i) % world
                source, to = (r, other) if side == "push" else (other, r)
                for c in range(chunks):
                    first, k = (source * chunks + c) * ROWS, source * chunks + c
                    waits = []
                    if not engines:
                        own = side == "push"
                        waits = [b.signal("arrived", r, k, r, e)] if own else [b.signal("ready", r, other, other, e)]
                        waits = waits if ready else []
                    lane = f"engine{i % engines}" if engines else "moves"
                    moved = copy(rows("all", to, slot, first), rows("all", source, slot, first))
                    b.task(f"{side} shard {source}, chunk {c} to rank {to}", r, lane, e, "move", [moved], waits,
                           [b.signal("arrived", to, k, r, e)], [entered[r]], line=4)  # fmt: skip
        for r in range(world):
            gather_tiles(b, e, r, slot, begun[r], chunks, [(r + i) % world for i in range(world)])
        finish(b, e, chunks, barrier)
    return b.plan()


def gemm_rs(world, shapes=None, buffers=2, chunks=1, tiles=1, barrier=False, reduce_first=False, empty_signals=True,
            last_tile_only=False, merged=False, twice=(), lost=(), shift=0, wrong_owner=False) -> Plan:  # fmt: skip
    """Tiles push partial sums to the owner of their rows; each chunk of a shard is reduced once all of its tiles of all
    ranks are there. `shapes`: for each call how many ranks have rows (3 full calls). `merged`: the tiles of a chunk are
    one task. Mutants: `twice`, `lost`: (rank, rank) pairs of owner and addend; `shift`: rows that one tile is off."""
    shapes = [world] * 3 if shapes is None else shapes
    size = chunks * tiles * ROWS
    b = Build(
        "gemm_rs", world, len(shapes),
        [Buffer("stage", "symmetric", "bf16", world * size + 8, COLS, buffers),
         Buffer("y", "output", "bf16", size, COLS)],
        [Lane("main", True), Lane("tiles", False, "kernel")],
    )  # fmt: skip
    every = (1 << world) - 1

    def reduce(e, r, begun):
        s = e % buffers
        for c in range(chunks):
            full = r < shapes[e]
            to = rows("y", r, 0, c * tiles * ROWS, tiles * ROWS * full)
            origin = r * size + c * tiles * ROWS
            effects = [put(to, "y", origin, 0)]
            for q in range(world):
                of = rows("stage", r, s, q * size + c * tiles * ROWS, tiles * ROWS * full)
                effects += [add(to, of)] * (0 if (r, q) in lost else 2 if (r, q) in twice else 1)
            waits = [b.signal("chunk", r, q * chunks + c, q, e) for q in range(world) if full or empty_signals]
            b.task(f"reduce chunk {c}", r, "tiles", e, "reduce", effects, waits, after=[begun], line=7)

    for e, shape in enumerate(shapes):
        s = e % buffers
        for r in range(world):
            begun = b.start(r, e)
            if reduce_first:
                reduce(e, r, begun)
            for i in range(world):
                d = (r + 1 + i) % world
                for c in range(chunks):
                    gives = [b.signal("chunk", d, r * chunks + c, r, e)]
                    if d >= shape:
                        if empty_signals:
                            name = f"empty chunk {c} for rank {d}"
                            b.task(name, r, "tiles", e, "tile", signals=gives, after=[begun], line=6)
                        continue
                    owner = (d + 1) % world if wrong_owner and (e, r, i, c) == (0, 0, 0, 0) else d
                    for t in range(1 if merged else tiles):
                        first, count = (c * tiles + t) * ROWS, ROWS * tiles if merged else ROWS
                        off = shift if (e, r, i, c, t) == (0, 0, 0, 0, 0) else 0
                        to = rows("stage", owner, s, r * size + first + off, count)
                        last = t == tiles - 1 or not last_tile_only
                        effect = put(to, "y", d * size + first, 1 << r)
                        b.task(f"tile {t} of chunk {c} for rank {d}", r, "tiles", e, "tile", [effect], (),
                               gives if last else (), [begun], 6, tiles if merged else 1)  # fmt: skip
            if not reduce_first:
                reduce(e, r, begun)
        if barrier:
            b.barrier(e)
        for r in range(world):
            full = [need(rows("y", r, 0, 0, size), "y", r * size, every)] if r < shape else []
            b.end(r, e, full)
    return b.plan()


def tp_mlp(world, chunks=4, calls=3, buffers=2) -> Plan:
    """all_gather(x) @ w1, then @ w2 and reduce_scatter: pushes and tiles in one launch, tiles and reduces in the next.
    `chunks` in each shard."""
    size = world * chunks * ROWS
    b = Build(
        "mlp", world, calls,
        [Buffer("x", "input", "bf16", chunks * ROWS, COLS), Buffer("all", "symmetric", "bf16", size, COLS, buffers),
         Buffer("h", "local", "bf16", size, COLS), Buffer("stage", "symmetric", "bf16", size, COLS, buffers),
         Buffer("y", "output", "bf16", chunks * ROWS, COLS)],
        [Lane("main", True), Lane("moves", False, "up", 4), Lane("up tiles", False, "up"),
         Lane("down tiles", False, "down")],
    )  # fmt: skip
    every = (1 << world) - 1
    for e in range(calls):
        s = e % buffers
        begun = begin(b, e, chunks)
        stage_shards(b, e, chunks, s, begun)
        for r in range(world):
            ups = []
            for i in range(1, world):
                q = (r + i) % world
                for c in range(chunks):
                    k = r * chunks + c
                    region = rows("all", q, s, k * ROWS), rows("all", r, s, k * ROWS)
                    words = [b.signal("arrived", r, k, r, e)], [b.signal("arrived", q, k, r, e)]
                    name = f"push chunk {c} to rank {q}"
                    ups.append(b.task(name, r, "moves", e, "move", [copy(*region)], *words, [begun[r]], 4))
            for i in range(world):
                d = (r - i) % world
                for c in range(chunks):
                    k = d * chunks + c
                    at = k * ROWS
                    effects = need(rows("all", r, s, at), "x", at), put(rows("h", r, 0, at), "h", at)
                    ups.append(b.task(f"up tiles of shard {d}, chunk {c}", r, "up tiles", e, "tile", effects,
                               [b.signal("arrived", r, k, d, e)], (), [begun[r]], 5, 7))  # fmt: skip
            second = b.task("second launch", r, "main", e, "barrier", after=ups)
            for i in range(world):
                d = (r + 1 + i) % world
                for c in range(chunks):
                    k = d * chunks + c
                    b.task(f"down tiles for rank {d}, chunk {c}", r, "down tiles", e, "tile",
                           [need(rows("h", r, 0, k * ROWS), "h", k * ROWS),
                            put(rows("stage", d, s, (r * chunks + c) * ROWS), "y", k * ROWS, 1 << r)],
                           (), [b.signal("done", d, r * chunks + c, r, e)], [second], 6, 4)  # fmt: skip
            for c in range(chunks):
                to = rows("y", r, 0, c * ROWS)
                effects = [put(to, "y", (r * chunks + c) * ROWS, 0)]
                effects += [add(to, rows("stage", r, s, (q * chunks + c) * ROWS)) for q in range(world)]
                waits = [b.signal("done", r, q * chunks + c, q, e) for q in range(world)]
                b.task(f"reduce chunk {c}", r, "down tiles", e, "reduce", effects, waits, (), [second], 7)
        for r in range(world):
            b.end(r, e, [need(rows("y", r, 0, 0, chunks * ROWS), "y", r * chunks * ROWS, every)])
    return b.plan()


# ---- one change to a plan


def with_task(plan: Plan, t: int, **changes) -> Plan:
    tasks = list(plan.tasks)
    tasks[t] = replace(tasks[t], **changes)
    return replace(plan, tasks=tuple(tasks))


def drop_wait(plan: Plan, t: int, i: int) -> Plan:
    waits = plan.tasks[t].waits
    return with_task(plan, t, waits=waits[:i] + waits[i + 1 :])


def drop_signal(plan: Plan, t: int, i: int) -> Plan:
    signals = plan.tasks[t].signals
    return with_task(plan, t, signals=signals[:i] + signals[i + 1 :])


def with_access(plan: Plan, t: int, i: int, **changes) -> Plan:
    accesses = list(plan.tasks[t].accesses)
    accesses[i] = replace(accesses[i], **changes)
    return with_task(plan, t, accesses=tuple(accesses))


def find(plan: Plan, name: str, rank: int, call: int) -> int:
    return next(i for i, t in enumerate(plan.tasks) if t.name == name and t.rank == rank and t.call == call)
