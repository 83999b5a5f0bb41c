"""CD27, CD32 and CD61: what plans ask of routes, and what the proof of a route against its contract finds. What single
steps ask is CD34 (check/route_steps.py).

A route depends on the world size. What is wrong with it for the size that the mesh declares, or that `--world` names,
is an error; for other sizes it is a note, and the module refuses them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from chunkdsl.check.plans import to_diagnostic
from chunkdsl.check.registry import Finding, rule
from chunkdsl.check.route_steps import STEP_RULES, from_breach
from chunkdsl.diagnostics import Diagnostic, Label
from chunkdsl.source import Source, Span

if TYPE_CHECKING:
    from chunkdsl.plan.trace_breaches import Breach

FAMILIES = ("CD32", "CD34")  # rules whose examples are specs, not sketches of plans


def explain_breach(breach: Breach, source: Source) -> Diagnostic:
    """The finding at its place, or on its line; the counterexample is in `help`."""
    return BY_CODE[breach.code](breach, source) if breach.code in BY_CODE else to_diagnostic(breach, source)


@rule("CD270", "unknown-contract")
def unknown_contract(name: str, known: Sequence[str], span: Span) -> Finding:
    """A plan says behind the colon what must hold afterwards: all_gather, reduce_scatter, all_reduce or all_to_all.

    Fails:
        mesh tp[4]
        plan p(t) : gather over tp { for i in range(1, tp) { send t[rank] to (rank + i) mod tp } }

    Mended:
        mesh tp[4]
        plan p(t) : all_gather over tp { for i in range(1, tp) { send t[rank] to (rank + i) mod tp } }
    """
    return Finding(f"`{name}` is no contract of a plan", span, "unknown", help=f"one of {', '.join(known)}")


@rule("CD611", "plan-does-not-fit")
def does_not_fit(name: str, has: str, wanted: str, span: Span, declared: Span | None) -> Finding:
    """A collective takes a plan of its own contract and axis as its route.

    Fails:
        mesh tp[4]
        dim M = 1..4096
        tensor x : bf16[M, 512 @ tp]
        tensor w : bf16[512 @ tp, 512]
        plan p(t) : all_gather over tp { for i in range(1, tp) { send t[rank] to (rank + i) mod tp } }
        op f(x, w) -> y { y = reduce_scatter(x @ w, M) with { route = p } }

    Mended:
        mesh tp[4]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[512, 512 @ tp]
        plan p(t) : all_gather over tp { for i in range(1, tp) { send t[rank] to (rank + i) mod tp } }
        op f(x, w) -> y { y = all_gather(x) @ w with { route = p } }
    """
    labels = (Label(declared, "the plan"),) if declared else ()
    return Finding(f"plan {name} is for {has}, this is {wanted}", span, wanted, labels, help="write another plan")


@rule("CD612", "parts-are-not-chunks")
def parts_not_chunks(breach: Breach, source: Source) -> Finding:
    """A plan that moves parts of shards needs a number of chunks in each shard that the parts divide.

    `part i of n` is then chunks i * k to (i + 1) * k - 1 of n * k. Write `chunk = n per shard`, or leave it out.

    Fails:
        mesh tp[4]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[512, 512 @ tp]
        plan p(t) : all_gather over tp {
            for i in range(1, tp) { for h in range(2) { send t[rank] part h of 2 to (rank + i) mod tp } }
        }
        op f(x, w) -> y { y = all_gather(x) @ w with { route = p, chunk = 128 along M } }

    Mended:
        mesh tp[4]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[512, 512 @ tp]
        plan p(t) : all_gather over tp {
            for i in range(1, tp) { for h in range(2) { send t[rank] part h of 2 to (rank + i) mod tp } }
        }
        op f(x, w) -> y { y = all_gather(x) @ w with { route = p, chunk = 4 per shard } }
    """
    return from_breach(breach, source, "write `chunk = n per shard` where the plan is used")


@rule("CD326", "ranks-add-up-differently")
def orders_differ(breach: Breach, source: Source) -> Finding:
    """An `all_reduce` leaves the same bits on every rank, also along a plan.

    Sums of floating-point numbers depend on how their addends are grouped, not on the order of two operands. Several
    ranks may add up the same shard if they group alike, as pairs that exchange whole sums do: all have (0 + 1) + (2 +
    3). Where each takes sums of the ranks above it, rank 1 has (1 + 2) + (3 + 0). Then let one rank add up.

    Fails:
        mesh tp[4]
        dim M = 1..4096
        tensor x : bf16[M, 512 @ tp]
        tensor w : bf16[512 @ tp, 512]
        plan spread(t) : all_reduce over tp {
            for k in range(log2(tp)) { for s in range(tp) { fetch t[s] from (rank + pow2(k)) mod tp adding } }
        }
        op f(x, w) -> y { y = all_reduce(x @ w) with { route = spread } }

    Mended:
        mesh tp[4]
        dim M = 1..4096
        tensor x : bf16[M, 512 @ tp]
        tensor w : bf16[512 @ tp, 512]
        plan doubling(t) : all_reduce over tp {
            for k in range(log2(tp)) { for s in range(tp) { send t[s] to xor(rank, pow2(k)) adding } }
        }
        op f(x, w) -> y { y = all_reduce(x @ w) with { route = doubling } }
    """
    return from_breach(breach, source, "let one rank add up a shard, and send the sum on without `adding`")


@rule("CD327", "steps-with-different-chunks")
def chunks_differ(span: Span, other: Span) -> Finding:
    """Steps of one plan that cut shards into different chunks are not built.

    In the module that is made a chunk has one flag, which every step that moves it sets. Say `chunk` where the plan is
    used. What may differ from step to step is the lane and `via`: ldst, tma or, for steps that send the rank's own
    shard, copy_engine.

    Fails:
        mesh tp[4]
        plan p(t) : all_gather over tp {
            send t[rank] to (rank + 1) mod tp with { chunk = 4 per shard }
            for i in range(2, tp) { send t[rank] to (rank + i) mod tp }
        }

    Mended:
        mesh tp[4]
        plan p(t) : all_gather over tp {
            send t[rank] to (rank + 1) mod tp with { via = tma }
            for i in range(2, tp) { send t[rank] to (rank + i) mod tp with { via = ldst } }
        }
    """
    labels = (Label(other, "this one has others"),)
    return Finding("the steps of a plan have different chunks", span, "these chunks", labels,
                   help="give all steps the same, or say it where the plan is used")  # fmt: skip


@rule("CD321", "shard-not-there")
def absent(breach: Breach, source: Source) -> Finding:
    """A step moves what its source holds then: the rank's own input, or what an earlier step brought.

    Steps are ordered by their places in the plan and by loop values, the outermost first; at the same place and values
    they happen side by side on all ranks, and read before they write.

    Fails:
        mesh tp[4]
        plan p(t) : all_gather over tp {
            for i in range(tp - 1) { send t[(rank + i) mod tp] to (rank + 1) mod tp }
        }

    Mended:
        mesh tp[4]
        plan p(t) : all_gather over tp {
            for i in range(tp - 1) { send t[(rank - i) mod tp] to (rank + 1) mod tp }
        }
    """
    return from_breach(breach, source, "send what the rank has, or let an earlier step bring it")


@rule("CD322", "shard-arrives-twice")
def again(breach: Breach, source: Source) -> Finding:
    """Every piece of a gather or an exchange arrives once: a second copy would travel for nothing.

    Fails:
        mesh tp[4]
        plan p(t) : all_gather over tp { for i in range(1, tp + 1) { send t[rank] to (rank + 1 + i mod 3) mod tp } }

    Mended:
        mesh tp[4]
        plan p(t) : all_gather over tp { for i in range(tp - 1) { send t[rank] to (rank + 1 + i mod 3) mod tp } }
    """
    return from_breach(breach, source, "leave one of the two steps out")


@rule("CD323", "contract-not-kept")
def not_kept(breach: Breach, source: Source) -> Finding:
    """After the last step holds what the plan's contract says, on every rank.

    `all_gather`: every shard, in its place. `reduce_scatter`: of the own shard the sum of all ranks' addends.
    `all_reduce`: that of every shard. `all_to_all`: in place r what rank r held for this rank. A route that does so for
    some world sizes only is refused for the others.

    Fails:
        mesh tp[6]
        plan p(t) : all_gather over tp {
            for k in range(log2(tp)) {
                for j in range(pow2(k)) { send t[xor(rank, j) mod tp] to xor(rank, pow2(k)) mod tp }
            }
        }

    Mended:
        mesh tp[8]
        plan p(t) : all_gather over tp {
            for k in range(log2(tp)) { for j in range(pow2(k)) { send t[xor(rank, j)] to xor(rank, pow2(k)) } }
        }
    """
    return from_breach(breach, source, "add the step that is missing, or mend the one that goes wrong")


@rule("CD324", "addend-sent-twice")
def twice(breach: Breach, source: Source) -> Finding:
    """Each rank's addend goes into a sum once.

    Fails:
        mesh tp[4]
        plan p(t) : reduce_scatter over tp {
            for i in range(1, tp) { send t[(rank + i) mod tp] to (rank + i) mod tp adding }
            send t[(rank + 1) mod tp] to (rank + 1) mod tp adding
        }

    Mended:
        mesh tp[4]
        plan p(t) : reduce_scatter over tp {
            for i in range(1, tp) { send t[(rank + i) mod tp] to (rank + i) mod tp adding }
        }
    """
    return from_breach(breach, source, "add each rank's part once")


@rule("CD325", "writes-that-race")
def race(breach: Breach, source: Source) -> Finding:
    """Two writes of a piece, or a read and a write that replaces it, must be ordered by their places in the plan.

    Also two additions: which comes first would decide how the sum rounds.

    Fails:
        mesh tp[4]
        plan p(t) : reduce_scatter over tp {
            for d in range(tp) { if d != rank { send t[d] to d adding } }
        }

    Mended:
        mesh tp[4]
        plan p(t) : reduce_scatter over tp {
            for i in range(1, tp) { send t[(rank + i) mod tp] to (rank + i) mod tp adding }
        }
    """
    return from_breach(breach, source, "let a loop value or the place in the plan say which comes first")


BY_CODE: dict[str, Callable[[Breach, Source], Diagnostic]] = {
    f.code: f
    for f in (
        *STEP_RULES, parts_not_chunks, absent, again, not_kept, twice, race, orders_differ,
    )
}
