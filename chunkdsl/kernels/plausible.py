"""Does a binding fit a kernel at all? Traces at small sizes that all differ, so that no two can be mistaken for each
other, with one and several blocks of rows and columns. What holds of every size is `footprint`'s."""

from __future__ import annotations

from chunkdsl.kernels.fault import KernelFault
from chunkdsl.kernels.footprint import Finder, Question

UNIT = 16  # sizes are odd multiples of it: descriptors want rows of whole 16 bytes


def distinct_sizes(sizes: dict[str, int]) -> dict[str, int]:
    """Small stand-ins, none larger than what it stands for; different where the sizes leave room."""
    found: dict[str, int] = {}
    taken: set[int] = set()
    for name, most in sorted(sizes.items(), key=lambda s: s[1]):
        wanted = next(n for n in range(3 * UNIT, 3 * UNIT + 2 * UNIT * (len(taken) + 1), 2 * UNIT) if n not in taken)
        found[name] = min(most, wanted)
        taken.add(found[name])
    return found


def misfit(q: Question) -> KernelFault | None:
    """Why the binding is not the kernel's, if it shows."""
    small = distinct_sizes(dict(q.sizes))
    try:
        finder = Finder(q)
        block, column = finder.blocks(small)
        for sizes in (small, *finder.samples(small, block, column)[1:]):
            finder.check_touches(sizes, finder.touches(sizes))
    except KernelFault as fault:
        return fault
    return None
