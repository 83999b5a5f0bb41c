"""What `auto` becomes, from the cost model: of each collective and of the gate.

The fixed rules of lower/choices.py come first, and what they say stays unless something else is predicted to be faster
by a margin (data/choices.toml), for a large call on the mesh's own size and on the GPU that goes with the mesh's link.
All of that follows from the spec alone, so every rank decides alike. What is legal is what `lower` schedules without a
finding. Each collective is settled by itself (choose_transport.py, choose_exchange.py), then the gate (choose_gate.py).
Not chosen here: what changes bits, sides, orders and tiles.
"""

from __future__ import annotations

from collections.abc import Iterator

from chunkdsl.cost.choose_exchange import ExchangeTrials
from chunkdsl.cost.choose_gate import choose_gate
from chunkdsl.cost.choose_transport import TransportTrials
from chunkdsl.cost.trials import LARGEST_TRIAL, Trials
from chunkdsl.ir.graph import Op, Program
from chunkdsl.ir.meshes import scope
from chunkdsl.plan.schedule import Schedule
from chunkdsl.plan.settled import Settlement


def choose(program: Program, made: Schedule) -> Settlement:
    """What is known better than, or as well as, the rules by which `made` was scheduled; for `schedule_program`."""
    found = Settlement()
    for op, trials in trials_of(program, made):
        if (tasks := trials.tasks(trials.plain, trials.dims)) > LARGEST_TRIAL:
            found[op, "fuse_from"] = trials.too_large(tasks)
            continue
        settled = trials.settle()
        gate = choose_gate(trials, trials.schedule(settled, {}) or trials.by_rule)
        found.update(settled | ({(op, "fuse_from"): gate} if gate else {}))
    return found


def trials_of(program: Program, made: Schedule) -> Iterator[tuple[Op, Trials]]:
    """Every op of several ranks that was scheduled, with what tries values for it."""
    for op in program.ops:
        by_rule = next((o for o in made.ops if o.name == op.name), None)
        if by_rule and scope(made.mesh, by_rule.over, made.world) > 1:
            kind = ExchangeTrials if by_rule.exchange else TransportTrials
            yield op, kind(op, program, made, by_rule)
