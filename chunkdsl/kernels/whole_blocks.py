"""Sizes of which a kernel takes whole blocks: it has no masks there, or a constant rules them out.

Of a size that is sharded the ranks hold parts, and those that the mesh declares are looked at: a fault there is one. A
module that runs on other numbers of ranks holds the parts against the block (`Operation.WHOLE`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from chunkdsl.kernels.every_program import OPERATIONS, Check
from chunkdsl.kernels.fault import KernelFault
from chunkdsl.kernels.spread import TooLong

if TYPE_CHECKING:
    from chunkdsl.kernels.footprint import Finder, Footprint

WIDEST = 512  # elements of a block


def whole_blocks(finder: Finder, found: Footprint, small: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """(size, elements of which it must be a multiple), of sizes that no call may choose. KernelFault where a rank's
    part of one is none."""
    few = dict(small)
    if finder.row:
        few[finder.row] = min(finder.q.sizes[finder.row], 2 * finder.block + 1)
    for name, parts in finder.q.shards.items():
        for part in parts:
            runs(finder, found, few | {name: part}, strict=True)
    fixed = sorted(n for n in finder.q.sizes if n in finder.q.fixed or n in finder.q.shards)
    return tuple((name, unit) for name in fixed if (unit := block_of(finder, found, few, name)) > 1)


def block_of(finder: Finder, found: Footprint, few: Mapping[str, int], name: str) -> int:
    """The least power of two an odd multiple of which the kernel takes; 1 where none is found up to WIDEST."""
    unit = 1
    while unit <= min(WIDEST, few[name]):
        value = unit * ((few[name] // unit - 1) | 1)
        if runs(finder, found, {**few, name: min(value, few[name] // unit * unit)}):
            return unit
        unit *= 2
    return 1


def runs(finder: Finder, found: Footprint, sizes: Mapping[str, int], strict: bool = False) -> bool:
    """Is the kernel right at these sizes? One that cannot be run there at all is no matter of its blocks."""
    shapes = [(t, finder.shape(t, sizes)) for t in finder.binding.all]
    if not all(finder.has_descriptor(t, shape) for t, shape in shapes):
        return False
    try:
        Check(finder, found, [sizes]).run([OPERATIONS])
    except TooLong:
        return True
    except KernelFault:
        if strict:
            raise
        return False
    return True
