"""What `auto` becomes, from the cost model: route, place, chunk and buffers of each collective, and the gate of the op.

The fixed rules of lower/choices.py come first. Each value that they settled is held against others, one key after the
other, by the predicted time of a large call on the mesh's own size and on the GPU that goes with the mesh's link: the
fastest is taken, and the rule's where none is faster. All of that follows from the spec alone, so every rank decides
alike. What is legal is what `lower` schedules without a finding. Not chosen here: what changes bits (rings and orders
of reductions, wire), what moves bytes (via, side; but a route of two tiers brings its own), tiles, and what
a spec says itself. Small all-reduces: choose_exchange.py.
"""

from __future__ import annotations

from chunkdsl.cost.choose_exchange import ExchangeTrials
from chunkdsl.cost.trials import Found, Trials
from chunkdsl.ir.graph import Program
from chunkdsl.ir.meshes import scope
from chunkdsl.plan.schedule import Schedule


def choose(program: Program, made: Schedule) -> Found:
    """What is known better than, or as well as, the rules by which `made` was scheduled; for `schedule_program`."""
    found: Found = {}
    for op in program.ops:
        by_rule = next((o for o in made.ops if o.name == op.name), None)
        if by_rule and scope(made.mesh, by_rule.over, made.world) > 1:
            kind = ExchangeTrials if by_rule.exchange else Trials
            found |= kind(op, program, made, by_rule).settle()
    return found
