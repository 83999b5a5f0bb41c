"""Who acts in a simulated world: programs of kernels, copies, hosts; each is a place where the scheduler may go on.

An actor has a vector clock and knows whether it only polls. Nothing here decides who runs next.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context

from greenlet import GreenletExit, greenlet

from chunkdsl.sim.changes import Changes, Polled
from chunkdsl.sim.clocks import Clock, Clocks
from chunkdsl.sim.handoff import Handoff
from chunkdsl.sim.log import Trail


class Actor:
    """`component` is the actor's own entry in clocks; `repeats` how often its present poll has seen no change.

    Who is stuck stays so until a word that it polls changes, whatever else happens: else runs are mostly polls."""

    def __init__(self, rank: int, clocks: Clocks, component: int, clock: Clock) -> None:
        self.rank = rank
        self.clocks = clocks
        self.component = component
        self.clock = clocks.grown(clock.copy())
        self.clock[component] += 1
        self.order = 0
        self.repeats = 0
        self._polls: dict[Polled, tuple[int, int]] = {}  # how often, and at which change of memory the last time
        self._unchanged_at = -1  # the last change of memory, when it was seen that it was none of these
        self.polling = ""  # for people: what was polled last and what it held

    @property
    def name(self) -> str:
        return f"rank {self.rank}"

    def learn(self, clock: Clock) -> None:
        """Everything that `clock` knows happened before what comes now."""
        self.clock = self.clocks.join(self.clock, clock)

    def tick(self) -> None:
        """Later accesses are not covered by what was published so far."""
        self.clock[self.component] += 1

    def ready_clock(self) -> Clock:
        """The clock, long enough to compare with any stamp."""
        self.clock = self.clocks.grown(self.clock)
        return self.clock

    # ---- polling

    def poll(self, key: Polled, changes: Changes, text: str) -> None:
        """A poll has changed nothing."""
        count, seen = self._polls.get(key, (0, changes.count))
        if changes.last(key) > seen:
            self._polls.clear()
            count = 0
        self.repeats = count + 1
        if count > 1:  # what this loop has not polled in its last turn belongs to a loop before it
            self._polls = {k: v for k, v in self._polls.items() if v[0] >= count}
        self._polls[key] = self.repeats, changes.count
        self._unchanged_at = -1
        self.polling = text

    def progress(self) -> None:
        """The actor did something other than polling."""
        self.repeats = 0
        self._polls.clear()

    def stuck(self, changes: Changes) -> bool:
        """It has polled the same word at least twice and nothing that it polls has changed since."""
        return self.repeats > 1 and self._unchanged(changes)

    def idle(self, changes: Changes, patience: int) -> bool:
        """It has polled the same word `patience` times in vain."""
        return self.repeats >= patience and self._unchanged(changes)

    def _unchanged(self, changes: Changes) -> bool:
        if self._unchanged_at != changes.count:
            if any(changes.last(key) > seen for key, (_, seen) in self._polls.items()):
                return False
            self._unchanged_at = changes.count
        return True


class Program(Actor):
    """One program of a launch, on its own stack.

    `exposed` is the last access since the last barrier that a release would have to cover, `bulk` a descriptor
    store nobody has waited for; `fenced` is the clock at the last proxy fence."""

    def __init__(self, rank, clocks, component, clock, launch, index: int, trail: Trail | None) -> None:
        super().__init__(rank, clocks, component, clock)
        self.launch = launch
        self.index = index
        self.trail = trail
        self.exposed = ""
        self.bulk = ""
        self.published: tuple[Clock, bool] | None = None  # at the last fence, with its scope
        self._noticed: dict[bool, Clock] = {}  # by relaxed reads, from this rank (False) or any (True)
        self.proxy_fence()
        self.reads_clock = False
        self._looks: dict[tuple, tuple[int, int]] = {}  # at blocks of words, and what the time was
        self.holding = False  # it has speculated and is not held up before it validates
        self.stack = _spawn(lambda: launch.function(**launch.arguments))

    @property
    def name(self) -> str:
        return f"rank {self.rank}, program {self.index} of {self.launch.label}"

    def has_read(self, base: int, boxes: list, changes: Changes) -> bool:
        """It read just these words of a buffer before, has published nothing since, and nothing in it has changed: one
        more look is not another access. Notes this one."""
        key, now = (base, *boxes), (changes.last((base, 0, True)), int(self.clock[self.component]))
        known, self._looks[key] = self._looks.get(key) == now, now
        return known

    def stop(self) -> None:
        """Unwind the kernel where it is."""
        self.stack.throw(GreenletExit)

    def proxy_fence(self) -> None:
        """Descriptor loads may use what is known now."""
        self.fenced = self.ready_clock().copy()
        self.tick()

    def notice(self, seen: list[Clock], local: list[Clock]) -> None:
        """Clocks that a relaxed read met; a later fence makes them known."""
        for wide, clocks in ((True, seen), (False, local)):
            for clock in clocks:
                old = self._noticed.get(wide)
                self._noticed[wide] = clock.copy() if old is None else self.clocks.join(old, clock)

    def fence(self, system: bool) -> None:
        """A fence: learn what relaxed reads met, and let later relaxed writes publish what is known now."""
        if system in self._noticed:
            self.learn(self._noticed[system])
        self._noticed.clear()
        self.published = (self.ready_clock().copy(), system)
        self.tick()


class Host(Actor):
    """A host function. `ready` says when it may go on; `waiting` what for."""

    def __init__(self, rank, clocks, component, function: Callable) -> None:
        super().__init__(rank, clocks, component, clocks.fresh())
        self.ready: Callable[[], bool] | None = None
        self.waiting = ""
        self.result = None
        self.meetings: dict[tuple[int, ...], int] = {}  # had with each set of ranks

        def run():
            self.result = function()

        self.stack = Handoff(run)

    @property
    def name(self) -> str:
        return f"host of rank {self.rank}"

    def stop(self) -> None:
        """Unwind the host function where it is."""
        self.stack.stop()


def _spawn(function: Callable) -> greenlet:
    """A greenlet that keeps the context (numpy's error state) of its maker."""
    made = greenlet(function)
    made.gr_context = copy_context()
    return made
