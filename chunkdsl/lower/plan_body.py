"""The body of a plan, carried out for every rank of one world size: a tree -> a `Route`.

Names were resolved by `plans`; here numbers are worked out. The first number that does not exist ends it with a
`Breach` that says for which rank and step values. Whether the route keeps its contract is not asked (`plan/trace`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

from chunkdsl.check import route_steps
from chunkdsl.diagnostics import Diagnostic
from chunkdsl.plan.steps import Piece, Route, Step
from chunkdsl.plan.trace_breaches import Breach
from chunkdsl.source import Source, Span
from chunkdsl.syntax import nodes

MOST_STATEMENTS = 400_000  # of all ranks: some seconds
LARGEST = 2**62
LARGEST_LANE = 63

COMPARE = {
    "==": int.__eq__, "!=": int.__ne__, "<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__,
}  # fmt: skip
TAKES = {"log2": "1 or more", "pow2": "0 to 62", "xor": "numbers of 0 or more"}


class Undefined(Exception):
    """A number of a plan that cannot be worked out, or that names nothing. `mend`: what helps, where the rule's own
    word does not fit."""

    def __init__(self, rule: Callable[..., Diagnostic], why: str, span: Span, mend: str = "") -> None:
        super().__init__(why)
        self.code, self.why, self.span, self.mend = rule.code, why, span, mend


@dataclass
class Body:
    """A plan item and what its names mean: `axes` with their sizes, outer first; `dims` with fixed sizes. `manners`
    maps the start of each transfer that has a `with` to its (via, chunk). `watch` is called at every statement: what it
    raises ends the work."""

    plan: nodes.Plan
    source: Source
    axes: tuple[tuple[str, int], ...]
    dims: dict[str, int]
    manners: dict[int, tuple[str | None, object]]
    watch: Callable[[], object] = bool

    def route(self) -> Route | Breach:
        """Steps of every rank, or why there are none."""
        sizes = tuple(size for _, size in self.axes)
        ranks = prod(sizes)
        if ranks * (ranks - 1) > MOST_STATEMENTS:  # whatever the contract, each of n shards travels n - 1 times
            why = f"a plan of so many ranks makes more than {MOST_STATEMENTS:,} statements"
            line, span = self.source.line_of(self.plan.span.start), self.plan.axes.span
            text = f"plan {self.plan.name.text} on {ranks} ranks: {why}"
            return Breach(route_steps.too_long.code, text, text, line, why, span=span, mend="make the mesh smaller")
        self._left = MOST_STATEMENTS
        steps: list[tuple[Step, ...]] = []
        for rank in range(ranks):
            self.watch()
            walk = _Rank(self, rank, self._place(rank))
            try:
                steps.append(tuple(walk.block(self.plan.body, (), 0)))
            except Undefined as e:
                return self._breach(walk, e)
        return Route(self.plan.name.text, self.plan.contract.text, sizes, tuple(steps))

    def spend(self, span: Span) -> None:
        self.watch()
        self._left -= 1
        if self._left < 0:
            raise Undefined(route_steps.too_long, f"the plan makes more than {MOST_STATEMENTS:,} statements", span)

    def _place(self, rank: int) -> dict[str, int]:
        """`AXIS_rank` of each axis: row-major, outer axis first."""
        found = {}
        for name, size in reversed(self.axes):
            rank, found[f"{name}_rank"] = divmod(rank, size)
        return found

    def _breach(self, walk: _Rank, e: Undefined) -> Breach:
        world = prod(size for _, size in self.axes)
        values = ", ".join(f"{name} = {value}" for name, value in walk.named)
        where = f"rank {walk.rank}{f' at {values}' if values else ''}"
        line = self.source.line_of(e.span.start)
        message = f"plan {self.plan.name.text} on {world} rank{'s' * (world != 1)}: {where}: {e.why}"
        return Breach(e.code, message, f"{where} (line {line})\n  {e.why}", line, e.why, span=e.span, mend=e.mend)


class _Rank:
    """One rank carrying out the body."""

    def __init__(self, body: Body, rank: int, place: dict[str, int]) -> None:
        self.body, self.rank = body, rank
        self.names = {**body.dims, **dict(body.axes), **place, "rank": rank}
        self.named: list[tuple[str, int]] = []  # loop variables and lets in force

    def block(self, steps: tuple[nodes.Step, ...], when: tuple[int, ...], lane: int) -> Iterator[Step]:
        depth = len(self.named)
        for position, step in enumerate(steps):
            self.body.spend(step.span)
            here = (*when, position)
            match step:
                case nodes.Transfer():
                    yield self._transfer(step, here, lane)
                case nodes.Let():
                    self._bind(step.name.text, self.number(step.value))
                case nodes.Loop():
                    yield from self._loop(step, here, lane)
                case nodes.Branch(condition=c):
                    holds = COMPARE[c.op](self.number(c.left), self.number(c.right))
                    yield from self.block(step.then if holds else step.otherwise, here, lane)
                case nodes.LaneBlock():
                    number = self.number(step.number)
                    if not 0 <= number <= LARGEST_LANE:
                        why, mend = f"there is no lane {number}", f"lanes are 0 to {LARGEST_LANE}"
                        raise Undefined(route_steps.not_there, why, step.number.span, mend)
                    yield from self.block(step.body, here, number)
        while len(self.named) > depth:
            del self.names[self.named.pop()[0]]

    def _loop(self, loop: nodes.Loop, when: tuple[int, ...], lane: int) -> Iterator[Step]:
        bounds = [self.number(b) for b in loop.bounds]
        for value in range(*bounds):
            self.body.spend(loop.span)
            self._bind(loop.name.text, value)
            yield from self.block(loop.body, (*when, value), lane)
            del self.names[self.named.pop()[0]]

    def _bind(self, name: str, value: int) -> None:
        self.names[name] = value
        self.named.append((name, value))

    def _transfer(self, t: nodes.Transfer, when: tuple[int, ...], lane: int) -> Step:
        source = self._piece(t.region)
        target = self._piece(t.into) if t.into is not None else source
        peer = self._flat(t.peer, "rank", t.peer[0].span)
        if peer == self.rank:
            raise Undefined(route_steps.to_itself, f"rank {peer} is its own peer", t.peer[0].span)
        via, chunk = self.body.manners.get(t.span.start, (None, None))
        line = self.body.source.line_of(t.span.start)
        return Step(t.action, source, target, peer, t.adding, when, lane, line, tuple(self.named), via, chunk)

    def _piece(self, region: nodes.Region) -> Piece:
        shard = self._flat(region.index, "shard", region.span)
        if region.part is None:
            return Piece(shard)
        part, parts = (self.number(n) for n in region.part)
        if not 0 <= part < parts:
            mend = "of n parts there are 0 to n - 1" if parts > 0 else "a shard is cut into 1 part or more"
            raise Undefined(route_steps.not_there, f"there is no part {part} of {parts}", region.span, mend)
        return Piece(shard, part, parts)

    def _flat(self, index: tuple[nodes.Size, ...], what: str, span: Span) -> int:
        """The number of a rank or shard: one number over all axes, or one for each axis."""
        whole = prod(size for _, size in self.body.axes)
        if what == "shard" and self.body.plan.contract.text == "all_to_all":
            whole *= 2  # with the places of the relay
        axes = self.body.axes if len(index) > 1 else (("", whole),)
        number = 0
        for node, (name, size) in zip(index, axes, strict=True):
            value = self.number(node)
            if not 0 <= value < size:
                along = f" along {name}" if name else ""
                why = f"there is no {what} {value}{along}: there are {size}, counted from 0"
                raise Undefined(route_steps.not_there, why, node.span)
            number = number * size + value
        return number

    def number(self, node: nodes.Size) -> int:
        match node:
            case nodes.SizeInt(value=value):
                return value
            case nodes.SizeName(name=name):
                return self.names[name]
            case nodes.SizeCall():
                value = self._call(node.function.text, [self.number(a) for a in node.args], node.span)
            case _:
                value = self._binary(node.op, self.number(node.left), self.number(node.right), node.right.span)
        if abs(value) > LARGEST:
            raise Undefined(route_steps.undefined, f"{value:.3e} is too large", node.span, "numbers go to 2^62")
        return value

    def _binary(self, op: str, a: int, b: int, span: Span) -> int:
        if op in ("/", "mod") and b <= 0:
            what = "division" if op == "/" else "`mod`"
            mend = "the divisor is 1 or more: take `max(1, ...)` of it, or leave the step out with `if`"
            raise Undefined(route_steps.undefined, f"{what} by {b}", span, mend)
        match op:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
            case "/":
                return -(-a // b)
        return a % b

    def _call(self, name: str, args: list[int], span: Span) -> int:
        if name == "cdiv":
            return self._binary("/", *args, span)
        bad = (name == "log2" and args[0] < 1) or (name == "pow2" and not 0 <= args[0] <= 62)
        if bad or (name == "xor" and min(args) < 0):
            text = ", ".join(map(str, args))
            why, mend = f"{name}({text}) does not exist", f"{name} takes {TAKES[name]}"
            raise Undefined(route_steps.undefined, why, span, mend)
        match name:
            case "min":
                return min(args)
            case "max":
                return max(args)
            case "log2":
                return args[0].bit_length() - 1
            case "pow2":
                return 1 << args[0]
        return args[0] ^ args[1]
