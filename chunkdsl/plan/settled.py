"""What `auto` became: by a rule, or because the cost model found better; and the gate of an op."""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.ir.graph import Op, Value
from chunkdsl.ir.meshes import World, sizes
from chunkdsl.ir.policy import FuseFrom, Policy
from chunkdsl.record import record


@record
class Choice:
    """One value that `auto` became, and why. `runner_up`: the next best that was tried, "" if none was; `margin`: how
    much slower it is predicted to be, as a fraction (below 0: it is faster, but not by enough to leave the rule)."""

    where: str
    key: str
    value: str
    why: str
    runner_up: str = ""
    margin: float = 0.0


@record
class Settled:
    """What the cost model found about one `auto`: its value, None for the rule's; how a person reads it; why it is not
    the rule's, or ""; runner-up and margin as in Choice."""

    value: object
    shown: str
    why: str
    runner_up: str = ""
    margin: float = 0.0


@record
class Tuning:
    """Measurements that settled some of it: where and how they were made, in words, and a digest of the results."""

    told: str
    digest: str


class Settlement(dict[tuple[Value | Op, str], Settled]):
    """Settled by (collective or op, key of its policy). `policies` stand for those of the spec while values are tried
    out; `rules`, where it is given, collects what the rules say of every key that a policy leaves to them: the value
    and the Choice. `tuning`: what some of it was measured by."""

    def __init__(self, found=(), policies: dict[Value, Policy] | None = None, rules: dict | None = None) -> None:
        super().__init__(found)
        self.policies, self.rules = policies or {}, rules
        self.tuning: Tuning | None = None

    def policy_of(self, value: Value) -> Policy:
        return self.policies.get(value, value.policy)

    def choice(self, value: Value, key: str, by_rule: object, choice: Choice) -> tuple[object, Choice]:
        """What a key becomes that the rules make `by_rule`, and how that is told."""
        if self.rules is not None:
            self.rules[value, key] = (by_rule, choice)
        found = self.get((value, key))
        return (by_rule, choice) if found is None else (by_rule if found.value is None else found.value,
                                                        instead(choice, found))  # fmt: skip

    def also_for(self, value: Value, like: Value) -> Settlement:
        """The same, and what was settled of `like` holds for `value` too."""
        more = {(value, key): found for (of, key), found in self.items() if of is like}
        return Settlement({**self, **more}, self.policies, self.rules)


def instead(rule: Choice, found: Settled) -> Choice:
    """The rule's choice with what the cost model found: another value, or the runner-up alone."""
    choice = replace(rule, runner_up=found.runner_up, margin=found.margin)
    return replace(choice, value=found.shown, why=found.why) if found.why else choice


@record
class Gate:
    """From which size an op runs fused, and what runs below. `by_world`: instead of `fuse_from`, for instances that
    have at least so many ranks on each axis of the mesh, ascending; with fewer than in all of them every call is
    fused. `eager`: the gate of calls outside of CUDA graphs, where it is another one."""

    fuse_from: FuseFrom
    fallback: str
    by_world: tuple[tuple[World, FuseFrom], ...] = ()
    eager: Gate | None = None

    def at(self, world: World) -> FuseFrom:
        """The gate of an instance on a mesh of this size."""
        if not self.by_world:
            return self.fuse_from
        return next((gate for least, gate in reversed(self.by_world) if reaches(world, least)), FuseFrom(0))

    def of(self, captured: bool) -> Gate:
        """The gate of calls that a CUDA graph captures, or of all others."""
        return self if captured or self.eager is None else self.eager


def reaches(world: World, least: World) -> bool:
    """Has a world at least so many ranks on each axis?"""
    return all(n <= m for n, m in zip(sizes(least), sizes(world), strict=True))
