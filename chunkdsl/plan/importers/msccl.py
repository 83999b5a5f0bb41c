"""Algorithms of MSCCL, an XML file for each: threadblocks with steps that send, receive, copy and add chunks.

Read as MSCCL's interpreter carries them out: a threadblock takes its steps one after the other and talks to one rank it
sends to and one that it receives from, over a channel; what is sent is taken up in the order of sending; a step with
`depid` and `deps` waits until another threadblock of its rank is past the step named, which must have `hasdep`. The
notes on the format are in grammars/plan_formats.md. Refused: protocols other than Simple, reductions other than sums,
collectives other than the four contracts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from chunkdsl.plan.importers.fault import broken, malformed, unsupported
from chunkdsl.plan.importers.machine import LARGEST_WORLD, MOST_CHUNKS, MOST_TASKS, Action, Layout, Machine, Slot, Task
from chunkdsl.plan.importers.xml_text import Element
from chunkdsl.source import Span

COLLECTIVES = {
    "allgather": "all_gather", "reduce_scatter": "reduce_scatter", "allreduce": "all_reduce", "alltoall": "all_to_all",
}  # fmt: skip
ALGO = ("name", "proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace", "outofplace", "redop", "nthreads",
        "minBytes", "maxBytes")  # fmt: skip
GPU = ("id", "i_chunks", "o_chunks", "s_chunks")
THREADBLOCK = ("id", "send", "recv", "chan")
STEP = ("s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep")
# What a step of a type does: takes from the channel, takes `src`, takes `dst`; puts to `dst`, puts to the channel.
TYPES = {
    "s": (False, True, False, False, True),
    "r": (True, False, False, True, False),
    "rcs": (True, False, False, True, True),
    "rrs": (True, True, False, False, True),
    "rrc": (True, True, False, True, False),
    "rrcs": (True, True, False, True, True),
    "cpy": (False, True, False, True, False),
    "re": (False, True, True, True, False),
    "nop": (False, False, False, False, False),
}
LARGEST_ID = 4095
# What says nothing to a route has its form all the same: (least, greatest).
SPOKEN_PAST = {
    "nchannels": (0, LARGEST_ID + 1), "outofplace": (0, 1), "nthreads": (0, 1024), "minBytes": (0, 2**62),
    "maxBytes": (0, 2**62),
}  # fmt: skip


@dataclass(slots=True, eq=False)
class Block:
    """A threadblock: `send` and `recv` are ranks, -1 for none."""

    rank: int
    number: int
    send: int
    recv: int
    channel: int
    span: Span
    steps: list[Element] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Message:
    """One step's worth of chunks in a channel."""

    task: Task
    count: int
    slots: list[Slot]


def read_msccl(algo: Element) -> Machine:
    """The program of an algorithm. PlanFileError for what is not one, or is not supported."""
    return _Reader(algo).read()


