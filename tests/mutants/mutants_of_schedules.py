"""Faults of schedules: the templates then print a wrong module faithfully, so the proof must refuse them beforehand."""

from __future__ import annotations

from dataclasses import replace

from mutant_faults import Fault, always, launches, moves

from chunkdsl.ir.policy import ChunkRows
from chunkdsl.plan.routes import Walk

SCHEDULE, PROOF = "schedule", ("proof",)


def products(n) -> bool:
    return bool(n.products)


def sums(n) -> bool:
    return n.sums is not None


def destination(**changes):
    return lambda n: replace(n.destination, **changes)


def staging(**changes):
    return lambda n: n.staging and replace(n.staging, **changes)


def one_slot(op):
    """One buffer instead of two, and still no closing barrier."""
    return replace(op, slots=1, buffers=tuple(replace(b, slots=1) for b in op.buffers))


def bias_before_sum(op):
    """The statement after the reduction moves in front of it: every rank adds the bias to its addend."""
    partial, total = op.launches
    moved = tuple(replace(i, args=tuple("acc" if a == "total" else a for a in i.args)) for i in total.epilogue)
    partial = replace(partial, operands=total.operands[:1], epilogue=moved, value=total.value)
    total = replace(total, operands=total.operands[1:], epilogue=(), value="total")
    return replace(op, launches=(partial, total))


def swapped_products(op):
    """swiglu(a, b) computes silu(b) * a."""
    (n,) = op.launches
    one, two = n.products
    picks = (replace(one, b=replace(one.b, pick=1)), replace(two, b=replace(two.b, pick=0)))
    return replace(op, launches=(replace(n, products=picks),))


def without_gelu(op):
    first = op.launches[0]
    steps = tuple(replace(i, op="relu") if i.op == "gelu" else i for i in first.epilogue)
    return replace(op, launches=(replace(first, epilogue=steps), *op.launches[1:]))


FAULTS = (
    Fault(
        "tiles wait for nothing",
        "gather_push",
        "missing wait",
        SCHEDULE,
        PROOF,
        change=launches(products, chunk_flags=None),
    ),
    Fault(
        "sum waits for nothing",
        "scatter_push",
        "missing wait of the reduction",
        SCHEDULE,
        PROOF,
        change=launches(sums, chunk_flags=None),
    ),
    Fault(
        "no closing barrier",
        "scatter_tma",
        "reuse without barrier",
        SCHEDULE,
        PROOF,
        change=lambda op: replace(op, closing=False),
    ),
    Fault(
        "no closing barrier of a gather",
        "gather_pull",
        "reuse without barrier",
        SCHEDULE,
        PROOF,
        change=lambda op: replace(op, closing=False),
    ),
    Fault(
        "no closing barrier of a gather that pushes from the parameter",
        "gather_copy_push",
        "copies overwrite what a peer still reads",
        SCHEDULE,
        PROOF,
        change=lambda op: replace(op, closing=False),
    ),
    Fault(
        "copies and tiles take the own shard from another parameter",
        "gather_copy_push",
        "the weight's rows are multiplied",
        SCHEDULE,
        PROOF,
        change=moves(source="w"),
    ),
    Fault("one slot for two calls", "scatter_push", "one buffer instead of two", SCHEDULE, PROOF, change=one_slot),
    Fault("one slot for an all-reduce", "one_shot", "one buffer instead of two", SCHEDULE, PROOF, change=one_slot),
    Fault(
        "no entry barrier",
        "gather_copy_pull",
        "copies start before the peers have staged",
        SCHEDULE,
        PROOF,
        change=launches(always, staging=staging(wait_all=False)),
    ),
    Fault(
        "pull does not wait for the peer",
        "gather_pull",
        "ready flag not awaited",
        SCHEDULE,
        PROOF,
        change=moves(ready=None),
    ),
    Fault("nobody carries", "gather_push", "moves forgotten", SCHEDULE, PROOF, change=launches(products, moves=())),
    Fault(
        "the walk visits its own rank", "gather_push", "moves skip a peer", SCHEDULE, PROOF, change=moves(walk=Walk.UP)
    ),
    Fault(
        "co-located tiles against the order of arrival",
        "swiglu",
        "a program waits for a chunk that a later ticket carries",
        SCHEDULE,
        PROOF,
        change=launches(products, walk=Walk.UP),
        run={"world": 4},
    ),
    Fault(
        "one-shot to the owner alone",
        "one_shot",
        "addends reach one rank only",
        SCHEDULE,
        PROOF,
        change=launches(products, destination=destination(everyone=False)),
    ),
    Fault(
        "chunks of another size are signalled",
        "scatter_push",
        "chunk numbers of writer and reader differ",
        SCHEDULE,
        PROOF,
        change=launches(products, out_chunk=ChunkRows(4, "M")),
    ),
    Fault("pull without a ready flag", "gather_push", "wrong side", SCHEDULE, PROOF, change=moves(side="pull")),
    Fault(
        "bias before the reduction",
        "scatter_push",
        "bias added once per rank",
        SCHEDULE,
        ("float64",),
        change=bias_before_sum,
        run={"calls": (20,)},
    ),
    Fault(
        "gate and up swapped",
        "swiglu",
        "the wrong product is gated",
        SCHEDULE,
        ("float64",),
        change=swapped_products,
        run={"calls": (20,)},
    ),
    Fault(
        "relu for gelu", "mlp", "another activation", SCHEDULE, ("float64",), change=without_gelu, run={"calls": (20,)}
    ),
    Fault(
        "shards not padded",
        "gather_ring",
        "a tile reads into the next shard while that arrives",
        SCHEDULE,
        ("simulator",),
        change=lambda op: replace(op, pad=1),
    ),
)
