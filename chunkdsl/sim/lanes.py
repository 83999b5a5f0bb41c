"""Streams of a rank: the main lane and the copy lanes, each a queue whose entries start one after another.

`Lane.settle` moves past events that have fired and starts what is at the head; it does not run anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from chunkdsl.sim.actors import Actor, Program
from chunkdsl.sim.clocks import Clock, Clocks


@dataclass(eq=False)
class Launch:
    """A kernel launch: a call of `function` for each place of `grid`. `clock` is the host's when it launched."""

    label: str
    number: int
    call: int
    function: Callable
    arguments: Mapping[str, object]
    grid: tuple[int, int, int]
    clock: Clock
    lane: str = "main"
    started: int = 0
    begun: Clock | None = None  # its lane's when it began
    live: list[Program] = field(default_factory=list)

    @property
    def programs(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    def place(self, index: int) -> tuple[int, int, int]:
        """Grid index of a program, x fastest."""
        nx, ny, _ = self.grid
        return index % nx, index // nx % ny, index // (nx * ny)

    def __str__(self) -> str:
        return f"kernel {self.label} ({self.programs} programs, {self.started - len(self.live)} done)"

    @property
    def done(self) -> bool:
        return self.started == self.programs and not self.live


@dataclass(eq=False)
class CopyWork:
    """A copy of `nbytes` bytes between two addresses. `data`: part of a box, which publishes nothing."""

    destination: int
    source: int
    nbytes: int
    call: int
    clock: Clock
    data: bool = False
    moved: int = 0
    done: bool = False

    def __str__(self) -> str:
        return f"copy of {self.nbytes} bytes"


@dataclass(eq=False)
class Event:
    """What one lane records and another waits for."""

    name: str
    clock: Clock | None = None

    def __str__(self) -> str:
        return f"event {self.name}"


@dataclass(frozen=True)
class Record:
    event: Event

    def __str__(self) -> str:
        return f"record of {self.event}"


@dataclass(frozen=True)
class Await:
    event: Event

    def __str__(self) -> str:
        return f"wait for {self.event}"


@dataclass(frozen=True)
class Begun:
    """Until all programs of a launch on another lane have started. What comes then knows what that one began with."""

    launch: Launch

    @property
    def clock(self) -> Clock | None:
        return self.launch.begun if self.launch.started == self.launch.programs else None

    def __str__(self) -> str:
        return f"wait for all programs of {self.launch} to start"


class Lane(Actor):
    """One queue. As an actor it is the copy engine that works on the copy at its head."""

    def __init__(self, rank: int, name: str, clocks: Clocks) -> None:
        super().__init__(rank, clocks, clocks.component(("lane", rank, name)), clocks.fresh())
        self.lane = name
        self.queue: deque[Launch | CopyWork | Record | Await | Begun] = deque()
        self.running: Launch | CopyWork | None = None

    @property
    def name(self) -> str:
        return f"rank {self.rank}, copy lane {self.lane}"

    @property
    def empty(self) -> bool:
        return not self.queue

    def settle(self) -> bool:
        """Go as far as possible without running a program or a copy; True if anything moved."""
        moved = False
        while self.queue:
            head = self.queue[0]
            if isinstance(head, Record):
                head.event.clock = self.clock.copy()
                self.tick()
            elif isinstance(head, Await | Begun):
                clock = head.clock if isinstance(head, Begun) else head.event.clock
                if clock is None:
                    return moved
                self.learn(clock)
            elif self.running is None:
                self.running = head
                self.learn(head.clock)
                if isinstance(head, Launch):
                    head.begun = self.clock.copy()
                moved = True
                continue
            elif not head.done:
                return moved
            else:
                self.running = None
            self.queue.popleft()
            moved = True
        return moved

    def __str__(self) -> str:
        behind = f", {len(self.queue) - 1} more behind it" if len(self.queue) > 1 else ""
        return f"lane {self.lane} of rank {self.rank}: {self.queue[0]}{behind}" if self.queue else f"lane {self.lane}"
