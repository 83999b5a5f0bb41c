"""How a call of a small all-reduce is cut into blocks and programs: what the wrapper does, as numbers."""

from __future__ import annotations

from collections.abc import Mapping

from chunkdsl.ir.types import evaluate
from chunkdsl.plan.exchange import Form
from chunkdsl.plan.schedule import OpSchedule
from chunkdsl.plan.unroll_exchange import each_words, form_of, payload_words
from chunkdsl.record import record
from chunkdsl.runtime.blocks import block_for, blocks_on


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
    """As runtime/blocks.py has it; of whole rows each is a program's."""
    x, words = op.exchange, payload_words(op.exchange, dims)
    form = form_of(x, words, world)
    sent = each_words(x, words, world, form.wide)
    block, warps = block_for(blocks_on(form.blocks, world), sent, multiprocessors)
    blocks = max(1, evaluate(x.rows, dims) if x.rowwise else -(-sent // block))
    return Shape(form, words, block, warps, blocks, min(blocks, multiprocessors))
