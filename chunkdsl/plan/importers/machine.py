"""What an imported program does, as tasks on chunks of buffers: the form that the formats of others are read into.

Every rank has an input, an output and a scratch buffer ("i", "o", "s") of equally large chunks, and threadblocks that
carry tasks out. `Layout` says which chunk of input and output is which piece of which shard; in place, input and output
are one memory. Nothing here follows contents: `follow` does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import lcm

from chunkdsl.plan.importers.fault import broken, unsupported
from chunkdsl.record import record
from chunkdsl.source import Span

LARGEST_WORLD = 256
LARGEST_LANE = 63  # as in plans of a spec
MOST_CHUNKS = 4096  # of a buffer
MOST_TASKS = 32768  # their order is kept as bit sets: half of 32768^2 bits are 64 MiB
MOST_MOVES = 131072  # chunks that operations read or write
MOST_PLACES = 262144  # pieces of all shards on all ranks
BUFFERS = {"i": "input", "o": "output", "s": "scratch"}

Slot = tuple  # (rank, buffer, chunk), and ("fifo", rank, ...) for what is on its way to a rank


@record
class Action:
    """The sum of `sources` goes to every one of `targets`. Of one chunk."""

    sources: tuple[Slot, ...]
    targets: tuple[Slot, ...]


@dataclass(slots=True, eq=False)
class Task:
    """`lane` is the threadblock. `after`: tasks whose effects are visible to this one; `behind`: tasks that come before
    without that (relaxed signals)."""

    rank: int
    lane: int
    span: Span
    what: str  # as messages name it: `put`, `step 3 (rrs)`
    actions: tuple[Action, ...] = ()
    after: list[Task] = field(default_factory=list)
    behind: list[Task] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.what} of threadblock {self.lane} on rank {self.rank}"


@record
class Machine:
    """`places[rank]`: where the file begins to speak of a rank."""

    name: str
    layout: Layout
    tasks: tuple[Task, ...]
    places: tuple[Span, ...]


class Layout:
    """Chunks of a collective. `chunks` of the larger one of input and output, as the file cuts it.

    all_reduce may cut its buffer as it likes: where the ranks do not divide the chunks, each is cut into `fine` pieces.
    """

    def __init__(self, contract: str, world: int, chunks: int, inplace: bool, span: Span) -> None:
        if not 1 <= chunks <= MOST_CHUNKS:
            raise unsupported(f"{chunks} chunks; this version reads 1 to {MOST_CHUNKS}", span)
        if contract != "all_reduce" and chunks % world:
            raise broken(f"{chunks} chunks for {world} ranks: {contract} cuts every shard alike", span,
                         help=f"wanted a multiple of {world}")
        self.contract, self.world, self.inplace = contract, world, inplace
        self.fine = lcm(chunks, world) // chunks
        self.parts = chunks * self.fine // world
        if self.parts * world > MOST_CHUNKS:
            raise unsupported(f"{chunks} chunks cut for {world} ranks are {self.parts * world}, "
                              f"more than {MOST_CHUNKS}", span)  # fmt: skip
        self._moved = 0
        whole, shard = self.parts * world, self.parts
        if whole * world > MOST_PLACES:
            raise unsupported(f"{whole} chunks on each of {world} ranks; this version keeps {MOST_PLACES}", span)
        self.sizes = {
            "i": shard if contract == "all_gather" else whole,
            "o": shard if contract == "reduce_scatter" else whole,
        }

    @property
    def sums(self) -> bool:
        return self.contract in ("reduce_scatter", "all_reduce")

    def chunks(self, buffer: str) -> int:
        """Of the input or output, as the file counts them."""
        return self.sizes[buffer] // self.fine

    def slots(self, rank: int, buffer: str, index: int, count: int, scratch: int, span: Span) -> list[Slot]:
        """`count` chunks from `index` on. `scratch`: how many the rank's scratch buffer has."""
        size = scratch if buffer == "s" else self.chunks(buffer)
        if index < 0 or count < 1 or index + count > size:
            last = f"..{index + count - 1}" if count > 1 else ""
            raise broken(f"{BUFFERS[buffer]} chunk {index}{last} of rank {rank}, which has {size} of them", span)
        return [self._slot(rank, buffer, index * self.fine + i) for i in self.pieces(count, span)]

    def pieces(self, count: int, span: Span) -> range:
        """Of `count` chunks that an operation moves. Counted, so that a small file cannot ask for endless work."""
        self._moved += count * self.fine
        if self._moved > MOST_MOVES:
            raise unsupported(f"more than {MOST_MOVES} chunks are moved", span)
        return range(count * self.fine)

    def _slot(self, rank: int, buffer: str, index: int) -> Slot:
        if self.inplace and buffer == "i" and self.contract == "all_gather":
            return rank, "o", rank * self.parts + index
        if self.inplace and buffer == "o" and self.contract != "all_gather":
            own = rank * self.parts if self.contract == "reduce_scatter" else 0
            return rank, "i", own + index
        return rank, buffer, index

    def inputs(self, rank: int) -> list[tuple[Slot, tuple[int, ...]]]:
        """Where a rank's input lies and what it is: (origin, part) of a gathered shard, (shard, part) of a sum,
        (origin, destination, part) of an exchange."""
        found = []
        for i in range(self.sizes["i"]):
            shard, part = divmod(i, self.parts)
            what = (rank, part) if self.contract == "all_gather" else (shard, part)
            found.append((self._slot(rank, "i", i), (rank, *what) if self.contract == "all_to_all" else what))
        return found

    def outputs(self, rank: int) -> list[tuple[Slot, tuple[int, ...]]]:
        """Where a rank's output shall lie and what it shall be."""
        found = []
        for i in range(self.sizes["o"]):
            shard, part = divmod(i, self.parts)
            what = (rank, part) if self.contract == "reduce_scatter" else (shard, part)
            found.append((self._slot(rank, "o", i), (shard, rank, part) if self.contract == "all_to_all" else what))
        return found

    def place(self, what: tuple[int, ...], rank: int) -> tuple[int, int] | None:
        """(shard, part) of a route that holds this on a rank. None for what an exchange passes on."""
        if self.contract != "all_to_all":
            return what
        origin, destination, part = what
        return (origin, part) if rank == destination else (destination, part) if rank == origin else None

    def name(self, slot: Slot) -> str:
        """In words, as the file counts its chunks."""
        rank, buffer, index = slot
        if self.inplace and buffer in "io":
            return f"chunk {index // self.fine} of rank {rank}"
        return f"{BUFFERS[buffer]} chunk {index // self.fine} of rank {rank}"


