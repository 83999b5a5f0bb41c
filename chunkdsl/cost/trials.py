"""Calls of one op, played out with one set of values after the other, each set once. Compares nothing.

Values are tried in a setting that does not depend on what else the spec says of the keys that are up for choice: every
collective has the rules' values there, but for the one at hand. So a value that was chosen may be written into the spec
and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from chunkdsl.cost.constants import Machine
from chunkdsl.cost.machines import machine_for
from chunkdsl.cost.predict import ending
from chunkdsl.cost.simulate import simulate
from chunkdsl.diagnostics import Report
from chunkdsl.ir.graph import Op, Program, Value
from chunkdsl.ir.meshes import World, bindings, scope
from chunkdsl.ir.policy import Policy
from chunkdsl.ir.types import DimRange
from chunkdsl.lower.gates import values_of
from chunkdsl.lower.schedule import schedule_op
from chunkdsl.plan.schedule import OpSchedule, Schedule
from chunkdsl.plan.settled import Settled, Settlement
from chunkdsl.plan.summary import expected_tasks
from chunkdsl.plan.unroll import unroll
from chunkdsl.record import record

TRIAL = 600  # tasks of a plan that is played out many times: larger calls are tried with fewer rows
LARGEST_TRIAL = 2_500  # and where that does not help, not at all
LARGEST_PLAY = 5_000  # that of what a spec writes, such as many chunks
FEWEST = 1024  # rows of such a call
COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")


@record
class Scene:
    """The ranks of an op, what a mesh of two axes adds to the bindings of its dims, and the machine under it."""

    ranks: int
    axes: Mapping[str, int]
    machine: Machine


class Trials:
    """`made`: the file by the rules and what its policies say, `by_rule`: the op in it. `plain` is the op with nothing
    but rules, `policies` are those of its collectives then, `rules` what the rules say of each key: (value, Choice)."""

    def __init__(self, op: Op, program: Program, made: Schedule, by_rule: OpSchedule) -> None:
        self.op, self.program, self.made, self.by_rule = op, program, made, by_rule
        self.ranges = {r.name: r for r in made.ranges}
        self.world = scope(made.mesh, by_rule.over, made.world)
        self.axes = bindings(made.mesh, made.world)  # of two axes the first subgroup, which has most to do
        self.machine: Machine = machine_for(made, by_rule, self.axes)
        self.gpu = self.machine.gpu.name
        self.collectives = [v for v in values_of(op) if v.kind in COLLECTIVES]
        self.rules: dict = {}
        self.said: dict = {}  # the same of the op as the spec has it: no key that it writes
        self.policies = {v: self.bare(v) for v in self.collectives}
        plain = self.schedule({}, self.policies, self.rules)
        if plain is None:  # what the spec writes is what makes it legal
            self.policies, self.rules = {}, {}
            plain = self.schedule({}, {}, self.rules)
        self.schedule({}, {}, self.said)
        self.plain = plain or by_rule
        self.dims = {name: _multiple(r, r.high) for name, r in self.ranges.items()}
        while self.tasks(self.plain, self.dims) > TRIAL:
            if self.dims == (less := self._halved()):
                break
            self.dims = less
        self.played: dict[frozenset, float | None] = {}

    def bare(self, v: Value) -> Policy:
        """The policy of a collective without what is up for choice."""
        return v.policy

    def fit(self, name: str, size: int) -> int:
        """The size, as far as the range of the dim allows."""
        return max(self.ranges[name].low, _multiple(self.ranges[name], size))

    def sizes(self, name: str) -> list[int]:
        """Powers of two inside the range of a dim and its top, as far as its step allows; ascending."""
        r = self.ranges[name]
        powers = (1 << i for i in range(6, r.high.bit_length()))
        return sorted({n for n in powers if r.low <= n < r.high and n % r.step == 0} | {_multiple(r, r.high)})

    def time(self, v: Value, values: Mapping[str, object], policy: Policy) -> float | None:
        """The predicted time with these values of the keys that `policy` of `v` leaves open; None if they are not legal
        together or the plan is too large."""
        key = frozenset({(v, key, value) for key, value in values.items()} | {(v, "", policy)})
        if key not in self.played:
            found = {(v, key): Settled(value, "", "") for key, value in values.items() if value is not None}
            made = self.schedule(found, self.policies | {v: policy})
            fits = made is not None and self.tasks(made, self.dims) <= LARGEST_PLAY
            self.played[key] = self.measure(made) if fits else None
        return self.played[key]

    def measure(self, made: OpSchedule) -> float:
        """What is made as small as can be: here the time of the largest call that is played out."""
        return self.play(made, self.dims)

    def scene(self, world: World | None = None) -> Scene:
        """Where a call is played out: on the mesh as it is declared, or on another world size of it."""
        if world is None:
            return Scene(self.world, self.axes, self.machine)
        axes = bindings(self.made.mesh, world)
        machine = machine_for(self.made, self.by_rule, axes)
        return Scene(scope(self.made.mesh, self.by_rule.over, world), axes, machine)

    def play(self, made: OpSchedule, dims: Mapping[str, int], world: World | None = None) -> float:
        """Microseconds of one call. `world`: instead of what the mesh declares."""
        at = self.scene(world)
        return ending(simulate(made, unroll(self.made, made, at.ranks, [{**dims, **at.axes}]), at.machine))

    def schedule(self, found: Mapping, policies: dict, rules: dict | None = None) -> OpSchedule | None:
        """The op with these values; None if there are findings."""
        report = Report(self.program.source)
        made = schedule_op(self.op, self.program, report, set(), Settlement(found, policies, rules))
        return None if report.failed else made

    def tasks(self, made: OpSchedule, dims: Mapping[str, int], world: World | None = None) -> int:
        at = self.scene(world)
        return expected_tasks(made, at.ranks, {**dims, **at.axes})

    def too_large(self, tasks: int) -> Settled:
        """What is said of the gate where nothing can be played out."""
        return Settled(None, "always", f"a plan of {tasks:,} tasks is too large to be played out: the rules stand")

    def sized(self) -> str:
        """What the call is, for a person."""
        sizes = ", ".join(f"{name} = {value}" for name, value in self.dims.items())
        return f"on {self.world} x {self.gpu}" + (f" for {sizes}" if sizes else "")

    def gain(self, us: float, rule: float) -> str:
        gain = f"{rule / us:.1f} times as fast as" if rule > 2 * us else f"{100 * (rule / us - 1):.1f} % faster than"
        return f"predicted {gain} the rule {self.sized()}"

    def _halved(self) -> dict[str, int]:
        return {
            name: n if n <= FEWEST else self.fit(name, max(FEWEST, n // 2))
            for name, n in self.dims.items()
        }


def without(policy: Policy, *keys: str) -> Policy:
    return replace(policy, **dict.fromkeys(keys))


def _multiple(r: DimRange, size: int) -> int:
    return size // r.step * r.step
