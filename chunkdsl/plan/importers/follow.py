"""An imported program, followed chunk by chunk, becomes a route.

A rank of a route has one place for each piece of each shard. A chunk that a program keeps in scratch, or on its way in
a channel, is not stored by the route: it is remembered where it came from, and the transfer is written down when the
program uses it: added to a sum, put into the output, or passed on (then it lies in the place of its piece, from where
it goes on). Where a place would have to hold two different sums at once, the program is refused.

Each place of a route goes through versions, one for each transfer into it. A reader of a version comes after the
transfer that made it and not after the next one: these constraints give `when`, the level of each step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from chunkdsl.plan.importers.fault import broken, unsupported
from chunkdsl.plan.importers.levels import Edge, find_levels
from chunkdsl.plan.importers.machine import LARGEST_LANE, Action, Machine, Slot, Task, in_order
from chunkdsl.plan.steps import Piece, Route, Step
from chunkdsl.source import Span

Place = tuple  # (rank, (shard, part))


@dataclass(slots=True, eq=False)
class Term:
    """What lay in a place at a version. `by` is the task that carries it to another rank, None if it is still there;
    `mask`: the addends that it carries."""

    place: Place
    version: int
    by: Task | None = None
    mask: int = 0


@dataclass(slots=True, eq=False)
class Value:
    """The sum of `terms`, on one rank: piece `what` with the addends of the ranks in `mask`."""

    what: tuple[int, ...]
    mask: int
    terms: list[Term]


@dataclass(slots=True, eq=False)
class Draft:
    """A step before its `when` is known."""

    by: Task
    source: Place
    version: int
    target: Place
    adding: bool


def follow(machine: Machine, axes: tuple[int, ...], line_of: Callable[[int], int]) -> Route:
    """The route of a program. `line_of(offset)` is the line of a place in the file. PlanFileError where it is broken or
    does what a route cannot."""
    return _Follower(machine).route(axes, line_of)


class _Follower:
    def __init__(self, machine: Machine) -> None:
        self.machine, self.layout = machine, machine.layout
        self.held: dict[Slot, Value] = {}
        self.drafts: list[Draft] = []
        self.writes: dict[Place, list[int]] = {}  # numbers of the drafts into a place
        self.masks: dict[Place, list[int]] = {}  # addends in each version of a place
        self.relays: dict[int, dict[tuple[int, ...], int]] = {}  # of a rank: the place of each block that goes on
        for rank in range(self.layout.world):
            for slot, what in self.layout.inputs(rank):
                place = rank, self.layout.place(what, rank)
                mask = 1 << rank if self.layout.sums else 1
                self.held[slot] = Value(what, mask, [Term(place, 0)])
                if self.layout.contract != "all_to_all":  # there inputs and results have the same numbers
                    self.masks[place] = [mask]

    def route(self, axes: tuple[int, ...], line_of: Callable[[int], int]) -> Route:
        for task in in_order(self.machine):
            for action in task.actions:
                self._act(task, action)
        self._finish()
        steps: list[list[tuple[int, int, Step]]] = [[] for _ in range(self.layout.world)]
        for number, (d, level) in enumerate(zip(self.drafts, self._levels(), strict=True)):
            steps[d.by.rank].append((level, number, self._step(d, level, line_of)))
        ordered = tuple(tuple(step for *_, step in sorted(mine, key=lambda s: s[:2])) for mine in steps)
        return Route(self.machine.name, self.layout.contract, axes, ordered)

    def _step(self, d: Draft, level: int, line_of: Callable[[int], int]) -> Step:
        (holder, source), (reader, target) = d.source, d.target
        if d.by.lane > LARGEST_LANE:
            raise unsupported(f"threadblock {d.by.lane}: the lanes of a route count to {LARGEST_LANE}", d.by.span)
        sends = d.by.rank == holder
        return Step(
            "send" if sends else "fetch", self._piece(*source), self._piece(*target), reader if sends else holder,
            adding=d.adding, when=(level,), lane=d.by.lane, line=line_of(d.by.span.start),
        )  # fmt: skip

    def _piece(self, shard: int, part: int) -> Piece:
        return Piece(shard, part, self.layout.parts)

    # ---- values

    def _act(self, task: Task, action: Action) -> None:
        if not action.targets:
            return
        value = self._sum(task, [self._take(task, slot) for slot in action.sources])
        for slot in action.targets:
            if _rank(slot) == task.rank:
                self.held[slot] = value
            else:
                self.held[slot] = self._carried(task, value, task.rank)

    def _take(self, task: Task, slot: Slot) -> Value:
        value = self.held.get(slot)
        if value is None:
            raise broken(f"{task} reads {self.layout.name(slot)}, which nothing has written", task.span)
        return value if _rank(slot) == task.rank else self._carried(task, value, _rank(slot))

    def _carried(self, task: Task, value: Value, holder: int) -> Value:
        """A value of `holder` as the rank at the other end of the task's transfer has it."""
        self._settle(value, holder, task.span)
        (term,) = value.terms
        if self.layout.contract == "all_to_all" and holder == value.what[1] != value.what[0]:
            raise unsupported(f"rank {holder} passes on {self._say(value)}, which is for itself", task.span)
        return Value(value.what, value.mask, [Term(term.place, term.version, task, value.mask)])

    def _sum(self, task: Task, values: list[Value]) -> Value:
        if len(values) == 1:
            return values[0]
        first, *others = values
        if not self.layout.sums:
            raise broken(f"{task} adds, and {self.layout.contract} adds nothing up", task.span)
        mask, terms = first.mask, list(first.terms)
        for v in others:
            if v.what != first.what:
                raise broken(f"{task} adds {self._say(v)} to {self._say(first)}", task.span)
            if v.mask & mask:
                raise broken(f"{task} counts {_ranks(v.mask & mask)} twice in {self._say(first)}", task.span)
            mask |= v.mask
            terms += v.terms
        return Value(first.what, mask, terms)

    def _say(self, value: Value) -> str:
        *shards, part = value.what
        which = f"part {part} of " if self.layout.parts > 1 else ""
        return which + (f"shard {shards[0]}" if len(shards) == 1 else f"what rank {shards[0]} has for rank {shards[1]}")

    # ---- places

    def _settle(self, value: Value, rank: int, span: Span | None) -> None:
        """Give a value of a rank its place there, by transfers of what has not been moved yet."""
        own = next((t for t in value.terms if t.by is None), None)
        carried = [t for t in value.terms if t.by is not None]
        if not carried:
            return
        place = rank, self._relay(value, rank, span) or self.layout.place(value.what, rank)
        masks, writes = self.masks.setdefault(place, [0]), self.writes.setdefault(place, [])
        if own is None and masks[-1] == value.mask:  # it lies there already, by another way
            value.terms = [Term(place, len(writes))]
            return
        if own.version != len(writes) if own is not None else masks[-1] & ~carried[0].mask:
            raise self._two_sums(value, rank, span)
        for t in carried:
            adding = own is not None or t is not carried[0]
            writes.append(len(self.drafts))
            masks.append(masks[-1] | t.mask if adding else t.mask)
            self.drafts.append(Draft(t.by, t.place, t.version, place, adding))
        value.terms = [Term(place, len(writes))]

    def _relay(self, value: Value, rank: int, span: Span | None) -> tuple[int, int] | None:
        """The place of the relay where a block of an all_to_all lies on its way; None where it has arrived."""
        if self.layout.contract != "all_to_all" or rank == value.what[1]:
            return None
        *block, part = value.what
        mine = self.relays.setdefault(rank, {})
        number = mine.setdefault(tuple(block), len(mine))
        if rank == block[0] or number >= self.layout.world:
            why = "came from there" if rank == block[0] else f"is one of more than {self.layout.world} such"
            raise unsupported(f"rank {rank} passes on {self._say(value)}, which {why}", span)
        return self.layout.world + number, part

    def _two_sums(self, value: Value, rank: int, span: Span | None):
        return unsupported(
            f"rank {rank} would hold two different sums of {self._say(value)} at once, and a route keeps one", span,
            help="let the rank add to what it holds, and pass that on",
        )  # fmt: skip

    def _finish(self) -> None:
        """What the collective promises is there, in the newest version of its place."""
        everyone = (1 << self.layout.world) - 1 if self.layout.sums else 1
        wanted = [(r, *out) for r in range(self.layout.world) for out in self.layout.outputs(r)]
        for rank, slot, what in wanted:
            value, span = self.held.get(slot), self.machine.places[rank]
            if value is None:
                raise broken(f"nothing writes {self.layout.name(slot)}", span)
            if value.what != what:
                raise broken(f"{self.layout.name(slot)} ends with {self._say(value)}, not with "
                             f"{self._say(Value(what, 1, []))}", span)
            if value.mask != everyone:
                missing = _ranks(everyone & ~value.mask)
                raise broken(f"{self.layout.name(slot)} ends without what {missing} should add", span)
            self._settle(value, rank, span)
        for rank, slot, _ in wanted:
            (term,) = self.held[slot].terms
            if term.version != len(self.writes.get(term.place, [])):
                raise self._two_sums(self.held[slot], rank, self.machine.places[rank])

    # ---- when

    def _levels(self) -> list[int]:
        edges: list[Edge] = []
        if self.layout.contract == "all_to_all":  # a step reads an input, and inputs stay, or a place written once
            edges = [(self.writes[d.source][0], n, 1) for n, d in enumerate(self.drafts) if d.version]
            return find_levels(len(self.drafts), edges)[0]
        for writes in self.writes.values():
            edges += [(a, b, 1) for a, b in pairwise(writes)]
        for number, d in enumerate(self.drafts):
            writes = self.writes.get(d.source, [])
            if d.version:
                edges.append((writes[d.version - 1], number, 1))
            if d.version < len(writes):
                following = writes[d.version]
                edges.append((number, following, 0 if self.drafts[following].adding else 1))
        levels, circle = find_levels(len(self.drafts), edges)
        if circle:
            d = self.drafts[circle[0]]
            raise unsupported(
                f"{d.by} moves shard {d.source[1][0]} before another sum overwrites it, and so do the ranks that it "
                "exchanges sums with: a route keeps one sum of a shard on a rank", d.by.span,
                help="let one rank add a shard up, and then send it to the others",
            )  # fmt: skip
        return levels


def _rank(slot: Slot) -> int:
    return slot[1] if slot[0] == "fifo" else slot[0]


def _ranks(mask: int) -> str:
    found = [str(i) for i in range(mask.bit_length()) if mask >> i & 1]
    return f"rank{'s' * (len(found) > 1)} {', '.join(found[:8])}{', ...' if len(found) > 8 else ''}"