class _Reader:
    def __init__(self, algo: Element) -> None:
        self.algo = algo
        self.sent: dict[tuple[int, int, int], list[Message]] = {}
        self.received: dict[tuple[int, int, int], list[Message]] = {}
        self.scratch: dict[int, int] = {}
        self.tasks: list[Task] = []

    def read(self) -> Machine:
        algo = self.algo
        if algo.tag != "algo":
            raise malformed(f"wanted <algo>, found <{algo.tag}>", algo.span)
        algo.known(ALGO)
        self._refuse_what_routes_have_not()
        for name, (low, high) in SPOKEN_PAST.items():
            algo.integer(name, low, high, default=low)
        self.world = algo.integer("ngpus", 2, LARGEST_WORLD)
        chunks = algo.integer("nchunksperloop", 1, MOST_CHUNKS)
        inplace = bool(algo.integer("inplace", 0, 1))
        contract = COLLECTIVES[algo.text("coll")]
        self.layout = Layout(contract, self.world, chunks, inplace, algo.place("nchunksperloop"))
        gpus = self._gpus()
        blocks = [self._blocks(gpu, rank) for rank, gpu in enumerate(gpus)]
        for mine in blocks:
            self._find_partners(list(mine.values()))
            for block in mine.values():
                self._carry_out(block)
        for mine in blocks:
            self._depend(mine)
        self._match()
        return Machine(algo.text("name"), self.layout, tuple(self.tasks), tuple(g.span for g in gpus))

    def _refuse_what_routes_have_not(self) -> None:
        algo = self.algo
        for name, meant in (("proto", ("Simple",)), ("redop", ("nop", "sum")), ("coll", tuple(COLLECTIVES))):
            if name == "redop" and name not in algo.attributes:
                continue
            if (found := algo.text(name)) not in meant:
                raise unsupported(f"{name} {found!r}; this version reads {', '.join(meant)}", algo.place(name))

    def _gpus(self) -> list[Element]:
        """One for each rank, in their order."""
        found: dict[int, Element] = {}
        for gpu in self.algo.children:
            if gpu.tag != "gpu":
                raise malformed(f"wanted <gpu>, found <{gpu.tag}>", gpu.span)
            gpu.known(GPU)
            rank = gpu.integer("id", 0, self.world - 1)
            if rank in found:
                raise malformed(f"rank {rank} occurs twice", gpu.place("id"))
            found[rank] = gpu
            for name, buffer in (("i_chunks", "i"), ("o_chunks", "o")):
                size = self.layout.chunks(buffer)
                if gpu.integer(name, 0, MOST_CHUNKS) not in (0, size):
                    raise broken(f"{name} is {gpu.text(name)}, and nchunksperloop makes it {size}", gpu.place(name))
            self.scratch[rank] = gpu.integer("s_chunks", 0, MOST_CHUNKS)
        for rank in range(self.world):
            if rank not in found:
                raise malformed(f"there is no <gpu> for rank {rank} of {self.world}", self.algo.span)
        return [found[rank] for rank in range(self.world)]

    def _blocks(self, gpu: Element, rank: int) -> dict[int, Block]:
        found: dict[int, Block] = {}
        for tb in gpu.children:
            if tb.tag != "tb":
                raise malformed(f"wanted <tb>, found <{tb.tag}>", tb.span)
            tb.known(THREADBLOCK)
            number = tb.integer("id", 0, LARGEST_ID)
            if number in found:
                raise malformed(f"threadblock {number} of rank {rank} occurs twice", tb.place("id"))
            send, recv = (tb.integer(name, -1, self.world - 1) for name in ("send", "recv"))
            for name, peer in (("send", send), ("recv", recv)):
                if peer == rank:
                    raise broken(f"threadblock {number} of rank {rank} has its own rank at the other end",
                                 tb.place(name))
            found[number] = Block(rank, number, send, recv, tb.integer("chan", 0, LARGEST_ID), tb.span)
            for s, step in enumerate(tb.children):
                if step.tag != "step":
                    raise malformed(f"wanted <step>, found <{step.tag}>", step.span)
                step.known(STEP)
                self._check_form(step)
                if step.integer("s", 0, MOST_TASKS) != s:
                    raise malformed(f"steps count from 0 on: wanted s {s}, found {step.text('s')}", step.place("s"))
                found[number].steps.append(step)
        return found

    def _check_form(self, step: Element) -> None:
        """Attributes that the step's type does not use are of their form too."""
        for end in ("src", "dst"):
            if step.attributes.get(f"{end}buf", "i") not in ("i", "o", "s"):
                raise malformed(f"{end}buf: wanted i, o or s, found {step.text(f'{end}buf')!r}",
                                step.place(f"{end}buf"))  # fmt: skip
            step.integer(f"{end}off", -1, MOST_CHUNKS, default=-1)
        step.integer("cnt", 0, MOST_CHUNKS, default=0)
        step.integer("depid", -1, LARGEST_ID, default=-1)
        step.integer("deps", -1, MOST_TASKS, default=-1)
        step.integer("hasdep", 0, 1, default=0)

    def _find_partners(self, blocks: list[Block]) -> None:
        """A channel to a rank belongs to one threadblock: with two, nothing says in which order they use it."""
        for end in ("send", "recv"):
            first: dict[tuple[int, int], Block] = {}
            for b in blocks:
                peer = b.send if end == "send" else b.recv
                if peer >= 0 and (other := first.setdefault((peer, b.channel), b)) is not b:
                    way = "send to" if end == "send" else "receive from"
                    raise broken(f"threadblocks {other.number} and {b.number} of rank {b.rank} both {way} rank {peer} "
                                 f"over channel {b.channel}", b.span)

    def _carry_out(self, block: Block) -> None:
        for s, step in enumerate(block.steps):
            kind = step.text("type")
            if kind not in TYPES:
                raise unsupported(f"steps of type {kind!r}; this version reads {', '.join(TYPES)}", step.place("type"))
            takes, src, dst_too, dst, puts = TYPES[kind]
            task = Task(block.rank, block.number, step.span, f"step {s} ({kind})")
            count = step.integer("cnt", 1, MOST_CHUNKS) if kind != "nop" else 1
            sources: list[list[Slot]] = []
            targets: list[list[Slot]] = []
            if takes:
                sources.append(self._channel(block, task, count, step, self.received))
            if dst_too:
                sources.append(self._chunks(step, "dst", block.rank, count))
            if src:
                sources.append(self._chunks(step, "src", block.rank, count))
            if dst:
                targets.append(self._chunks(step, "dst", block.rank, count))
            if puts:
                targets.append(self._channel(block, task, count, step, self.sent))
            moved = len(sources[0]) if sources else 0
            task.actions = tuple(Action(tuple(x[i] for x in sources), tuple(x[i] for x in targets))
                                 for i in range(moved))  # fmt: skip
            task.after += block.tasks[-1:]
            block.tasks.append(task)
        self.tasks += block.tasks

    def _chunks(self, step: Element, end: str, rank: int, count: int) -> list[Slot]:
        buffer = step.text(f"{end}buf")
        offset = step.integer(f"{end}off", -1, MOST_CHUNKS)
        return self.layout.slots(rank, buffer, offset, count, self.scratch[rank], step.place(f"{end}off"))

    def _channel(self, block: Block, task: Task, count: int, step: Element, messages: dict) -> list[Slot]:
        """The next message of the threadblock's channel. Who takes a message has the slots of who sent it."""
        sends = messages is self.sent
        peer = block.send if sends else block.recv
        if peer < 0:
            raise broken(f"threadblock {block.number} has no rank to {'send to' if sends else 'receive from'}",
                         step.place("type"))
        source, target = (block.rank, peer) if sends else (peer, block.rank)
        line = messages.setdefault((source, target, block.channel), [])
        chunks = self.layout.pieces(count, step.place("cnt"))
        slots: list[Slot] = [("fifo", target, source, block.channel, len(line), i) for i in chunks]
        line.append(Message(task, count, slots))
        return slots

    def _depend(self, blocks: dict[int, Block]) -> None:
        for block in blocks.values():
            for step, task in zip(block.steps, block.tasks, strict=True):
                number = step.integer("depid", -1, LARGEST_ID, default=-1)
                if number < 0:
                    continue
                if number not in blocks:
                    raise broken(f"depid names threadblock {number}, which rank {block.rank} has not",
                                 step.place("depid"))
                other, s = blocks[number], step.integer("deps", 0, MOST_TASKS)
                if s >= len(other.steps):
                    raise broken(f"deps names step {s} of threadblock {number}, which has {len(other.steps)}",
                                 step.place("deps"))
                if not other.steps[s].integer("hasdep", 0, 1, default=0):
                    raise broken(f"a deadlock: {task} waits for {other.tasks[s]}, whose hasdep is 0: it tells nobody "
                                 "that it is done", step.place("deps"))
                task.after.append(other.tasks[s])

    def _match(self) -> None:
        for key in sorted({*self.sent, *self.received}):
            sent, received = self.sent.get(key, []), self.received.get(key, [])
            for a, b in zip(sent, received, strict=False):
                if a.count != b.count:
                    raise broken(f"{a.task} sends {a.count} chunks, and {b.task} takes {b.count} of them", b.task.span)
                b.task.after.append(a.task)
            if len(sent) != len(received):
                source, target, channel = key
                left = (sent if len(sent) > len(received) else received)[min(len(sent), len(received))].task
                raise broken(
                    f"rank {source} sends {len(sent)} times to rank {target} over channel {channel}, which receives "
                    f"{len(received)} times: {left} waits for ever", left.span,
                )  # fmt: skip
