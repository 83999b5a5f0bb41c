"""Does a binding fit a kernel at all? Traces at small sizes that all differ, so that no two can be mistaken for each
other, with one and several blocks of rows and columns. What holds of every size is `footprint`'s."""

from __future__ import annotations

from chunkdsl.kernels.fault import KernelFault
from chunkdsl.kernels.footprint import Finder, Question

STANDS = tuple(range(24, 1024, 16))  # odd multiples of 8 elements: descriptors want rows of whole 16 bytes


def distinct_sizes(sizes: dict[str, int]) -> dict[str, int]:
    """Small stand-ins, none larger than what it stands for; different where the sizes leave room."""
    found: dict[str, int] = {}
    for name, most in sorted(sizes.items(), key=lambda s: s[1]):
        below = [n for n in (*STANDS, *range(most, 0, -1)[:64]) if n <= most and n not in found.values()]
        found[name] = below[0] if below else most
    return found


def misfit(q: Question) -> KernelFault | None:
    """Why the binding is not the kernel's, if it shows."""
    small = distinct_sizes(dict(q.sizes))
    try:
        finder = Finder(q)
        block, column = finder.blocks(small)
        seen = [(sizes, finder.touches(sizes)) for sizes in (small, *finder.samples(small, block, column)[1:])]
        for sizes, touches in seen:
            finder.check_touches(sizes, touches)
        finder.check_all_read(seen)
    except KernelFault as fault:
        return fault
    return None
