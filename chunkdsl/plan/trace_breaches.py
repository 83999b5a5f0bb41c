"""What is wrong with a route, in words: rank, step values and line of both ends. Decides nothing.

Of breaches that differ only in ranks and step values the first is kept, and the others are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from chunkdsl.check import plans, route_steps, routes
from chunkdsl.record import record
from chunkdsl.source import Span

if TYPE_CHECKING:
    from chunkdsl.plan.steps import Route, Step
    from chunkdsl.plan.trace import Flow, Held


@record
class Breach:
    """`message` is one line, `counterexample` several. `line`, `other_line`: of the spec or file, 0 for none; `span`:
    the exact place, where it is known; `mend`: what helps, if not what the rule says."""

    code: str
    message: str
    counterexample: str
    line: int
    label: str = ""
    other_line: int = 0
    other_label: str = ""
    span: Span | None = None
    mend: str = ""


def say(rank: int, step: Step) -> str:
    """`rank 2 at i = 1, s = 0 (line 14)`."""
    values = ", ".join(f"{name} = {value}" for name, value in step.named)
    return f"rank {rank}{f' at {values}' if values else ''}{f' (line {step.line})' if step.line else ''}"


def act(step: Step) -> str:
    """`sends shard 0, part 1 of 2, to rank 1`."""
    p = step.source
    part = f", part {p.part} of {p.parts}," if p.parts > 1 else ""
    into = f" as shard {step.target.shard}" if step.target.shard != p.shard else ""
    way = f"sends shard {p.shard}{part} to" if step.action == "send" else f"fetches shard {p.shard}{part} from"
    return f"{way} rank {step.peer}{into}{', adding it' if step.adding else ''}"


def line_of(rank: int, step: Step) -> str:
    return f"{say(rank, step)} {act(step)}"


def reader_of(rank: int, step: Step) -> int:
    """The rank that a step of `rank` writes to."""
    return step.peer if step.action == "send" else rank


def ranks(mask: int) -> str:
    found = [str(i) for i in range(mask.bit_length()) if mask >> i & 1]
    return f"rank{'s' * (len(found) > 1)} {', '.join(found)}"


class Breaches:
    def __init__(self, route: Route) -> None:
        self._route = route
        self._first: dict[tuple, Breach] = {}
        self._more: dict[tuple, int] = {}

    def __bool__(self) -> bool:
        return bool(self._first)

    @property
    def breaches(self) -> tuple[Breach, ...]:
        return tuple(
            replace(b, counterexample=f"{b.counterexample}\nand {n} more like it" if n else b.counterexample)
            for b, n in zip(self._first.values(), self._more.values(), strict=True)
        )

    def _add(
        self, code: str, line: int, message: str, lines: list[str], label: str, other: int = 0, there: str = "",
        mend: str = "",
    ) -> None:  # fmt: skip
        key = code, line, label
        if key in self._first:
            self._more[key] += 1
            return
        on = f"plan {self._route.name} on {self._route.world} rank{'s' * (self._route.world != 1)}"
        self._first[key] = Breach(code, f"{on}: {message}", "\n".join(lines), line, label, other, there, mend=mend)
        self._more[key] = 0

    def _step(self, code: str, rank: int, step: Step, what: str, label: str, mend: str = "") -> None:
        self._add(code, step.line, f"{say(rank, step)} {what}", [line_of(rank, step)], label, mend=mend)

    # ---- single steps

    def outside(self, rank: int, step: Step, what: str, why: str) -> None:
        self._step(route_steps.not_there.code, rank, step, f"names {what}; {why}", f"{what} does not exist")

    def too_many_parts(self, rank: int, step: Step, parts: int, most: int) -> None:
        what = f"with those before it cuts shards into {parts} parts; at most {most} are cut"
        mend = "cut shards alike in all steps, or into numbers of which each divides the next"
        self._step(route_steps.too_long.code, rank, step, what, f"{parts} parts in all", mend)

    def to_itself(self, rank: int, step: Step) -> None:
        what = f"is its own peer when it {act(step)}"
        self._step(route_steps.to_itself.code, rank, step, what, "both ends are one rank")

    def not_kept(self, rank: int, step: Step, what: str) -> None:
        self._step(routes.not_kept.code, rank, step, what, what)

    # ---- contents

    def absent(self, f: Flow) -> None:
        writers = [(r, s) for r, steps in enumerate(self._route.steps) for s in steps if _writes(r, s, f)]
        lines = [line_of(f.issuer, f.step), f"  and rank {f.holder} does not hold shard {f.source} then"]
        if writers:
            rank, step = writers[0]
            when = "at the same step" if step.when == f.step.when else "later"
            lines.append(f"  {when}, {line_of(rank, step)}")
        else:
            lines.append(f"  no step ever brings it to rank {f.holder}")
        message = f"{line_of(f.issuer, f.step)}, which rank {f.holder} does not hold yet"
        other = writers[0][1].line if writers else 0
        self._add(routes.absent.code, f.step.line, message, lines, "the shard is not there yet", other, "it comes here")

    def again(self, f: Flow, before: Flow | None) -> None:
        lines = [line_of(f.issuer, f.step)]
        if before is None:
            there, other = f"shard {f.target} is the rank's own", 0
        else:
            there, other = f"it came there before: {line_of(before.issuer, before.step)}", before.step.line
        message = f"shard {f.target} reaches rank {f.reader}, which has it already: {line_of(f.issuer, f.step)}"
        self._add(routes.again.code, f.step.line, message, [*lines, f"  {there}"], "arrives a second time", other,
                  "arrives first")  # fmt: skip

    def race(self, a: Flow, b: Flow) -> None:
        lines = [line_of(a.issuer, a.step), line_of(b.issuer, b.step), "  nothing orders the two"]
        message = f"two steps write shard {a.target} of rank {a.reader} at once: {line_of(b.issuer, b.step)}"
        self._add(routes.race.code, b.step.line, message, lines, "writes it", a.step.line, "writes it too")

    def overwritten(self, f: Flow, other: Flow) -> None:
        lines = [line_of(f.issuer, f.step), line_of(other.issuer, other.step), "  nothing orders the two"]
        message = f"shard {f.source} of rank {f.holder} is read while it is overwritten: {line_of(f.issuer, f.step)}"
        self._add(routes.race.code, f.step.line, message, lines, "reads it", other.step.line, "overwrites it")

    def misplaced(self, f: Flow, shard: int) -> None:
        message = f"{line_of(f.issuer, f.step)}: that is the place of shard {f.target}, not of shard {shard}"
        self._add(routes.not_kept.code, f.step.line, message, [line_of(f.issuer, f.step)], "the wrong place")

    def misdirected(self, f: Flow, giver: int, taker: int) -> None:
        lines = [line_of(f.issuer, f.step), f"  what rank {giver} has for rank {taker} goes there, into t[{giver}]"]
        message = f"{line_of(f.issuer, f.step)}: that is what rank {giver} has for rank {taker}"
        self._add(routes.not_kept.code, f.step.line, message, lines, "the wrong shard or place")

    def twice(self, f: Flow, before: Held, mask: int) -> None:
        lines = [line_of(f.issuer, f.step), f"  the sum of shard {f.target} there has the addend of {ranks(mask)}"]
        other = next((a for a in (*before.addends, before.base) if a is not None and self._holds(a, mask)), None)
        if other is not None:
            lines.append(f"  which came with: {line_of(other.issuer, other.step)}")
        message = f"{line_of(f.issuer, f.step)}: the addend of {ranks(mask)} is counted twice"
        self._add(routes.twice.code, f.step.line, message, lines, "adds it again",
                  other.step.line if other else 0, "added here")  # fmt: skip

    def dropped(self, f: Flow, mask: int) -> None:
        lines = [line_of(f.issuer, f.step), f"  the sum there has the addend of {ranks(mask)}, what comes has not"]
        message = f"{line_of(f.issuer, f.step)} without `adding`: the addend of {ranks(mask)} is lost"
        self._add(routes.not_kept.code, f.step.line, message, lines, "overwrites a sum")

    def _holds(self, f: Flow, mask: int) -> bool:
        own = f.base is None and bool(mask >> f.holder & 1)
        return own or any(self._holds(g, mask) for g in f.inputs)

    # ---- the whole

    def check_end(
        self, held: dict[tuple[int, int, int], Held], parts: int, wanted: Callable[[], Iterator[tuple[int, int, int]]]
    ) -> None:
        for rank, shard, mask in wanted():
            for part in range(parts):
                found = held.get((rank, shard, part))
                if found is None or mask & ~found.mask:
                    self._missing(rank, shard, part, parts, found, mask)

    def _missing(self, rank: int, shard: int, part: int, parts: int, held: Held | None, mask: int) -> None:
        piece = f"shard {shard}" + (f", part {part} of {parts}" if parts > 1 else "")
        if held is None:
            what, lines = f"rank {rank} never gets {piece}", ["no step brings it there; what the rank gets:"]
        else:
            lost = ranks(mask & ~held.mask)
            what = f"the sum of {piece} on rank {rank} lacks the addend of {lost}"
            lines = ["no step brings it there; what is added there:"]
        gets = self._arriving.get((rank, None if held is None else shard), [])
        lines += [f"  {line_of(r, s)}" for r, s in gets[:4]] or ["  nothing"]
        lines += [f"  and {len(gets) - 4} more"] * (len(gets) > 4)
        line = gets[0][1].line if gets else next((s.line for steps in self._route.steps for s in steps), 0)
        self._add(routes.not_kept.code, line, what, lines, f"the plan promises {self._route.contract}")

    @cached_property
    def _arriving(self) -> dict[tuple[int, int | None], list[tuple[int, Step]]]:
        """The steps, with who lists them, that bring something to a rank, and to each shard of it."""
        found: dict[tuple[int, int | None], list[tuple[int, Step]]] = {}
        for r, steps in enumerate(self._route.steps):
            for s in steps:
                found.setdefault((reader_of(r, s), None), []).append((r, s))
                found.setdefault((reader_of(r, s), s.target.shard), []).append((r, s))
        return found

    def deadlock(self, circle: list[Flow]) -> None:
        lines = ["these steps wait for each other for ever:", *(f"  {line_of(f.issuer, f.step)}" for f in circle)]
        f, other = circle[0], circle[-1]
        message = f"{line_of(f.issuer, f.step)}, and waits for itself through {len(circle) - 1} other steps"
        self._add(plans.cyclic_wait.code, f.step.line, message, lines, "waits", other.step.line, "and for this")


def _writes(rank: int, step: Step, f: Flow) -> bool:
    return reader_of(rank, step) == f.holder and step.target.shard == f.source
