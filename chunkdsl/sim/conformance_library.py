"""Trails of products that the library computes, for conformance: the calls of one launch, and the waits ahead of each,
are brought together as one program that does all of it in stream order."""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.plan.schedule import OpSchedule
from chunkdsl.sim.log import Trail

WAITER = "await_chunk"


def join_calls(trails: list[Trail], op: OpSchedule) -> list[Trail]:
    """`trails` in the order in which they started; those of library products become one for each rank, call and launch
    of the schedule, with the waits that stand ahead of them in the stream."""
    names = {n.name for n in op.launches if n.library}
    if not names:
        return trails
    kept: list[Trail] = []
    ahead: dict[tuple[int, int], list] = {}  # events of waits that no product has followed yet
    joined: dict[tuple[int, int, str], Trail] = {}
    for t in trails:
        stream = t.origin.rank, t.origin.call
        if t.origin.label == WAITER:
            ahead.setdefault(stream, []).extend(t.events)
        elif t.origin.label in names:
            whole = joined.setdefault((*stream, t.origin.label), Trail(t.origin))
            whole.events += [*ahead.pop(stream, ()), *t.events]
        else:
            kept.append(t)
    for stream, events in ahead.items():
        last = next((whole for key, whole in reversed(joined.items()) if key[:2] == stream), None)
        if last is None:
            kept.append(Trail(replace(trails[0].origin, rank=stream[0], call=stream[1], label=WAITER), events))
        else:
            last.events += events
    return [*kept, *joined.values()]
