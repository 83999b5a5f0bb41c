"""A sum along the route of a plan, whole tensors at a time: what `exact` compares the fused additions with.

Copied into modules that need it, so: torch only.
"""

from __future__ import annotations


def follow_sums(parts, additions, rows, own):
    """The sum of every rank's `parts` [world, stride, n] of one shard as rank `own` ends up with it: f32 [stride, n].

    `additions`: (holder, reader, part) in the plan's order, part p being rows [p * rows, (p + 1) * rows). What travels
    is rounded to the dtype of `parts`, as on the wire; what stays is added up in f32.
    """
    total = parts.float()
    for holder, reader, part in additions:
        low, high = part * rows, (part + 1) * rows
        total[reader, low:high] += total[holder, low:high].to(parts.dtype).float()
    return total[own].contiguous()
