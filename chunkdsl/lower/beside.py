"""Launches that may start while the product ahead of them still runs, on the multiprocessors that it leaves free: sums
of what its tiles sent, and copies out of what the sums sent. All they read of it they wait for chunk by chunk.

They need no order of the stream, so nothing else about them may: `check` proves the plan with them side by side. Not so
overlapped are launches that read a buffer of the launch ahead without a flag, and those behind programs of their own or
a user's kernel.
"""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.plan.kinds import kind_of
from chunkdsl.plan.schedule import Launch


def overlapped(launches: list[Launch], parameters: set[str]) -> tuple[Launch, ...]:
    """The launches of an op, with `beside` where it may be. `parameters`: names of what is there before the call."""
    made: list[Launch] = []
    for n in launches:
        made.append(replace(n, beside=bool(made) and _may_overlap(made[-1], n, parameters)))
    return tuple(made)


def _may_overlap(ahead: Launch, n: Launch, parameters: set[str]) -> bool:
    read = {o.source for o in n.operands if o.source not in parameters and o.source != ahead.destination.buffer}
    if n.within or kind_of(n) != "elements" or n.staging or n.moves or read:
        return False
    carried = any(m.via != "copy_engine" for m in ahead.moves)
    if n.chunk_flags is None or n.chunk_flags != ahead.destination.arrived or carried:
        return False
    if n.sums:
        plain = not n.sums.ring and n.sums.routing is None and n.sums.side == "push"
        return plain and bool(ahead.products) and not (ahead.body or ahead.library) and ahead.destination.kind == "push"
    return (ahead.beside or ahead.within) and ahead.destination.kind == "broadcast"
