"""CD34: single steps of a plan, at one world size: what they name exists, and there are not too many of them.

A body may be right for some world sizes and name what is not there for others: recursive doubling sends to rank 3 of 3.
Then those sizes are refused, with the rank, the step values and the line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chunkdsl.check.plans import line_span
from chunkdsl.check.registry import Finding, rule
from chunkdsl.diagnostics import Label
from chunkdsl.source import Source

if TYPE_CHECKING:
    from chunkdsl.plan.trace_breaches import Breach


def from_breach(breach: Breach, source: Source, mend: str) -> Finding:
    """The finding of a breach; `mend` is for breaches that do not say themselves what helps."""
    span = breach.span or line_span(source, breach.line)
    other = line_span(source, breach.other_line) if breach.other_line != breach.line else None
    labels = (Label(other, breach.other_label),) if other else ()
    help = f"{breach.counterexample}\n{breach.mend or mend}".strip()
    return Finding(breach.message, span, breach.label, labels, help=help)


@rule("CD340", "step-names-what-is-not-there")
def not_there(breach: Breach, source: Source) -> Finding:
    """Every rank, shard, part and lane that a step names exists, at every world size that the plan is used for.

    Ranks, shards and parts count from 0, lanes go from 0 to 63. `mod` brings a number back into range, and is never
    negative. A pattern that fits some world sizes alone names ranks that others lack: it is refused for those.

    Fails:
        mesh tp[3]
        plan doubling(t) : all_gather over tp {
            for k in range(log2(tp) + 1) {
                for j in range(pow2(k)) { send t[xor(rank, j)] to xor(rank, pow2(k)) }
            }
        }

    Mended:
        mesh tp[4]
        plan doubling(t) : all_gather over tp {
            for k in range(log2(tp)) { for j in range(pow2(k)) { send t[xor(rank, j)] to xor(rank, pow2(k)) } }
        }
    """
    mend = "take it `mod` the number that there are, leave the step out with `if`, or keep to world sizes that fit"
    return from_breach(breach, source, mend)


@rule("CD341", "number-of-a-plan-undefined")
def undefined(breach: Breach, source: Source) -> Finding:
    """Every number of a plan can be worked out, at every world size that the plan is used for.

    `/` and `mod` take a divisor of 1 or more, `log2` a number of 1 or more, `pow2` one from 0 to 62, `xor` none below
    0, and nothing goes beyond 2^62. Names of a plan: `rank`, an axis (its size), `AXIS_rank`, fixed dims, loop
    variables and `let`s.

    Fails:
        mesh tp[4]
        plan p(t) : all_gather over tp {
            let shift = rank mod (tp - 4)
            for i in range(1, tp) { send t[rank] to (rank + i + shift) mod tp }
        }

    Mended:
        mesh tp[4]
        plan p(t) : all_gather over tp {
            for i in range(1, tp) { send t[rank] to (rank + i) mod tp }
        }
    """
    return from_breach(breach, source, "keep to what it takes, with `max` or `min`, or leave the step out with `if`")


@rule("CD342", "step-to-itself")
def to_itself(breach: Breach, source: Source) -> Finding:
    """The two ends of a transfer are two ranks: a rank has what it has.

    Fails:
        mesh tp[4]
        plan p(t) : all_gather over tp { for i in range(tp) { send t[rank] to i } }

    Mended:
        mesh tp[4]
        plan p(t) : all_gather over tp { for i in range(tp) { if i != rank { send t[rank] to i } } }
    """
    return from_breach(breach, source, "leave the step out there with `if`")


@rule("CD343", "plan-too-long")
def too_long(breach: Breach, source: Source) -> Finding:
    """A plan is carried out by the compiler, statement by statement for every rank, and shards are cut into parts that
    suit all its steps; there are limits to both.

    Fails:
        mesh tp[4]
        plan p(t) : all_gather over tp {
            for i in range(1000000) { if i < tp { if i != rank { send t[rank] to i } } }
        }

    Mended:
        mesh tp[4]
        plan p(t) : all_gather over tp { for i in range(tp) { if i != rank { send t[rank] to i } } }
    """
    return from_breach(breach, source, "let the loop run over the steps that there are")


@rule("CD344", "copy-engine-step-waits")
def copies_wait(breach: Breach, source: Source) -> Finding:
    """A step by copy engine sends the rank's own input: a copy engine waits for nothing that another rank brings.

    So it neither passes on what has come nor fetches. Say `via = copy_engine` on the steps that send the own shard, and
    let programs carry the others.

    Fails:
        mesh tp[4]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[512, 512 @ tp]
        plan my_ring(t) : all_gather over tp {
            for i in range(tp - 1) { send t[(rank - i) mod tp] to (rank + 1) mod tp with { via = copy_engine } }
        }
        op f(x, w) -> y { y = all_gather(x) @ w with { route = my_ring } }

    Mended:
        mesh tp[4]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[512, 512 @ tp]
        plan my_ring(t) : all_gather over tp {
            send t[rank] to (rank + 1) mod tp with { via = copy_engine }
            for i in range(1, tp - 1) { send t[(rank - i) mod tp] to (rank + 1) mod tp }
        }
        op f(x, w) -> y { y = all_gather(x) @ w with { route = my_ring } }
    """
    return from_breach(breach, source, "let programs carry this step: via = ldst or tma")


STEP_RULES = (not_there, undefined, to_itself, too_long, copies_wait)
