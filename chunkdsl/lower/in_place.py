"""Gathers whose own shard stays where the caller has it: copy engines push it to the peers from there, and tiles read
it there. Nothing then writes or reads its place in the gathered buffer, no kernel copies it, and no rank waits for
another before its copies start: the closing barrier of the call before has freed the peers' buffers.

So it may be where all that reads the gathered value are products of emitted tiles that have it as their left operand.
Anything else that reads it, such as a user's kernel, the library or a launch that copies it out, wants one tensor with
all of it.
"""

from __future__ import annotations

from collections.abc import Callable

from chunkdsl.ir.graph import Op, Value
from chunkdsl.lower.gates import values_of


def may_stay(value: Value, op: Op, by_library: Callable[[Value], bool]) -> bool:
    """Do only such products read this gather of a parameter, however often it is written? What is pushed along no plan,
    by copy engine and between the ranks of one axis, then stays; and it is pushed where nothing else is said."""
    source, every = value.args[0], values_of(op)
    same = {v for v in every if v.kind == "all_gather" and v.args[0] is source}
    readers = [v for v in every if not same.isdisjoint(v.args)]
    lefts = [v for v in readers if v.kind == "matmul" and v.args[0] in same and v.args[1] not in same]
    plain = lefts == readers and not any(map(by_library, readers))
    return source.kind == "param" and plain and bool(readers) and not any(v in same for _, v in op.results)
