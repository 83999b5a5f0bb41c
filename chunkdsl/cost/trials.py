"""Calls of one op, played out with one set of values after the other, each set once; `choose` says which are held
against each other and what is legal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from chunkdsl.cost.baseline import baseline
from chunkdsl.cost.constants import Machine
from chunkdsl.cost.machines import machine_for
from chunkdsl.cost.predict import ending
from chunkdsl.cost.simulate import simulate
from chunkdsl.diagnostics import Report
from chunkdsl.ir.graph import Op, Program, Value
from chunkdsl.ir.meshes import bindings, scope
from chunkdsl.ir.policy import ChunkBytes, FuseFrom, Place
from chunkdsl.ir.types import DimRange, DimRef
from chunkdsl.lower.gates import values_of
from chunkdsl.lower.schedule import schedule_op
from chunkdsl.plan.schedule import OpSchedule, Schedule, Settled
from chunkdsl.plan.summary import expected_tasks
from chunkdsl.plan.unroll import unroll

TIE = 1e-3  # microseconds: what is no faster than that leaves the rule in place
TRIAL = 600  # tasks of a plan that is played out many times: larger calls are tried with fewer rows
LARGEST_TRIAL = 2_500  # and where that does not help, not at all
FEWEST = 1024  # rows of such a call
ROUTES = ("direct", "swizzle", "ring")  # others are plans, which say themselves who sends what
TIERS = ("swizzle", "direct", "ring")
COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
MIB = 1 << 20
CHUNKS = (2, 4, 8, 16)  # MiB
PROGRAMS = (8, 16, 32)

Found = dict[tuple[Value | Op, str], Settled]


class Trials:
    """The calls of one op that are played out, each set of values once."""

    def __init__(self, op: Op, program: Program, made: Schedule, by_rule: OpSchedule) -> None:
        self.op, self.program, self.made, self.by_rule = op, program, made, by_rule
        self.ranges = {r.name: r for r in made.ranges}
        self.world = scope(made.mesh, by_rule.over, made.world)
        self.axes = bindings(made.mesh, made.world)  # of two axes the first subgroup, which has most to do
        self.dims = {name: _multiple(r, r.high) for name, r in self.ranges.items()}
        while expected_tasks(by_rule, self.world, self.dims | self.axes) > TRIAL:
            if self.dims == (less := self._halved()):
                break
            self.dims = less
        self.machine: Machine = machine_for(made, by_rule, self.axes)
        self.gpu = self.machine.gpu.name
        self.found: Found = {}
        self.played: dict[frozenset, float | None] = {}

    def _halved(self) -> dict[str, int]:
        return {
            name: n if n <= FEWEST else self.fit(name, max(FEWEST, n // 2))
            for name, n in self.dims.items()
        }

    def fit(self, name: str, size: int) -> int:
        """The size, as far as the range of the dim allows."""
        return max(self.ranges[name].low, _multiple(self.ranges[name], size))

    def settle(self) -> Found:
        if expected_tasks(self.by_rule, self.world, self.dims | self.axes) > LARGEST_TRIAL:
            return {}
        for v in values_of(self.op):
            if v.kind in COLLECTIVES and v.policy.route in (None, *ROUTES):
                self._transport(v)
                if v.policy.chunk is None:
                    self._one(v, "chunk", [(ChunkBytes(n * MIB), f"{n} MiB") for n in CHUNKS], "4 MiB")
                fixed = self._via(v) == "copy_engine"  # the addresses that it captured
                if v.policy.buffers is None and v.kind != "all_to_all" and not fixed:
                    self._one(v, "buffers", [(1, "1"), (2, "2")], None)
        self._gate()
        return self.found

    # ---- one key, or the keys of a transport together

    def _transport(self, v: Value) -> None:
        """Route and place depend on one another, so they are tried together. Runner-up of each is the best that differs
        in it."""
        rules = {c.key: c.value for c in self.by_rule.choices if c.where == self._where(v)}
        free = [key for key in ("route", "place") if key in rules]
        tried = []
        for route, place in _transports(v, self._via(v), self.by_rule.nested):
            values = {"route": route, "place": place}
            given = {key: getattr(v.policy, key) for key in values}
            if free and all(given[key] in (None, values[key]) for key in values):
                us = self._us({(v, key): values[key] for key in free})
                tried += [(us, values)] if us is not None else []
        rule = self._us({})
        if not tried or rule is None:
            return
        us, best = min(tried, key=lambda t: t[0])
        better = us < rule - TIE
        for key in free:
            mine = _text(best[key]) if better else rules[key]
            others = [(t, _text(x[key])) for t, x in tried if _text(x[key]) != mine]
            others += [(rule, rules[key])] if better and rules[key] != mine else []
            if mine and others:
                other, base = min(others), us if better else rule
                changed = better and mine != rules[key]
                value, why = (best[key], self._why(us, rule)) if changed else (None, "")
                self.found[v, key] = Settled(value, mine, why, other[1], other[0] / base - 1)

    def _one(self, v: Value, key: str, candidates: Sequence[tuple[object, str]], rule: str | None) -> None:
        """The fastest of some values of one key, and the next best."""
        shown = rule or next((c.value for c in self.by_rule.choices if c.where == self._where(v) and c.key == key), "")
        base = self._us({})
        others = [(value, text) for value, text in candidates if text != shown]
        tried = [(us, text, value) for value, text in others if (us := self._us({(v, key): value}))]
        if not tried or not base:
            return
        us, text, value = min(tried, key=lambda t: t[0])
        if us < base - TIE:
            rest = [(t, x) for t, x, _ in tried if x != text] + [(base, shown)]
            other = min(rest)
            self.found[v, key] = Settled(value, text, self._why(us, base), other[1], other[0] / us - 1)
        else:
            self.found[v, key] = Settled(None, shown, "", text, us / base - 1)

    def _gate(self) -> None:
        """Fused from the smallest size of the rows on above which the fused call is never the slower one."""
        policies = [v.policy for v in values_of(self.op)]
        dim = next((v.type.shape[0] for v in values_of(self.op) if v.kind in COLLECTIVES), None)
        if any(p.fuse_from or p.fallback not in (None, "nccl") for p in policies) or not isinstance(dim, DimRef):
            return
        made = self._made({})
        sizes = [n for n in _sizes(self.ranges[dim.name]) if self._small(made, {**self.dims, dim.name: n})]
        if not sizes:
            return
        gains = {}
        for rows in reversed(sizes):
            dims = {**self.dims, dim.name: rows}
            library = sum(stage.us for stage in baseline(made, self.world, dims | self.axes, self.machine))
            gains[rows] = library / self._play(made, dims) - 1
            if gains[rows] < 0:
                break
        slower = min(gains)
        at = f"on {self.world} x {self.gpu}"
        if gains[slower] >= 0:
            self.found[self.op, "fuse_from"] = Settled(None, "always", f"predicted faster at every size {at}", "", 0.0)
        elif slower == sizes[-1]:
            why = f"predicted {-gains[slower]:.0%} slower than the library {at} even for {dim.name} = {slower}"
            self.found[self.op, "fuse_from"] = Settled(None, "always", why, "never", gains[slower])
        else:
            least = sizes[sizes.index(slower) + 1]
            text, why = f"{least} along {dim.name}", f"predicted slower than the library below {at}"
            settled = Settled(FuseFrom(least, dim.name), text, why, f"{slower} along {dim.name}", -gains[slower])
            self.found[self.op, "fuse_from"] = settled

    # ---- playing out

    def _sized(self) -> str:
        sizes = ", ".join(f"{name} = {value}" for name, value in self.dims.items())
        return f"on {self.world} x {self.gpu}" + (f" for {sizes}" if sizes else "")

    def _us(self, values: Mapping[tuple[Value, str], object]) -> float | None:
        """The time with these values beside those that are settled; None if they are not legal together."""
        key = frozenset({(k, s.value) for k, s in self.found.items() if s.value is not None} | set(values.items()))
        if key not in self.played:
            made = self._made(values)
            fits = made is not None and self._small(made, self.dims)
            self.played[key] = self._time(made) if fits else None
        return self.played[key]

    def _small(self, made: OpSchedule, dims: Mapping[str, int]) -> bool:
        return expected_tasks(made, self.world, {**dims, **self.axes}) <= LARGEST_TRIAL

    def _made(self, values: Mapping[tuple[Value, str], object]) -> OpSchedule | None:
        trial = self.found | {key: Settled(value, "", "") for key, value in values.items()}
        report = Report(self.program.source)
        made = schedule_op(self.op, self.program, report, set(), trial)
        return None if report.failed else made

    def _time(self, made: OpSchedule) -> float:
        """What is made as small as can be: here the time of the largest call that is played out."""
        return self._play(made, self.dims)

    def _play(self, made: OpSchedule, dims: Mapping[str, int]) -> float:
        return ending(simulate(made, unroll(self.made, made, self.world, [{**dims, **self.axes}]), self.machine))

    def _why(self, us: float, rule: float) -> str:
        gain = f"{rule / us:.1f} times as fast as" if rule > 2 * us else f"{100 * (rule / us - 1):.1f} % faster than"
        return f"predicted {gain} the rule {self._sized()}"

    def _via(self, v: Value) -> str:
        rules = (c.value for c in self.by_rule.choices if c.where == self._where(v) and c.key == "via")
        return v.policy.via or next(rules, "")

    def _where(self, v: Value) -> str:
        found = [c.where for c in self.by_rule.choices if c.where.partition(": ")[2].startswith(v.kind)]
        return found[0] if found else ""


def _transports(v: Value, via: str, nested: bool) -> Iterator[tuple[str, Place | None]]:
    """(route, place) to try. Of reductions no rings, which round at each hop, and no tiers, which add in another order,
    and so give other bits. Tiers are carried by programs, unless the spec says that copy engines carry."""
    if via == "copy_engine":
        yield from (("swizzle", None), ("direct", None))
    else:
        if v.kind != "all_gather":
            yield from (("swizzle", Place("co_located")), ("direct", Place("co_located")))
        for programs in PROGRAMS:
            yield "swizzle", Place("own_sms", programs)
        if v.kind == "all_gather":
            yield "ring", Place("own_sms", 16)
    if nested and v.kind == "all_gather" and v.policy.via != "copy_engine":
        yield from ((f"hierarchical({a}, {b})", Place("own_sms", 16)) for a in TIERS for b in TIERS)


def _text(value: object) -> str:
    if isinstance(value, Place):
        return f"{value.kind}({value.programs})" if value.programs else value.kind
    return "" if value is None else str(value)


def _multiple(r: DimRange, size: int) -> int:
    return size // r.step * r.step


def _sizes(r: DimRange) -> list[int]:
    """Powers of two inside a range and its top, as far as its step allows; ascending."""
    found = {_multiple(r, r.high)}
    n = 64
    while n < r.high:
        if n >= r.low and n % r.step == 0:
            found.add(n)
        n *= 2
    return sorted(found)