def in_order(machine: Machine) -> list[Task]:
    """The tasks, each behind those that it comes after. Broken where some wait for each other in a circle, and where
    two tasks use a chunk, one of them writes it, and nothing orders them."""
    tasks = machine.tasks
    if len(tasks) > MOST_TASKS:
        raise unsupported(f"{len(tasks)} operations; this version reads at most {MOST_TASKS}", tasks[MOST_TASKS].span)
    following: dict[Task, list[Task]] = {t: [] for t in tasks}
    missing = {t: len(t.after) + len(t.behind) for t in tasks}
    for t in tasks:
        for before in (*t.after, *t.behind):
            following[before].append(t)
    ready = deque(t for t in tasks if not missing[t])
    order: list[Task] = []
    while ready:
        order.append(t := ready.popleft())
        for later in following[t]:
            missing[later] -= 1
            if not missing[later]:
                ready.append(later)
    if len(order) < len(tasks):
        _refuse_circle(next(t for t in tasks if missing[t]), missing)
    _find_races(machine.layout, order)
    return order


def _refuse_circle(task: Task, missing: dict[Task, int]) -> None:
    passed: dict[Task, int] = {}
    while task not in passed:
        passed[task] = len(passed)
        task = next(t for t in (*task.after, *task.behind) if missing[t])
    path = list(passed)[passed[task] :]
    waits = "\n".join(f"{t} waits for {path[(i + 1) % len(path)]}" for i, t in enumerate(path[:6]))
    more = f"\nand {len(path) - 6} more, back to the first" if len(path) > 6 else ""
    raise broken("a deadlock: these operations wait for each other", path[0].span, help=waits + more)


def _find_races(layout: Layout, order: list[Task]) -> None:
    """Tasks that use a chunk one after the other must be ordered by more than chance."""
    number = {t: i for i, t in enumerate(order)}
    earlier: list[int] = []  # bit set of the tasks whose effects a task sees
    wrote: dict[Slot, Task] = {}
    readers: dict[Slot, list[Task]] = {}
    for t in order:
        seen = 0
        for before in t.after:
            seen |= earlier[number[before]] | 1 << number[before]
        earlier.append(seen)
        reads = {s for a in t.actions for s in a.sources}
        writes = {s for a in t.actions for s in a.targets}
        for slot in reads | writes:
            others = [wrote[slot]] if slot in wrote else []
            others += readers.get(slot, []) if slot in writes else []
            for other in others:
                if not seen >> number[other] & 1:
                    _refuse_race(layout, slot, other, t, slot in writes)
            if slot in writes:
                wrote[slot], readers[slot] = t, []
            else:
                readers.setdefault(slot, []).append(t)


def _refuse_race(layout: Layout, slot: Slot, first: Task, second: Task, writes: bool) -> None:
    how = "writes" if writes else "reads"
    raise broken(f"a race: nothing orders {first} and {second}, which {how} {layout.name(slot)}", second.span,
                 help="the first must be done, and a signal or a dependence say so, before the second starts")
