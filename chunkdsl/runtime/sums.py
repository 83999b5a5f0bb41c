"""A sum along the route of a plan, whole tensors at a time: what `exact` compares the fused additions with.

Copied into modules that need it, so: torch only.
"""

from __future__ import annotations


def follow_sums(parts, transfers, rows, own, whole):
    """What rank `own` has of one shard once every rank's `parts` [world, stride, n] of it have gone a plan's way: f32
    [stride, n].

    `transfers`: (moment, holder, reader, part, 1 if it adds) in the plan's order, those of one moment reading before
    they write; part p is rows [p * rows, (p + 1) * rows). What travels is rounded to the dtype of `parts`, as on the
    wire; what stays is added up in f32. `whole`: a sender goes on with what it has sent, and the result is rounded, so
    that it is the same on every rank.
    """
    total, moment, writes = parts.float().clone(), 0, []
    for now, holder, reader, part, adds in (*transfers, (-1, 0, 0, 0, 0)):
        if now != moment:
            for to, low, high, adding, value in writes:
                total[to, low:high] = total[to, low:high] + value if adding else value
            moment, writes = now, []
        low, high = part * rows, (part + 1) * rows
        value = total[holder, low:high].to(parts.dtype).float().clone()  # f32 would be a view
        writes.append((reader, low, high, adds, value))
        if whole and now >= 0:
            total[holder, low:high] = value
    found = total[own].to(parts.dtype).float() if whole else total[own]
    return found.contiguous()
