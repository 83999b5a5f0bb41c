"""The order of loops over gathered rows: that of the kernel, whichever shard is here first.

A loop that adds up what it reads gives other bits in another order, and may give nonsense (pointers that it carries, a
running maximum that begins below a mask), so it is never turned round: `exact` and every rank keep the author's order.
Nothing is cut here (`kernels.turns`).
"""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.check.kernels import order_of_a_loop
from chunkdsl.ir.graph import Value
from chunkdsl.kernels.turns import Turns
from chunkdsl.plan.schedule import Staging
from chunkdsl.plan.settled import Choice

ORDER, WHY = "rows upwards", "the kernel's loop adds them up so, and `exact` too; it waits for the first shards first"


def keep_order(gather: Value, staging: Staging, turns: tuple[Turns, ...], path: str, op: str, choices: list[Choice]):
    """A diagnostic if the spec asks for another order of what loops read; else None, and the plan says which it is."""
    if gather.policy.order is not None:
        span = gather.policy.spans.get("order", gather.span)
        return order_of_a_loop(f"{path}:{turns[0].line}", gather.policy.order, span)
    where = f"{op}: {gather.kind}({staging.source})"
    for i, choice in enumerate(choices):
        if (choice.where, choice.key) == (where, "order"):
            choices[i] = replace(choice, value=ORDER, why=WHY, runner_up="")
    return None
