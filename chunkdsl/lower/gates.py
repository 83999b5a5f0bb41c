"""The gate of an op: from which size it runs fused, and what runs below. One gate for all statements."""

from __future__ import annotations

from chunkdsl.check.targets import pattern_not_built
from chunkdsl.diagnostics import Report
from chunkdsl.ir.graph import Op, Program, Value
from chunkdsl.ir.policy import FuseFrom, Policy
from chunkdsl.plan.settled import Choice, Gate, Settlement, instead


def settle_gate(op: Op, program: Program, report: Report, record: list[Choice], settled: Settlement) -> Gate | None:
    """The strictest `fuse_from` and the one `fallback` of an op's statements. None (reported) where they disagree.
    Records what `auto` became."""
    policies = [v.policy for v in values_of(op) if v.policy.fuse_from or v.policy.fallback]
    gates = [g for p in policies if p.fuse_from and (g := fold(p.fuse_from, program))]
    fallbacks = list(dict.fromkeys(p.fallback for p in policies if p.fallback))
    if len(fallbacks) > 1:
        return refuse("two fallbacks in one op", "give all statements the same", "fallback", policies, report, op)
    if not gates:
        rule = Choice(f"{op.name}: op", "fuse_from", "always", "no size is known to run faster unfused")
        found = settled.get((op, "fuse_from"))
        record.append(rule if found is None else instead(rule, found))
        by_model = found.value if found else None
    if not fallbacks:
        record.append(Choice(f"{op.name}: op", "fallback", "nccl", "the fastest that runs everywhere"))
    fallback = fallbacks[0] if fallbacks else "nccl"
    if not gates:
        return Gate(by_model.fuse_from, fallback, by_model.by_world) if by_model else Gate(FuseFrom(0), fallback)
    if any(g.count is None for g in gates):
        return Gate(FuseFrom(None), fallback)
    sized = [g for g in gates if g.count]
    if len({g.dim for g in sized}) > 1:
        return refuse("gates along two dims in one op", "name the same dim", "fuse_from", policies, report, op)
    least = max(sized, key=lambda g: g.count, default=FuseFrom(0))
    return Gate(least, fallback)


def fold(gate: FuseFrom, program: Program) -> FuseFrom:
    """A gate along a fixed dim is decided now."""
    size = program.constants.get(gate.dim) if gate.dim else None
    if not isinstance(size, int) or gate.count is None:
        return gate
    return FuseFrom(0) if size >= gate.count else FuseFrom(None)


def values_of(op: Op) -> list[Value]:
    """Every value of an op, each once."""
    seen: dict[Value, None] = {}
    stack = [s.value for s in reversed(op.statements)]
    while stack:
        v = stack.pop()
        if v not in seen:
            seen[v] = None
            stack += v.args
    return list(seen)


def refuse(what: str, instead: str, key: str, policies: list[Policy], report: Report, op: Op) -> None:
    spans = [p.spans[key] for p in policies if key in p.spans]
    report.add(pattern_not_built(what, instead, spans[-1] if spans else op.span))
