"""Do addresses follow from sizes and program ids alone? Found by a second trace, in which other values are loaded.

Asked of what travels, of what is stored, and of sizes of which this rank has a part: with them the plan deals. Where a
kernel reads along what is whole on each rank is its own affair: the group of weights that a block of rows takes may
stand in a table. Such an index is not held against the argument's shape beyond the two traces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from chunkdsl.ir.types import DimRef
from chunkdsl.kernels.fault import KernelFault

if TYPE_CHECKING:
    from chunkdsl.kernels.footprint import Finder
    from chunkdsl.kernels.trace import Touch

WANTED = "what a program touches must follow from sizes and program ids; only of what is whole on each rank may it pick"


def check_addresses(finder: Finder, sizes: Mapping[str, int], touches: Sequence[Touch]) -> None:
    """KernelFault where an address or a mask depends on what was loaded. `touches`: of a trace with zeros."""
    try:
        again = finder.touches(sizes, fill=1)
    except KernelFault as fault:  # with zeros it was within its arguments
        raise KernelFault(f"an address depends on data: {fault.reason}", fault.line, WANTED) from None
    touches, again = ([t for t in part if place_of(finder, t)] for part in (touches, again))
    for a, b in zip(touches, again, strict=False):
        if (a.kind, a.argument, a.line, place_of(finder, a)) != (b.kind, b.argument, b.line, place_of(finder, b)):
            raise KernelFault(f"a {a.kind} of {a.argument} at an address that depends on data", a.line, WANTED)
    if len(touches) != len(again):
        more = max(touches, again, key=len)[min(len(touches), len(again))]
        what = f"whether a {more.kind} of {more.argument} takes place depends on data"
        raise KernelFault(what, more.line, WANTED)


def place_of(finder: Finder, touch: Touch) -> tuple[int, ...]:
    """What of an access must not depend on data: its elements, its columns where they alone are sharded, or nothing."""
    q, dims = finder.q, finder.binding.tensor(touch.argument).dims
    parts = [i for i, d in enumerate(dims) if isinstance(d, DimRef) and d.name in q.parted]
    if touch.kind != "load" or touch.argument in q.gathered:
        return touch.key
    if parts == [len(dims) - 1] and len(dims) > 1:
        return tuple(touch.columns.tolist())
    return touch.key if parts else ()
