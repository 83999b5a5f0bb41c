"""Simulated ranks, their lanes and hosts, and the loop that gives each a turn, one at a time.

Programs are greenlets that switch back here at atomics and volatile loads, hosts do so at machine calls; copies are
steps of their lane. The loop ends when hosts have returned and lanes are empty, or with a fault.
It does not look into kernels (`hooks`), decide who runs (`scheduler`) or check accesses (`accesses`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from greenlet import getcurrent

from chunkdsl.interp import Interpreter, bind, interpreting
from chunkdsl.interp.arguments import function_of, tensors_of
from chunkdsl.sim import copies
from chunkdsl.sim.accesses import Accesses
from chunkdsl.sim.actors import Actor, Host, Program
from chunkdsl.sim.blame import deadlock, kernel_error
from chunkdsl.sim.clocks import Clocks
from chunkdsl.sim.faults import CollectiveMismatch, SimulationFault
from chunkdsl.sim.hooks import Hooks
from chunkdsl.sim.lanes import Await, Begun, CopyWork, Event, Lane, Launch, Record
from chunkdsl.sim.log import Log, Origin
from chunkdsl.sim.machine import SimMachine
from chunkdsl.sim.products import run_product
from chunkdsl.sim.scheduler import Scheduler
from chunkdsl.sim.visibility import Visibility

T = TypeVar("T")


class World:
    """`world` ranks.

    seed, policy, slow: see `Scheduler`. resident: programs of a rank that run at once, in grid order; None is all.
    sms: what `SimMachine.sms` says. races: happens-before checks. tma: hazards of descriptor accesses.
    fine: switch also at ordinary accesses to other ranks' memory. log: keep `World.log`.
    hold: assume run_to_completion: a program that has read a block with volatile loads reads its next flag at once.
    delay: stores to other ranks' memory become visible later, in any order that fences allow (`visibility`).
    expire: when everything polls and some program has read the clock, move the clock on by `expire_ns` instead of
    reporting a deadlock; again only after something has changed. patience: polls in vain that count as for ever.
    max_steps: scheduler steps of one `run` before it is called a livelock (a Deadlock too).
    """

    def __init__(
        self,
        world: int,
        *,
        seed: int = 0,
        resident: int | None = None,
        sms: int = 4,
        races: bool = True,
        policy: str = "random",
        slow: int | None = None,
        tma: bool = True,
        fine: bool = False,
        hold: bool = False,
        delay: bool = False,
        log: bool = False,
        expire: bool = False,
        expire_ns: int = 10**15,
        patience: int = 64,
        max_steps: int = 5_000_000,
    ) -> None:
        if world < 1 or (resident is not None and resident < 1):
            raise ValueError("a world has at least one rank and one resident program")
        self.size = world
        self.seed = seed
        self.sms = sms
        self.resident = resident
        self.results = 0
        self.steps = 0
        self.log = Log() if log else None
        self.clocks = Clocks()
        self.accesses = Accesses(self.clocks, races, tma, self.log)
        self.machines = [SimMachine(self, rank) for rank in range(world)]
        self._hooks = Hooks(self.accesses, lambda: self._current, self._switch, fine, hold)
        self._scheduler = Scheduler(seed, policy, slow)
        if delay:
            self._hooks.visibility = Visibility(self.accesses, self._scheduler.random)
        self._expire, self._expire_ns, self._expired_at = expire, expire_ns, None
        self._patience, self._max_steps = patience, max_steps
        self._lanes: list[dict[str, Lane]] = [{"main": Lane(r, "main", self.clocks)} for r in range(world)]
        self._launches = [0] * world
        self._ahead: list[Launch | None] = [None] * world
        self._meetings: dict[tuple[int, ...], list[tuple[str, dict[int, object], list]]] = {}
        self._hosts: list[Host] = []
        self._programs: list[Program] = []
        self._current: Actor | None = None
        self._loop = None
        self._started = 0
        self._changes = 0
        self._dirty = True
        self._interpreter: Interpreter | None = None

    def run(self, host: Callable[[SimMachine], T]) -> list[T]:
        """Run `host(machine)` for each rank until all have returned and all lanes are empty; the results by rank.

        Machines, buffers and clocks stay for the next run. Raises SimulationFault, or what a host raises."""
        with interpreting(self._hooks) as self._interpreter:
            self._loop = getcurrent()
            self._hosts = []
            self._meetings = {}
            for rank, machine in enumerate(self.machines):
                component = self.clocks.component(("host", rank))
                actor = Host(rank, self.clocks, component, lambda m=machine: host(m))
                for lane in self.lanes():  # a run starts after everything of the runs before it
                    actor.learn(lane.clock)
                self._hosts.append(self._begin(actor))
            try:
                self._turns()
            finally:
                self._abandon()
        return [h.result for h in self._hosts]

    # ---- the loop

    def _turns(self) -> None:
        limit = self.steps + self._max_steps
        actors: list[Actor] = []
        while True:
            if self._dirty:
                actors = self._runnable()
            if not actors:
                if all(h.stack.dead for h in self._hosts):
                    return
                raise deadlock(self, "nobody can go on")
            stores = self._hooks.visibility
            if stores and self._scheduler.random.random() < 0.2:
                stores.some()
            changes = self.accesses.changes
            if stores and all(a.idle(changes, self._patience) for a in actors) and stores.some():
                continue
            if all(a.idle(changes, self._patience) for a in actors) and not self._advance_clock(actors):
                raise deadlock(self, "every running program polls and nothing changes")
            self._step(self._scheduler.choose(actors, changes))
            self.steps += 1
            if self.steps > limit:
                raise deadlock(self, f"no end after {self._max_steps} steps")

    def _step(self, actor: Actor) -> None:
        if isinstance(actor, Lane):
            copies.advance(self.accesses, actor, actor.running, self._scheduler.random)
            self._dirty |= actor.running.done
            return
        self._current = actor
        if isinstance(actor, Program):
            self._interpreter.builder.place(actor.launch.grid, actor.launch.place(actor.index))
            try:
                actor.stack.switch()
            except SimulationFault:
                raise
            except Exception as error:
                raise kernel_error(actor, error) from error
            if actor.stack.dead:
                self._end(actor)
                if self._hooks.visibility:
                    self._hooks.visibility.flush([actor])
            return
        self._dirty = True
        try:
            actor.stack.switch()
        except Exception as error:
            error.add_note(f"in the host function of rank {actor.rank} (simulated, seed {self.seed})")
            raise

    def _runnable(self) -> list[Actor]:
        """Settle all lanes, start programs, and list who can take a step."""
        self._dirty = False
        while any([lane.settle() | self._fill(lane) for lane in self.lanes()]):
            pass
        hosts = [h for h in self._hosts if not h.stack.dead and (h.ready is None or h.ready())]
        working = [lane for lane in self.lanes() if isinstance(lane.running, CopyWork) and not lane.running.done]
        return [*hosts, *working, *self._programs]

    def _fill(self, lane: Lane) -> bool:
        """Start programs of the lane's running kernel while the rank has room; True if the kernel has ended."""
        launch = lane.running
        if not isinstance(launch, Launch):
            return False
        if launch.done:
            return True
        busy = sum(p.rank == lane.rank for p in self._programs)
        while launch.started < launch.programs and (self.resident is None or busy < self.resident):
            component = self.clocks.component((lane.lane, lane.rank, launch.started))
            trail = None
            if self.log:
                origin = Origin(lane.rank, launch.call, lane.lane, launch.number, launch.label, launch.started)
                trail = self.log.program(origin)
            program = Program(lane.rank, self.clocks, component, lane.clock, launch, launch.started, trail)
            launch.started += 1
            launch.live.append(program)
            self._programs.append(self._begin(program))
            busy += 1
        return False

    def _begin(self, actor):
        self._started += 1
        actor.order = self._started
        self._dirty = True
        return actor

    def _end(self, program: Program) -> None:
        self._programs.remove(program)
        program.launch.live.remove(program)
        self._lanes[program.rank][program.launch.lane].learn(program.clock)
        self._dirty = True
        self._changes += 1

    def _advance_clock(self, actors: list[Actor]) -> bool:
        """Everything polls: if a deadline may help and something happened since the last time, let it pass."""
        state = (self.accesses.changes.count, self._changes)
        if not self._expire or self._expired_at == state or not any(getattr(a, "reads_clock", False) for a in actors):
            return False
        self._expired_at = state
        self._hooks.now += self._expire_ns
        for actor in actors:
            actor.progress()
        return True

    def _abandon(self) -> None:
        """Unwind what a fault has left behind."""
        self._current = None
        for actor in [*self._hosts, *self._programs]:
            if not actor.stack.dead:
                with suppress(Exception):
                    actor.stop()
        self._programs = []

    # ---- called by hosts and programs

    def _switch(self) -> None:
        if isinstance(self._current, Host):
            self._current.stack.pause()
        else:
            self._loop.switch()

    def lanes(self) -> list[Lane]:
        return [lane for lanes in self._lanes for lane in lanes.values()]

    def _host(self, rank: int) -> Host:
        host = self._hosts[rank] if self._hosts else None
        if host is None or self._current is not host:
            raise SimulationFault(f"the machine of rank {rank} is used outside its host function", rank)
        return host

    def _lane(self, rank: int, name: str) -> Lane:
        lanes = self._lanes[rank]
        if name not in lanes:
            lanes[name] = Lane(rank, name, self.clocks)
        return lanes[name]

    def launch(
        self, machine: SimMachine, kernel, programs: int | tuple[int, int, int], arguments: dict, beside: bool = False
    ) -> None:
        """Queue a launch on the machine's main lane; `programs` of one axis, or a grid of three. `beside`: it starts as
        soon as all programs of the launch ahead have, and what is queued later on the main lane after both."""
        grid = programs if isinstance(programs, tuple) else (int(programs), 1, 1)
        host = self._host(machine.place)
        for name, value in arguments.items():
            for tensor in tensors_of(value):
                self.accesses.space.adopt(name, machine.place, tensor)
        function, bound = bind(kernel, arguments)
        number = self._launches[machine.place]
        self._launches[machine.place] += 1
        label = function_of(kernel).__name__
        lane = f"beside: {label}" if beside else "main"
        work = Launch(label, number, machine.call, function, bound, grid, host.clock.copy(), lane)
        ahead, self._ahead[machine.place] = self._ahead[machine.place], work
        if not beside:
            self._queue(machine.place, "main", work)
            return
        if ahead is None:
            raise SimulationFault(f"{label} may start beside the launch ahead of it, and is the first", machine.place)
        self._lane(machine.place, lane).queue += [Begun(ahead), work]
        self.order(machine, lane, "main")

    def multiply(self, machine: SimMachine, label: str, out, left, right, transposed: bool) -> None:
        """Queue a product of the library on the machine's main lane: a launch of one program."""
        clock = self._host(machine.place).clock.copy()
        for name, tensor in (("result", out), ("left", left), ("right", right)):
            self.accesses.space.adopt(f"{name} of {label}", machine.place, tensor)
        number = self._launches[machine.place]
        self._launches[machine.place] += 1
        run = partial(run_product, self.accesses, lambda: self._current, self._switch)
        arguments = dict(out=out, left=left, right=right, transposed=transposed)
        self._queue(machine.place, "main", Launch(label, number, machine.call, run, arguments, (1, 1, 1), clock))

    def copy(self, machine: SimMachine, destination: int, source: int, nbytes: int, lane: str,
             *, data: bool = False) -> None:
        """Queue a copy on a lane of the machine. `data`: a row of something, never a word that publishes."""
        clock = self._host(machine.place).clock.copy()
        work = CopyWork(int(destination), int(source), int(nbytes), machine.call, clock, data)
        self._queue(machine.place, lane, work)

    def order(self, machine: SimMachine, first: str, then: str) -> None:
        """Later work of lane `then` starts after earlier work of lane `first`."""
        self._host(machine.place)
        event = Event(f"{first} to {then}")
        self._lane(machine.place, first).queue.append(Record(event))
        self._queue(machine.place, then, Await(event))

    def _queue(self, rank: int, lane: str, entry) -> None:
        self._lane(rank, lane).queue.append(entry)
        self._dirty = True
        self._switch()

    def drain(self, rank: int, what: str, lane: str | None) -> None:
        """Block the host until one lane, or all of the rank, are empty."""
        host = self._host(rank)
        lanes = [self._lane(rank, lane)] if lane else list(self._lanes[rank].values())
        self._block(host, what, lambda: all(entry.empty for entry in lanes))
        for entry in lanes:
            host.learn(entry.clock)

    def meet(self, rank: int, what: str, value, members: tuple[int, ...]) -> list:
        """Wait for the next collective of all members; their values in order. Raises CollectiveMismatch."""
        host = self._host(rank)
        held = self._meetings.setdefault(members, [])
        count = host.meetings.get(members, 0)
        if count == len(held):
            held.append((what, {}, []))
        name, values, clocks = held[count]
        host.meetings[members] = count + 1
        if name != what:
            raise CollectiveMismatch(f"rank {rank} comes to {what}, others are in {name}", rank)
        values[rank] = value
        host.tick()
        clocks.append(host.clock.copy())
        self._block(host, f"{what} (here: ranks {sorted(values)})", lambda: len(values) == len(members))
        for clock in clocks:
            host.learn(clock)
        return [values[r] for r in members]

    def _block(self, host: Host, what: str, ready: Callable[[], bool]) -> None:
        host.ready, host.waiting = ready, what
        self._dirty = True
        while True:
            self._switch()
            if ready():
                break
        host.ready, host.waiting = None, ""

    # ---- for messages

    @property
    def hosts(self) -> list[Host]:
        return self._hosts

    @property
    def programs(self) -> list[Program]:
        return self._programs
