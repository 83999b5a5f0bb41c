"""The schedule of a small all-reduce: one launch, in which words are sent, taken, added up and finished."""

from __future__ import annotations

from chunkdsl.ir.types import SymSize
from chunkdsl.plan.schedule import Extent, Instruction, Operand
from chunkdsl.record import record


@record
class Store:
    """A value that an exchange leaves behind: `target` of its epilogue, rounded to `dtype`, in result or parameter
    `tensor`."""

    target: str
    tensor: str
    dtype: str


@record
class Form:
    """How an exchange travels: `word` (data and epoch in 64 bits), `mark` (32 bits, 0 is empty), `flag` (data, then a
    flag for each block), `speculative` (read first, validated later), where a rank sends up to `words` of 32 bits in a
    round, to all others together; 0: any. `slots`: copies of its buffer; `wide`: words that a thread takes at once;
    `blocks`: (words, warps) to choose from, ascending: the first with which every block has a program of its own;
    `registers`: most of a thread, on NVIDIA; 0: the compiler's choice."""

    name: str
    words: int
    slots: int
    wide: int = 1
    blocks: tuple[tuple[int, int], ...] = ()
    registers: int = 0


@record
class Exchange:
    """A small all-reduce with its epilogue, in one launch. `payload` [rows, cols] of every rank is cut into 32-bit
    words and these into blocks, one for a program at a time; a block depends on the other ranks' same block alone.

    rowwise  a row is a program's at a time, padded to one block, or, of `long_rows`, to several, which it goes through
             for each norm and once more: sums wait for it in memory of the rank's own
    stores   in the order of the statements; `epilogue` starts from "total", the sum in rank order
    """

    name: str
    line: int
    text: str
    payload: str
    dtype: str
    rows: SymSize
    cols: Extent
    algorithm: str
    validity: str
    retry: int
    assume: str
    rowwise: bool
    long_rows: bool
    forms: tuple[Form, ...]
    operands: tuple[Operand, ...]
    epilogue: tuple[Instruction, ...]
    stores: tuple[Store, ...]
    limit: int  # payload bytes times (ranks - 1) above which the fallback is faster; 0: never
    via: str = "ldst"  # "multimem": payloads stay where they are and the switch adds them, for every rank anew
    vectors: int = 0  # of 16 bytes, of the longest row of a norm in the switch's kernel, which holds one in registers

    @property
    def bare(self) -> bool:
        """Whether nothing but the rounded sum is left."""
        return len(self.stores) == 1 and all(s.op == "round" and s.args[1] == self.dtype for s in self.epilogue)

    @property
    def unit(self) -> int:
        """Bytes of which every row is a multiple: what a thread takes at once."""
        return 16 if self.via == "multimem" else 4 * max(f.wide for f in self.forms)
