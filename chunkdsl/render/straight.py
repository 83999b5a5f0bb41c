"""Which fallbacks are one collective, beside one product or alone (`runtime/straight.py`)."""

from __future__ import annotations

from chunkdsl.ir.layouts import CONTIGUOUS
from chunkdsl.plan.exchange import Exchange
from chunkdsl.plan.kinds import kind_of
from chunkdsl.plan.schedule import Launch, OpSchedule


def straight_steps(op: OpSchedule) -> tuple[str, ...]:
    """The steps of an op's fallback in order, or () where it is more than they: another epilogue, other dtypes, shards
    that another axis has cut or that are not contiguous, tensors in another order than x, w."""
    if op.exchange:
        return ("total",) if sum_alone(op, op.exchange) else ()
    product, *others = op.launches
    sums = [n for n in others if n.sums]
    dtypes = {x.dtype for x in (*op.parameters, *op.results)} | {n.destination.dtype for n in op.launches}
    names = [p.name for p in op.parameters]
    if len(dtypes) > 1 or len(op.results) > 1 or op.nested or len(product.products) != 1:
        return ()
    if not all(passes(n, *dtypes) for n in op.launches):
        return ()
    b, staging = product.products[0].b, product.staging
    if b.pick is not None or [staging.source if staging else product.a.source, b.source] != names:
        return ()
    multiply = "linear" if b.transposed else "mm"
    if staging:
        return () if others or product.a.source != staging.buffer else ("gather", multiply)
    if len(sums) != 1 or any(n.products for n in others):
        return ()
    scattered = sums[0].space == "own" and sums[0].destination.kind == "local"
    return (multiply, "scatter" if scattered else "total")


def sum_alone(op: OpSchedule, x: Exchange) -> bool:
    """Is there nothing behind the sum, not even another dtype?"""
    dtypes = {p.dtype for p in (*op.parameters, *op.results, *x.stores)}
    rounds = all(s.op == "round" and s.args[1] == x.dtype for s in x.epilogue)
    return dtypes == {x.dtype} and len(op.parameters) == len(x.stores) == 1 and not op.updates and rounds


def passes(launch: Launch, dtype: str) -> bool:
    """Is the value of a launch what its product or its collective gives, on rows in their order?"""
    more = kind_of(launch) in ("kernel", "over_rows", "ahead") or launch.destination.deal
    more = more or (launch.staging and launch.staging.deal) or launch.layout != CONTIGUOUS
    given = {("load", o.name) for o in launch.operands if o.arrived} | {("round", dtype)}
    return not more and all((s.op, s.args[-1]) in given for s in launch.epilogue)
