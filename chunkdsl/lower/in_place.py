"""Gathers whose own shard stays where the caller has it: copy engines push it to the peers from there, and tiles read
it there. Nothing then writes or reads its place in the gathered buffer, no kernel copies it, and no rank waits for
another before its copies start: the closing barrier of the call before has freed the peers' buffers.

So it may be where all that reads the gathered value are products that have it as their left operand. Anything else that
reads it, such as a user's kernel, the library or a launch that copies it out, wants one tensor with all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from chunkdsl.ir.graph import Op, Value
from chunkdsl.lower.gates import values_of
from chunkdsl.plan.geometry import rows_apart
from chunkdsl.plan.schedule import Launch, Moves, OpSchedule


def may_stay(value: Value, op: Op) -> bool:
    """Do only products read this gather of a parameter, as their left operand? What lowering makes of them is not known
    yet (`left_in_place`): for the rule about sides."""
    source, every = value.args[0], values_of(op)
    same = {v for v in every if v.kind == "all_gather" and v.args[0] is source}
    readers = [v for v in every if not same.isdisjoint(v.args)]
    plain = all(v.kind == "matmul" and v.args[0] in same and v.args[1] not in same for v in readers)
    return source.kind == "param" and plain and bool(readers) and not any(v in same for _, v in op.results)


def left_in_place(op: OpSchedule) -> OpSchedule:
    """The op with the own shard of its gathers left where it is, wherever all launches that read them can do so."""
    parameters = {p.name for p in op.parameters}
    stays = {
        m.buffer: n.staging.source
        for n in op.launches for m in n.moves
        if _is_pushed(n, m) and n.staging.source in parameters and _can_read_apart(op, m.buffer)
    }  # fmt: skip
    return replace(op, launches=tuple(_with(n, stays) for n in op.launches)) if stays and not op.nested else op


def _is_pushed(n: Launch, m: Moves) -> bool:
    """By copy engine, from the place where `n` stages it, in rows that are as long there as where the caller has it."""
    staged = n.staging is not None and n.staging.deal is None and n.staging.buffer == m.buffer == m.source
    plain = m.kind == "gather" and m.via == "copy_engine" and m.side == "push" and m.routing is None
    return staged and plain and isinstance(m.cols.size, int) and not m.cols.sharded


def _can_read_apart(op: OpSchedule, buffer: str) -> bool:
    return all(_reads_apart(n, buffer) for n in op.launches if buffer in _sources(n))


def _reads_apart(n: Launch, buffer: str) -> bool:
    """Does it read the buffer as the left operand of its products alone, a tile the rows of one shard?"""
    other = n.body or n.over or n.fold or n.ahead or n.library or n.from_every or rows_apart(n)
    left = n.a is not None and n.a.source == buffer and n.a.role == "a" and n.a.layout == "padded"
    return left and not other and bool(n.products) and n.space == "all" and list(_sources(n)).count(buffer) == 1


def _sources(n: Launch) -> Iterator[str]:
    """All that its tiles read."""
    operands = (n.a, *(p.b for p in n.products), n.sums and n.sums.parts, n.fold and n.fold.operand, *n.operands)
    yield from (o.source for o in operands if o)
    yield from (t.source for t in n.body.tensors) if n.body else ()


def _with(n: Launch, stays: dict[str, str]) -> Launch:
    if n.a is not None and n.a.source in stays:
        n = replace(n, a=replace(n.a, own=stays[n.a.source]))
    if n.staging is None or n.staging.buffer not in stays:
        return n
    moves = (replace(m, source=n.staging.source) if m.buffer == n.staging.buffer else m for m in n.moves)
    return replace(n, staging=replace(n.staging, in_place=True), moves=tuple(moves))
