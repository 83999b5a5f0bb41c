"""Kernels with several results: does a program store of the others what belongs to its tile of the first?

Only the first result decides which rows a program handles, and only its rows are signalled. A kernel whose programs are
not tied to rows, and that runs on whole tensors, may store the others as it likes. Nothing is fitted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from chunkdsl.ir.types import DimRef
from chunkdsl.kernels.fault import KernelFault

if TYPE_CHECKING:
    from chunkdsl.kernels.footprint import Finder, Footprint
    from chunkdsl.kernels.trace import Touch

Traces = Sequence[tuple[Mapping[str, int], Sequence["Touch"]]]


def check_beside(finder: Finder, found: Footprint, traces: Traces, block: int, column: int) -> None:
    """KernelFault where a program stores rows, or of a size that is sharded another part, than of the first result."""
    first, cut = finder.result, next((name for name in finder.q.cuts if name == finder.col), "")
    if not (found.block or finder.q.cuts):
        return
    for other in finder.binding.results[1:]:
        for sizes, touches in traces:
            placed = finder.block_of(touches, block)
            for t in touches:
                if t.argument != other.name:
                    continue
                low = placed.get(t.program, -1) * block
                if t.program not in placed or int(t.rows[0]) < low or int(t.rows[-1]) >= low + block:
                    raise KernelFault(f"stores rows of {other.name} in another program than those of {first.name}",
                                      t.line, "let a program store the same rows of all its results")
            across = DimRef(cut) in other.dims[1:]
            if cut and across and not finder.within(other.name, 1, 1, column, sizes[cut], touches):
                raise KernelFault(f"`{cut}` is sharded, and programs store other parts of it of {other.name} than of "
                                  f"{first.name}", finder.line, f"gather `{cut}`")  # fmt: skip
