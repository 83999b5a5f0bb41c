"""Who computes a product, where it was measured and not written: the op as if the spec said so.

The passes behind read `compute` from the policies of an op, as it decides which launches there are; so an op is made
anew with other policies, and what was settled about its values goes over to the new ones. Decides nothing.
"""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.ir.graph import Op, Program, Value
from chunkdsl.plan.schedule import Choice, OpSchedule
from chunkdsl.plan.settled import Settlement

KEY = "compute"


def write_computes(op: Op, program: Program, settled: Settlement) -> tuple[Op, Program, Settlement]:
    """The op with what is settled about `compute` in its policies, and the program with this op; all as they are where
    nothing is."""
    chosen = {v: found.value for (v, key), found in settled.items() if key == KEY and found.value is not None}
    made: dict[Value, Value] = {}

    def again(v: Value) -> Value:
        if v not in made:
            args = tuple(map(again, v.args))
            policy = replace(v.policy, compute=chosen[v]) if v in chosen else v.policy
            same = policy is v.policy and all(a is b for a, b in zip(args, v.args, strict=True))
            made[v] = v if same else replace(v, args=args, policy=policy)
        return made[v]

    statements = tuple(replace(s, value=again(s.value)) for s in op.statements)
    if all(old is new for old, new in made.items()):
        return op, program, settled
    results, updates = (tuple((name, again(v)) for name, v in pairs) for pairs in (op.results, op.updates))
    written = replace(op, statements=statements, results=results, updates=updates)
    found = {(written if of is op else made.get(of, of), key): s for (of, key), s in settled.items()}
    policies = {made.get(v, v): replace(p, compute=made.get(v, v).policy.compute) for v, p in settled.policies.items()}
    moved = Settlement(found, policies, settled.rules)
    moved.tuning = settled.tuning
    return written, replace(program, ops=tuple(written if o is op else o for o in program.ops)), moved


def told_computes(made: OpSchedule | None, op: Op, settled: Settlement) -> OpSchedule | None:
    """The schedule with why products are computed so."""
    told = [Choice(f"{op.name}: product", key, s.shown, s.why, s.runner_up, s.margin)
            for (v, key), s in settled.items() if key == KEY and s.value is not None]  # fmt: skip
    return replace(made, choices=(*made.choices, *told)) if made and told else made
