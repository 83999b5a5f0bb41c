"""Execution plans of MSCCL++, a JSON file for each: threadblocks whose operations put, get, copy and add chunks, and
signal and wait over memory channels.

Read as MSCCL++'s executor carries them out. The threads of a block go on from one operation to the next; only `nop` and
`barrier` bring them together. So what a signal follows, or a wait precedes, needs a `nop` between, and chunks that an
operation leaves for the next one of its block too. The notes on the format are in grammars/plan_formats.md. Refused:
packets (protocol LL), port and switch channels, semaphores, pipelines, thread block groups, reductions other than sums.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from chunkdsl.plan.importers.fault import broken, malformed, unsupported
from chunkdsl.plan.importers.json_text import Json
from chunkdsl.plan.importers.machine import LARGEST_WORLD, MOST_CHUNKS, MOST_TASKS, Action, Layout, Machine, Slot, Task

COLLECTIVES = {"allgather": "all_gather", "reducescatter": "reduce_scatter", "allreduce": "all_reduce",
               "alltoall": "all_to_all"}  # fmt: skip
PLAN = ("name", "collective", "protocol", "inplace", "reuse_resources", "gpus", "num_threads_per_block",
        "use_double_scratch_buffer", "buffer_alignment", "min_message_size", "max_message_size")  # fmt: skip
GPU = ("id", "input_chunks", "output_chunks", "scratch_chunks", "threadblocks", "channels", "remote_buffers",
       "semaphores")  # fmt: skip
BLOCK = ("id", "ops", "channels", "remote_buffer_refs")
REMOTE = ("rank", "type", "access_channel_types")
# From and to where: "each" moves pairs of a source and a target; "sum" adds all sources up for every target. Then which
# sources and targets are on the other rank: none, all, or all but the first.
MOVES = {
    "copy": ("each", "none", "none"),
    "put": ("each", "none", "all"),
    "get": ("each", "all", "none"),
    "re": ("sum", "none", "none"),
    "res": ("sum", "none", "rest"),
    "rre": ("sum", "rest", "none"),
    "rres": ("sum", "rest", "rest"),
}
SIGNALS = {"signal": True, "rlxsignal": False}  # True: what came before it is visible to who has waited for it
WAITS = {"wait", "rlxwait"}
FIELDS = {
    "nop": (), "barrier": ("barrier_id", "num_threadblocks"),
    **dict.fromkeys((*SIGNALS, *WAITS), ("channel_ids", "channel_type")),
    **{name: ("src_buff", "dst_buff", "channel_ids", "channel_type", *(("reduce_op",) if way == "sum" else ()))
       for name, (way, *_) in MOVES.items()},
}  # fmt: skip
OTHERS = ("ppkt", "rppkt", "respkt", "cpkt", "upkt", "repkt", "recpkt", "recspkt", "glre", "glres", "gstore",
          "gstorepkt", "pws", "pwsf", "flush", "pipeline", "sem_acquire", "sem_release")  # fmt: skip
MOST_SIDE_BY_SIDE = 1024


@dataclass(slots=True, eq=False)
class Rank:
    """What a rank has besides its threadblocks. `peers[c]`: the rank at the other end of memory channel c."""

    number: int
    scratch: int
    peers: list[int]
    remote: list[tuple[int, str]]


@dataclass(slots=True, eq=False)
class Block:
    """A threadblock being read. `joined`: the task since which its threads were together, `since`: its tasks since."""

    rank: Rank
    number: int
    channels: list[int]
    remote: list[tuple[int, str]]
    joined: Task | None = None
    since: list[Task] = field(default_factory=list)

    def task(self, value: Json, what: str, actions: tuple[Action, ...] = ()) -> Task:
        made = Task(self.rank.number, self.number, value.span, what, actions)
        made.after += [self.joined] if self.joined else []
        self.since.append(made)
        return made

    def join(self, value: Json, what: str) -> Task:
        made = Task(self.rank.number, self.number, value.span, what)
        made.after += [*self.since, *([self.joined] if self.joined else [])]
        self.joined, self.since = made, []
        return made


@dataclass(slots=True, eq=False)
class Meeting:
    """One use of a barrier by `count` threadblocks."""

    count: int
    op: Json
    came: list[Task] = field(default_factory=list)
    left: list[Task] = field(default_factory=list)


def read_mscclpp(plan: Json) -> Machine:
    """The program of an execution plan. PlanFileError for what is not one, or is not supported."""
    return _Reader(plan).read()


class _Reader:
    def __init__(self, plan: Json) -> None:
        self.plan = plan
        self.tasks: list[Task] = []
        # (source rank, its channel): signals over it; (rank, its channel): waits at it
        self.signals: dict[tuple[int, int], list[tuple[Task, bool]]] = {}
        self.waits: dict[tuple[int, int], list[tuple[Task, bool]]] = {}
        self.barriers: dict[tuple[int, int], list[Meeting]] = {}

    def read(self) -> Machine:
        plan = self.plan
        plan.fields(PLAN)
        for key, meant in (("protocol", ("Simple",)), ("collective", tuple(COLLECTIVES))):
            if (found := plan.member(key)).text() not in meant:
                raise unsupported(f"{key} {found.text()!r}; this version reads {', '.join(meant)}", found.span)
        self._check_form()
        gpus = plan.member("gpus").items(LARGEST_WORLD)
        if len(gpus) < 2:
            raise malformed("a plan has two ranks or more", plan.member("gpus").span)
        self.world = len(gpus)
        self.layout = self._layout(COLLECTIVES[plan.member("collective").text()], gpus)
        ranks = [self._rank(gpu, number) for number, gpu in enumerate(gpus)]
        for rank, gpu in zip(ranks, gpus, strict=True):
            self._blocks(rank, gpu)
        self._match_barriers()
        self._match_signals(ranks)
        self._end(gpus)
        return Machine(plan.member("name").text(), self.layout, tuple(self.tasks), tuple(g.span for g in gpus))

    def _check_form(self) -> None:
        """What says nothing to a route has its form all the same."""
        for key in ("reuse_resources", "use_double_scratch_buffer"):
            if key in self.plan.data:
                self.plan.data[key].truth()
        for key, low in (("num_threads_per_block", 1), ("buffer_alignment", 1), ("min_message_size", 0),
                         ("max_message_size", 0)):  # fmt: skip
            if key in self.plan.data:
                self.plan.data[key].integer(low, 2**64 - 1)

    def _layout(self, contract: str, gpus: list[Json]) -> Layout:
        buffer = "input_chunks" if contract == "reduce_scatter" else "output_chunks"
        first = gpus[0].member(buffer)
        inplace = self.plan.member("inplace").truth()
        layout = Layout(contract, self.world, first.integer(0, MOST_CHUNKS), inplace, first.span)
        for rank, gpu in enumerate(gpus):
            gpu.fields(GPU)
            if gpu.member("id").integer(0, LARGEST_WORLD) != rank:
                raise malformed(f"ranks stand in order: wanted id {rank}", gpu.member("id").span)
            for key, which in (("input_chunks", "i"), ("output_chunks", "o")):
                found, size = gpu.member(key), layout.chunks(which)
                if found.integer(0, MOST_CHUNKS) != size:
                    raise broken(f"{key} is {found.data}; {contract} with {self.world} ranks and {buffer} of "
                                 f"{first.data} makes it {size}", found.span)
        return layout

    def _rank(self, gpu: Json, number: int) -> Rank:
        peers: list[int] = []
        for channel in gpu.member("channels").items(MOST_SIDE_BY_SIDE):
            self._memory(channel.member("channel_type"))
            channel.fields(("channel_type", "connected_to"))
            for peer in channel.member("connected_to").items(MOST_SIDE_BY_SIDE):
                peers.append(self._peer(peer, number))
        remote: list[tuple[int, str]] = []
        for buffer in gpu.member("remote_buffers").items(MOST_SIDE_BY_SIDE):
            buffer.fields(REMOTE)
            for way in buffer.member("access_channel_types").items(4):
                self._memory(way)
            remote.append((self._peer(buffer.member("rank"), number), self._buffer(buffer.member("type"))))
        if "semaphores" in gpu.data and gpu.data["semaphores"].items(MOST_SIDE_BY_SIDE):
            raise unsupported("semaphores", gpu.data["semaphores"].span, help="order threadblocks with barriers")
        return Rank(number, gpu.member("scratch_chunks").integer(0, MOST_CHUNKS), peers, remote)

    def _peer(self, value: Json, rank: int) -> int:
        peer = value.integer(0, self.world - 1)
        if peer == rank:
            raise broken(f"rank {rank} at the other end of its own channel", value.span)
        return peer

    def _memory(self, value: Json) -> None:
        if value.text() != "memory":
            raise unsupported(f"{value.text()!r} channels; this version reads memory channels", value.span)

    def _buffer(self, value: Json) -> str:
        if value.text() not in ("i", "o", "s"):
            raise malformed(f"wanted i, o or s, found {value.text()!r}", value.span)
        return value.text()

    # ---- threadblocks

    def _blocks(self, rank: Rank, gpu: Json) -> None:
        for number, tb in enumerate(gpu.member("threadblocks").items(MOST_SIDE_BY_SIDE)):
            tb.fields(BLOCK)
            if tb.member("id").integer(0, MOST_SIDE_BY_SIDE) != number:
                raise malformed(f"threadblocks stand in order: wanted id {number}", tb.member("id").span)
            channels: list[int] = []
            for c in tb.member("channels").items(4):
                c.fields(("channel_type", "channel_ids"))
                self._memory(c.member("channel_type"))
                channels += [self._index(i, rank.peers, "channel")[0] for i in c.member("channel_ids").items(1024)]
            remote: list[tuple[int, str]] = []
            for r in tb.data["remote_buffer_refs"].items(4) if "remote_buffer_refs" in tb.data else ():
                r.fields(("access_channel_type", "remote_buffer_ids"))
                self._memory(r.member("access_channel_type"))
                remote += [self._index(i, rank.remote, "remote buffer")[1]
                           for i in r.member("remote_buffer_ids").items(1024)]  # fmt: skip
            block = Block(rank, number, channels, remote)
            for op in tb.member("ops").items(MOST_TASKS):
                self._operation(block, op)

    def _index(self, value: Json, of: list, what: str) -> tuple[int, object]:
        if not of:
            raise broken(f"a {what} where none is declared", value.span)
        i = value.integer(0, len(of) - 1)
        return i, of[i]

    def _operation(self, block: Block, op: Json) -> None:
        name = op.member("name").text()
        if name in OTHERS:
            raise unsupported(f"operation {name!r}; this version reads nop, barrier, {', '.join(MOVES)}, "
                              f"{', '.join((*SIGNALS, *sorted(WAITS)))}", op.member("name").span)  # fmt: skip
        if "tbg_info" in op.data:
            raise unsupported("thread block groups", op.keys["tbg_info"])
        if name not in FIELDS:
            raise malformed(f"unknown operation {name!r}", op.member("name").span)
        op.fields(("name", *FIELDS[name]))
        if "channel_type" in op.data:
            self._memory(op.data["channel_type"])
        if name == "nop":
            self.tasks.append(block.join(op, name))
        elif name == "barrier":
            self._barrier(block, op)
        elif name in SIGNALS or name in WAITS:
            self._signal(block, op, name)
        else:
            self._move(block, op, name)

    def _move(self, block: Block, op: Json, name: str) -> None:
        way, far_sources, far_targets = MOVES[name]
        for value in op.data["channel_ids"].items(MOST_SIDE_BY_SIDE) if "channel_ids" in op.data else ():
            self._index(value, block.channels, "channel")
        if "reduce_op" in op.data and op.data["reduce_op"].text() != "sum":
            raise unsupported(f"reduction {op.data['reduce_op'].data!r}; a route adds up", op.data["reduce_op"].span)
        sources = self._chunks(block, op.member("src_buff"), far_sources)
        targets = self._chunks(block, op.member("dst_buff"), far_targets)
        if not sources or not targets:
            raise malformed(f"{name} without chunks", op.span)
        if name == "copy" and len(sources) > 1:
            raise unsupported("a copy of several chunks in one operation", op.span,
                              help="executors take up the first: write one operation for each")
        unpaired = way == "each" and len(sources) != len(targets)
        if unpaired or {len(x) for x in (*sources, *targets)} != {len(sources[0])}:
            raise broken(f"{name}: what is read and what is written differ in size", op.span)
        if way == "each":
            actions = [Action((a,), (b,)) for x, y in zip(sources, targets, strict=True)
                       for a, b in zip(x, y, strict=True)]  # fmt: skip
        else:
            actions = [Action(tuple(x[i] for x in sources), tuple(x[i] for x in targets))
                       for i in range(len(sources[0]))]  # fmt: skip
        self.tasks.append(block.task(op, name, tuple(actions)))

    def _chunks(self, block: Block, value: Json, far: str) -> list[list[Slot]]:
        found = []
        for i, chunk in enumerate(value.items(64)):
            index, size = (chunk.member(k).integer(0, MOST_CHUNKS) for k in ("index", "size"))
            if far == "all" or (far == "rest" and i):
                chunk.fields(("buffer_id", "index", "size"))
                rank, buffer = self._index(chunk.member("buffer_id"), block.remote, "remote buffer")[1]
            else:
                chunk.fields(("type", "index", "size"))
                rank, buffer = block.rank.number, self._buffer(chunk.member("type"))
            scratch = self.plan.member("gpus").data[rank].member("scratch_chunks").integer(0, MOST_CHUNKS)
            found.append(self.layout.slots(rank, buffer, index, size, scratch, chunk.span))
        return found

    # ---- synchronisation

    def _signal(self, block: Block, op: Json, name: str) -> None:
        task = block.task(op, name)
        kept = self.signals if name in SIGNALS else self.waits
        seen: set[int] = set()
        for value in op.member("channel_ids").items(MOST_SIDE_BY_SIDE):
            _, channel = self._index(value, block.channels, "channel")
            if channel in seen:
                raise broken(f"{name} names a channel twice", value.span)
            seen.add(channel)
            line = kept.setdefault((block.rank.number, channel), [])
            if line and line[-1][0].lane != block.number:
                raise broken(f"threadblocks {line[-1][0].lane} and {block.number} of rank {block.rank.number} both "
                             f"{name} over one channel, in no order", value.span)
            if line and line[-1][0] not in task.after:
                task.after.append(line[-1][0])
            line.append((task, name in ("signal", "wait")))
        self.tasks.append(task)

    def _match_signals(self, ranks: list[Rank]) -> None:
        """The nth channel of a rank to another belongs to the nth channel back; the nth wait takes the nth signal."""
        partner: dict[tuple[int, int], tuple[int, int]] = {}
        for rank in ranks:
            for channel, peer in enumerate(rank.peers):
                nth = rank.peers[:channel].count(peer)
                back = [c for c, p in enumerate(ranks[peer].peers) if p == rank.number]
                if nth >= len(back):
                    raise broken(f"channel {channel} of rank {rank.number} leads to rank {peer}, which has no "
                                 "channel back for it", self.plan.member("gpus").data[rank.number].span)
                partner[rank.number, channel] = peer, back[nth]
        ends = {*self.waits, *(partner[s] for s in self.signals)}
        sources = {end: source for source, end in partner.items()}
        for end in sorted(ends):
            signals, waits = self.signals.get(sources[end], []), self.waits.get(end, [])
            if len(waits) > len(signals):
                raise broken(f"a deadlock: {waits[len(signals)][0]} waits for signal {len(signals) + 1} of its "
                             f"channel, and the peer gives {len(signals)}", waits[len(signals)][0].span)
            if len(waits) < len(signals):
                raise broken(f"{signals[len(waits)][0]} signals once more than its peer waits: the next call would "
                             "start too early", signals[len(waits)][0].span)
            for (signal, strong), (wait, also) in zip(signals, waits, strict=True):
                (wait.after if strong and also else wait.behind).append(signal)

    def _barrier(self, block: Block, op: Json) -> None:
        number, count = (op.member(k).integer(0, MOST_SIDE_BY_SIDE) for k in ("barrier_id", "num_threadblocks"))
        meetings = self.barriers.setdefault((block.rank.number, number), [])
        nth = sum(any(t.lane == block.number for t in m.came) for m in meetings)
        if nth == len(meetings):
            meetings.append(Meeting(count, op))
        meeting = meetings[nth]
        if meeting.count != count:
            raise broken(f"barrier {number} of {count} threadblocks, and of {meeting.count} elsewhere", op.span)
        meeting.came.append(block.join(op, "barrier"))
        # Whoever leaves has seen all that came: the way out is a task of its own.
        block.joined = Task(block.rank.number, block.number, op.span, "barrier", after=[meeting.came[-1]])
        meeting.left.append(block.joined)
        self.tasks += [meeting.came[-1], block.joined]

    def _match_barriers(self) -> None:
        for meetings in self.barriers.values():
            for m in meetings:
                if len(m.came) != m.count:
                    raise broken(f"a deadlock: the barrier waits for {m.count} threadblocks, and {len(m.came)} come",
                                 m.op.span)
                for came, left in zip(m.came, m.left, strict=True):
                    left.after += [t for t in m.came if t is not came]

    def _end(self, gpus: list[Json]) -> None:
        """When a rank's threadblocks are done its output is read: all that others put there must have arrived."""
        for rank, gpu in enumerate(gpus):
            reads = tuple(Action((slot,), ()) for slot, _ in self.layout.outputs(rank))
            end = Task(rank, 0, gpu.span, "the end", reads)
            end.after += [t for t in self.tasks if t.rank == rank]
            self.tasks.append(end)
