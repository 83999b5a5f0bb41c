"""A product that the library computes: one program of the main lane, which reads two matrices and writes a third.

What it computes is torch's own product of what it finds when it reads. Its accesses are whole boxes of rows, checked
and logged like those of a kernel's program; between reading and writing the others get a turn.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from chunkdsl.sim.accesses import Accesses
from chunkdsl.sim.actors import Program
from chunkdsl.sim.boxes import Cells, cut_range
from chunkdsl.sim.buffers import Buffer


def run_product(
    accesses: Accesses, current: Callable[[], Program], switch: Callable[[], None],
    out: torch.Tensor, left: torch.Tensor, right: torch.Tensor, transposed: bool,
) -> None:  # fmt: skip
    """The program's body: out = left @ right, or left @ right.T."""
    switch()
    actor = current()
    for tensor in (left, right):
        for part in boxes_of(accesses, actor, tensor, "load"):
            accesses.load(actor, [part], tensor.element_size(), False, False)
    made = torch.mm(left, right.t() if transposed else right)
    switch()
    for part in boxes_of(accesses, actor, out, "store"):
        accesses.store(actor, [part], out.element_size(), False)
    out.copy_(made)
    actor.progress()


def boxes_of(accesses: Accesses, actor: Program, tensor: torch.Tensor, verb: str) -> list[tuple[Buffer, list[Cells]]]:
    """[(buffer, boxes)] of a matrix whose rows are contiguous; empty for one without elements."""
    if not tensor.numel():
        return []
    rows, cols, item = *tensor.shape, tensor.element_size()
    down, width = tensor.stride(0) * item, cols * item
    who = f"{verb} by {actor.name}"
    buffer, first = accesses.space.span(tensor.data_ptr(), (rows - 1) * down + width, actor.rank, who)
    row, col = divmod(first, buffer.pitch)
    if down == buffer.pitch and col + width <= buffer.pitch:
        return [(buffer, [(row, row + rows, col, col + width)])]
    return [(buffer, [box for r in range(rows) for box in cut_range(first + r * down, width, buffer.pitch)])]
