"""The plan: one schedule unrolled for one world size and one sequence of calls, or a plan made elsewhere.

Explicit and immutable: which box of which rank's buffer each task reads and writes, which signal it waits for,
which it gives. The proofs, the simulator's conformance check, the cost model and the importers read this and
nothing else.

Order between two tasks comes only from: a serial lane (tasks complete in order), a signal, an `after` edge
(stream order, events, joins, call edges). Tasks on an issue-ordered lane start in order and finish in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

FORMAT = 1  # version of the JSON form


@dataclass(frozen=True, slots=True)
class Buffer:
    """`rows` x `cols` elements for each rank and slot. `kind`: input, output, local, symmetric."""

    name: str
    kind: str
    dtype: str
    rows: int
    cols: int
    slots: int = 1


@dataclass(frozen=True, slots=True)
class Region:
    """A box [row0, row1) x [col0, col1) of one slot of one rank's copy of a buffer."""

    buffer: str
    rank: int
    slot: int
    row0: int
    row1: int
    col0: int
    col1: int

    @property
    def empty(self) -> bool:
        return self.row0 >= self.row1 or self.col0 >= self.col1


class Act(Enum):
    PUT = "put"  # writes region: content `what` with addends `mask`
    COPY = "copy"  # region <- source, content unchanged
    ADD = "add"  # region += source: masks must be disjoint, contents equal
    NEED = "need"  # reads region and requires content `what` with exactly `mask`


@dataclass(frozen=True, slots=True)
class Access:
    """One effect of a task. Content is (`what`, call, mask, origin): `origin` is the (row, column) that the region's
    first element has in the global tensor `what`, so that a chunk copied to the wrong place is found out.
    `mask` is a bit set of the ranks whose addends are in (bit 0 alone for values that are not sums)."""

    act: Act
    region: Region
    source: Region | None = None
    what: str = ""
    mask: int = 1
    origin: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Signal:
    """A word `index` of flag buffer `flags` on rank `owner`, set to the epoch of `call` once all tasks that list it
    are complete. `signaller` is the rank that publishes it."""

    flags: str
    owner: int
    index: int
    signaller: int
    call: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """`serial`: a stream or a copy lane. Else programs of one launch; `programs` 0 means all that are left. `behind`: a
    launch of which every program runs before one of this lane starts."""

    name: str
    serial: bool
    launch: str = ""
    programs: int = 0
    behind: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """One or more equal programs' worth of work on one rank. `lane` names a Lane; `after` are indices of earlier
    tasks of the same rank or joins; `waits` and `signals` index `Plan.signals`. `count` is how many tiles or pieces
    it stands for, `line` the spec line, `label` what a person calls it (`rank 2: tiles of shard 1, chunk 3`)."""

    name: str
    rank: int
    lane: str
    call: int
    kind: str  # start, stage, move, tile, reduce, barrier, end
    line: int
    accesses: tuple[Access, ...] = ()
    after: tuple[int, ...] = ()
    waits: tuple[int, ...] = ()
    signals: tuple[int, ...] = ()
    count: int = 1


@dataclass(frozen=True)
class Plan:
    """Tasks in an order that issue-ordered lanes start them in. `calls` are the dim bindings of each call."""

    op: str
    world: int
    calls: tuple[tuple[tuple[str, int], ...], ...]
    buffers: tuple[Buffer, ...]
    lanes: tuple[Lane, ...]
    signals: tuple[Signal, ...]
    tasks: tuple[Task, ...]
    spec: str = ""
