"""What a run did, for conformance: waits, signals, reads, writes and copies, made from addresses and values alone.

Boxes are half-open and count elements of the buffer's own dtype; a buffer of shape [slots, rows, cols] has them in
its three coordinates, one of shape [rows, cols] is slot 0, one of shape [cols] is row 0 of slot 0. Word indices are
positions in the flattened buffer. `seq` counts events over all actors in the order in which they happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Box:
    """[row0, row1) x [col0, col1) of one slot."""

    slot: int
    row0: int
    row1: int
    col0: int
    col1: int


@dataclass(frozen=True, slots=True)
class Place:
    """One rank's buffer."""

    buffer: str
    owner: int


@dataclass(frozen=True, slots=True)
class Wait:
    """An atomic read of a word that returned `value`, mostly an acquire (`sem` says so). Equal ones in a row are one
    event with their number, so the last of a polling loop's events is the wait that succeeded."""

    seq: int
    at: Place
    index: int
    value: int
    sem: str
    scope: str
    polls: int = 1


@dataclass(frozen=True, slots=True)
class Signal:
    """An atomic other than an addition changed a word from `before` to `value`; an exchange also
    where they are equal."""

    seq: int
    at: Place
    index: int
    before: int
    value: int
    sem: str
    scope: str


@dataclass(frozen=True, slots=True)
class Add:
    """An atomic addition changed a word from `before` to `value`."""

    seq: int
    at: Place
    index: int
    before: float
    value: float
    sem: str
    scope: str


@dataclass(frozen=True, slots=True)
class Read:
    """One load; `bulk` for a descriptor, `atomic` for a relaxed or volatile one."""

    seq: int
    at: Place
    boxes: tuple[Box, ...]
    bulk: bool = False
    atomic: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """One store, or an atomic on more than one word (`atomic`)."""

    seq: int
    at: Place
    boxes: tuple[Box, ...]
    bulk: bool = False
    atomic: bool = False


@dataclass(frozen=True, slots=True)
class Copy:
    """A finished copy. `value` is the word's new value if it has 4 or 8 bytes: such copies signal."""

    seq: int
    source: Place
    source_boxes: tuple[Box, ...]
    destination: Place
    destination_boxes: tuple[Box, ...]
    nbytes: int
    value: int | None = None


Event = Wait | Signal | Add | Read | Write | Copy


@dataclass(frozen=True, slots=True)
class Origin:
    """Who acted. `call` counts `SimMachine.next_call` (0 before the first), `launch` the rank's launches from 0.

    A program has its kernel's name as `label` and its place in the grid; a copy has launch and program -1 and label
    `copy`, and all copies of a lane and call share a trail."""

    rank: int
    call: int
    lane: str
    launch: int
    label: str
    program: int


@dataclass(slots=True)
class Trail:
    """Events of one origin in program order."""

    origin: Origin
    events: list[Event] = field(default_factory=list)

    def wait(self, event: Wait) -> None:
        """Append an acquire, merged with an equal one just before."""
        last = self.events[-1] if self.events else None
        if isinstance(last, Wait) and (last.at, last.index, last.value) == (event.at, event.index, event.value):
            self.events.pop()
            merged = last.polls + 1
            event = Wait(event.seq, event.at, event.index, event.value, event.sem, event.scope, merged)
        self.events.append(event)


class Log:
    """All trails of a world, in the order in which their origins started."""

    def __init__(self) -> None:
        self.trails: list[Trail] = []
        self._copies: dict[Origin, Trail] = {}
        self._seq = 0

    def next(self) -> int:
        self._seq += 1
        return self._seq

    def program(self, origin: Origin) -> Trail:
        trail = Trail(origin)
        self.trails.append(trail)
        return trail

    def copies(self, origin: Origin) -> Trail:
        if origin not in self._copies:
            self._copies[origin] = self.program(origin)
        return self._copies[origin]

    def of(self, *, rank: int | None = None, call: int | None = None, label: str | None = None) -> Iterator[Trail]:
        """Trails of a rank, a call, a kernel; None is any."""
        for trail in self.trails:
            o = trail.origin
            if rank in (None, o.rank) and call in (None, o.call) and label in (None, o.label):
                yield trail

    def ordered(self) -> list[tuple[Origin, Event]]:
        """All events in the order in which they happened."""
        pairs = [(t.origin, e) for t in self.trails for e in t.events]
        return sorted(pairs, key=lambda pair: pair[1].seq)
