"""The interpreter's view of a simulated world: turns accesses into scheduling points, checks and log entries."""

from __future__ import annotations

from collections.abc import Callable

from chunkdsl.interp.memory import Memory
from chunkdsl.sim.accesses import Accesses
from chunkdsl.sim.actors import Program
from chunkdsl.sim.buffers import Buffer
from chunkdsl.sim.clocks import Kind
from chunkdsl.sim.log import Add, Read, Signal, Wait, Write
from chunkdsl.sim.visibility import Visibility
from chunkdsl.sim.words import Word

_MANY = 8  # atomics on more words than this are data, not flags: a block of 64 words in fours makes 16


class Hooks(Memory):
    """`current` returns the running program, `switch` gives the others a turn."""

    def __init__(self, accesses: Accesses, current: Callable[[], Program], switch: Callable[[], None], fine: bool,
                 hold: bool = False):
        self._accesses = accesses
        self._current = current
        self._switch = switch
        self._fine = fine
        self._hold = hold
        self.visibility: Visibility | None = None  # set: stores to other ranks are seen later
        self.now = 0
        self.step = 20

    def load(self, addresses, mask, itemsize, volatile, bulk):
        actor = self._current()
        if volatile:
            self._switch()
            actor.holding = self._hold and addresses.size > 1
        parts = self._accesses.locate(actor, "load", addresses, mask, itemsize)
        if self._fine and not volatile:
            self._switch_if_remote(actor, parts)
        self._accesses.load(actor, parts, itemsize, volatile, bulk)
        if volatile and parts:
            first = int(addresses[mask][0])
            buffer = parts[0][0]
            self._poll(actor, buffer, first - buffer.base, itemsize, addresses.size > 1)

    def store(self, addresses, mask, itemsize, bulk):
        actor = self._current()
        parts = self._accesses.locate(actor, "store", addresses, mask, itemsize)
        if self._fine:
            self._switch_if_remote(actor, parts)
        if parts:
            actor.progress()
        self._accesses.store(actor, parts, itemsize, bulk)

    def keep(self, addresses, mask, data):
        return self.visibility is not None and self.visibility.keep(self._current(), addresses, mask, data)

    def _switch_if_remote(self, actor: Program, parts) -> None:
        if any(buffer.owner != actor.rank for buffer, _ in parts):
            self._switch()

    # ---- atomics

    def atomic(self, operation, addresses, mask, itemsize, sem, scope, perform):
        if not mask.any():
            return perform()
        actor = self._current()
        if not actor.holding:
            self._switch()
        actor.holding = False
        parts = self._accesses.locate(actor, f"atomic {operation}", addresses, mask, itemsize)
        if self.visibility and sem in ("release", "acq_rel"):
            self.visibility.flush([actor])
        if operation != "load" and sem in ("release", "acq_rel"):
            self._accesses.check_release(actor, parts[0][0])
        if addresses.size > _MANY:
            return self._many(actor, operation, parts, itemsize, scope, perform)
        words = [(self._accesses.space.find(a), a) for a in addresses[mask].tolist()]
        words = [(buffer, address - buffer.base) for buffer, address in words]
        kind = "f" if operation == "fadd" else "i"
        before = [buffer.word(offset, itemsize, kind) for buffer, offset in words]
        old = perform()
        after = [buffer.word(offset, itemsize, kind) for buffer, offset in words]
        for (buffer, offset), was, value in zip(words, before, after, strict=True):
            self._one(actor, operation, buffer, offset, itemsize, sem, scope, was, value)
        return old

    def _one(self, actor, operation, buffer: Buffer, offset, itemsize, sem, scope, was, value) -> None:
        accesses = self._accesses
        buffer.polled = True
        if accesses.races:
            kind = Kind.ATOMIC_SYS if scope == "sys" else Kind.ATOMIC_GPU
            boxes = accesses.range(buffer, offset, itemsize)
            # A failed compare-and-swap only reads.
            access = accesses.read if operation == "load" or (operation == "cas" and was == value) else accesses.write
            access(actor, buffer, boxes, itemsize, kind)
            self._synchronise(actor, operation, buffer, offset, sem, scope)
        if accesses.log:
            self._record(actor, operation, buffer, offset, itemsize, sem, scope, was, value)
        if was != value:
            accesses.changes.word(buffer.base, offset)
            actor.progress()
        elif operation in ("load", "cas"):
            self._poll(actor, buffer, offset, itemsize, False)

    def _synchronise(self, actor: Program, operation, buffer: Buffer, offset, sem, scope) -> None:
        clocks = self._accesses.clocks
        word = buffer.words.setdefault(offset, Word())
        system = scope == "sys"
        if operation != "store":
            seen = word.seen_from(actor.rank, system)
            if sem in ("acquire", "acq_rel"):
                for clock in seen:
                    actor.learn(clock)
            else:
                actor.notice(seen, word.seen_from(actor.rank, False))
        if operation == "load":
            return
        first = operation == "store"
        if sem in ("release", "acq_rel"):
            word.release(clocks, actor.rank, system, actor.ready_clock(), first)
            actor.tick()
        elif actor.published:
            word.release(clocks, actor.rank, system and actor.published[1], actor.published[0], first)
        elif first:
            word.break_off()

    def _record(self, actor: Program, operation, buffer: Buffer, offset, itemsize, sem, scope, was, value) -> None:
        seq, index = self._accesses.log.next(), offset // buffer.itemsize
        if sem in ("acquire", "acq_rel") or operation == "load":
            actor.trail.wait(Wait(seq, buffer.place, index, was, sem, scope))
        if operation == "load" or (was == value and operation != "xchg"):  # a flag that is set twice is set twice
            return
        kind = Add if operation in ("add", "fadd") else Signal
        if sem in ("acquire", "acq_rel"):
            seq = self._accesses.log.next()
        actor.trail.events.append(kind(seq, buffer.place, index, was, value, sem, scope))

    def _many(self, actor, operation, parts, itemsize, scope, perform):
        accesses = self._accesses
        for buffer, boxes in parts:
            if operation == "load":
                buffer.polled = True
                if actor.has_read(buffer.base, boxes, accesses.changes):
                    continue
            kind = Kind.ATOMIC_SYS if scope == "sys" else Kind.ATOMIC_GPU
            if accesses.races:
                access = accesses.read if operation == "load" else accesses.write
                access(actor, buffer, boxes, itemsize, kind)
            if accesses.log and operation == "load":
                event = Read(accesses.log.next(), buffer.place, buffer.in_elements(boxes), False, True)
                actor.trail.events.append(event)
            elif accesses.log:
                event = Write(accesses.log.next(), buffer.place, buffer.in_elements(boxes), atomic=True)
                actor.trail.events.append(event)
            if operation != "load":
                actor.exposed = "the atomics on a tile"
                accesses.touch(buffer, [])
                actor.progress()
        if operation == "load" and parts:
            buffer, boxes = parts[0]
            at = boxes[0][0] * buffer.pitch + boxes[0][2] if boxes else 0
            self._poll(actor, buffer, at, itemsize, True)
        return perform()

    def _poll(self, actor: Program, buffer: Buffer, offset: int, itemsize: int, wide: bool) -> None:
        self.now += self.step
        index = offset // buffer.itemsize
        text = f"polls {buffer.name}[{index}] of rank {buffer.owner}, which holds {buffer.word(offset, itemsize)}"
        actor.poll((buffer.base, offset, wide), self._accesses.changes, text)

    # ---- barriers, fences, time

    def barrier(self):
        self._current().exposed = ""

    def fence(self, scope):
        if self.visibility:
            self.visibility.flush([self._current()])
        self._current().fence(scope == "sys")

    def proxy_fence(self):
        self._current().proxy_fence()

    def bulk_wait(self, complete):
        actor = self._current()
        if complete and actor.bulk:
            # Only the thread that issued the store has waited; the others learn it at a barrier.
            actor.exposed = actor.exposed or actor.bulk
            actor.bulk = ""

    def clock(self):
        self._current().reads_clock = True
        self._switch()
        self.now += self.step
        return self.now

    def pause(self, nanoseconds):
        self.now += min(nanoseconds, self.step)
        self._switch()
