"""Edges of chunks inside tiles: why the rows of a result cannot be sent chunk by chunk.

A chunk's signal counts tiles of whole blocks of rows, so an edge may lie inside a block, whose tiles then count for
both chunks; never inside a tile that no block holds. Rows that are kept or gathered have no such need: a tile waits for
every chunk that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chunkdsl.kernels.fault import KernelFault

if TYPE_CHECKING:
    from chunkdsl.kernels.footprint import Finder
    from chunkdsl.kernels.trace import Touch

MEND = "let a program store whole blocks of rows, or bind the result to a name first: a launch behind it sends it"


def edge_inside(finder: Finder, traces: Sequence[Sequence[Touch]], block: int) -> KernelFault:
    """The first program whose tile is not in one block of `block` rows, at the line of its last store."""
    name = finder.result.name
    for touches in traces:
        stored: dict = {}
        for t in touches:
            if t.argument == name:
                low, high, _ = stored.get(t.program, (t.rows[0], t.rows[-1], 0))
                stored[t.program] = min(low, t.rows[0]), max(high, t.rows[-1]), t.line
        for program, (low, high, line) in stored.items():
            if low // block != high // block:
                what = f"program {program} stores rows {low} to {high} of {name}, which no block of {block} rows holds"
                return KernelFault(f"{what}: a chunk that is sent may end inside its tile", line, MEND, edge=True)
    return KernelFault(f"rows of {name} are sent, and how many it has is a number in its item", finder.line,
                       f"name that size: `{name} = ... : [m, n]`")  # fmt: skip
