"""The gate of an op: from which size it runs fused, and what runs below. One gate for all statements, and another one
for calls outside of CUDA graphs where the spec or a measurement says so."""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.check.targets import pattern_not_built
from chunkdsl.diagnostics import Report
from chunkdsl.ir.graph import Op, Program, Value
from chunkdsl.ir.policy import FuseFrom, Policy
from chunkdsl.plan.settled import Choice, Gate, Settlement, instead


def settle_gate(op: Op, program: Program, report: Report, record: list[Choice], settled: Settlement) -> Gate | None:
    """The strictest `fuse_from`, the strictest `eager_from` (else calls outside of CUDA graphs have the same gate) and
    the one `fallback` of an op's statements. None (reported) where they disagree. Records what `auto` became."""
    policies = [v.policy for v in values_of(op) if v.policy.fuse_from or v.policy.eager_from or v.policy.fallback]
    fallbacks = list(dict.fromkeys(p.fallback for p in policies if p.fallback))
    if len(fallbacks) > 1:
        return refuse("two fallbacks in one op", "give all statements the same", "fallback", policies, report, op)
    fallback = fallbacks[0] if fallbacks else "nccl"
    written = {key: gates_said(key, policies, program) for key in ("fuse_from", "eager_from")}
    for key, gates in written.items():
        if len({g.dim for g in gates if g.count}) > 1:
            return refuse("gates along two dims in one op", "name the same dim", key, policies, report, op)
    found = {key: settled.get((op, key)) for key in written}
    if not written["fuse_from"]:
        rule = Choice(f"{op.name}: op", "fuse_from", "always", "no size is known to run faster unfused")
        record.append(rule if found["fuse_from"] is None else instead(rule, found["fuse_from"]))
        if found["eager_from"] and not written["eager_from"]:
            record.append(instead(Choice(f"{op.name}: op", "eager_from", record[-1].value, ""), found["eager_from"]))
    if not fallbacks:
        record.append(Choice(f"{op.name}: op", "fallback", "nccl", "the fastest that runs everywhere"))

    def gate_of(key: str) -> Gate | None:
        if written[key]:
            return Gate(strictest(written[key]), fallback)
        by_model = found[key].value if found[key] and not written["fuse_from"] else None
        return Gate(by_model.fuse_from, fallback, by_model.by_world) if by_model else None

    gate = gate_of("fuse_from") or Gate(FuseFrom(0), fallback)
    eager = gate_of("eager_from")
    return gate if eager in (None, gate) else replace(gate, eager=eager)


def gates_said(key: str, policies: list[Policy], program: Program) -> list[FuseFrom]:
    said = (getattr(p, key) for p in policies)
    return [fold(gate, program) for gate in said if gate]


def strictest(gates: list[FuseFrom]) -> FuseFrom:
    """Of gates along one dim. `never` is stricter than any size."""
    if any(g.count is None for g in gates):
        return FuseFrom(None)
    return max((g for g in gates if g.count), key=lambda g: g.count, default=FuseFrom(0))


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
