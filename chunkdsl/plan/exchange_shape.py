"""How a call of a small all-reduce is cut into blocks and programs: what runtime/exchange.py does, as numbers."""

from __future__ import annotations

from collections.abc import Mapping

from chunkdsl.ir.types import evaluate
from chunkdsl.plan.schedule import Form, OpSchedule
from chunkdsl.plan.unroll_exchange import each_words, form_for, payload_words
from chunkdsl.record import record


@record
class Shape:
    """A payload of `words` 32-bit words goes in `form`, in `blocks` blocks of `block` words, each for a program of
    `warps` warps; `programs` of them run at a time."""

    form: Form
    words: int
    block: int
    warps: int
    blocks: int
    programs: int

    @property
    def more(self) -> int:
        """Blocks that the busiest program has after its first."""
        return -(-self.blocks // self.programs) - 1


def shape_of(op: OpSchedule, world: int, dims: Mapping[str, int], multiprocessors: int) -> Shape:
    """Of blocks the first size with which every block has a program of its own, else the largest."""
    x, words = op.exchange, payload_words(op.exchange, dims)
    form = form_for(x, words, world)
    sent = each_words(x, words, world, form.wide)
    sizes = x.blocks if x.rowwise else [(size * form.wide, warps) for size, warps in x.blocks]

    def blocks_of(size: int) -> int:
        return evaluate(x.rows, dims) if x.rowwise else -(-sent // size)

    block, warps = next((b for b in sizes if blocks_of(b[0]) <= multiprocessors), sizes[-1])
    blocks = max(1, blocks_of(block))
    return Shape(form, words, block, warps, blocks, min(blocks, multiprocessors))
