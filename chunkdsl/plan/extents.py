"""Sizes of one rank, as schedules name them: an extent that may be sharded, and how an all_to_all deals columns out."""

from __future__ import annotations

from chunkdsl.ir.layouts import CONTIGUOUS, Layout
from chunkdsl.ir.types import SymSize
from chunkdsl.record import record


@record
class Extent:
    """A size of one rank: `size` elements, cut over the ranks in a `layout` when `sharded`."""

    size: SymSize
    sharded: bool = False
    layout: Layout = CONTIGUOUS


@record
class Deal:
    """An all_to_all. onto "rows": rank r has all rows of column shard r and gets row shard r, the columns of rank q at
    q * C with C = ceil(columns / W). onto "columns": the other way, the rows of rank q at shard q. `cols`: sharded."""

    onto: str
    cols: Extent


@record
class Result:
    """A new tensor. One of three dimensions is a stack of matrices, which launches write one by one."""

    name: str
    dtype: str
    shape: tuple[Extent, ...]
    placements: tuple[str, ...] = ()

    @property
    def written(self) -> tuple[str, ...]:
        """What launches call it: a destination's `buffer` for each matrix."""
        count = self.shape[0].size if len(self.shape) > 2 else 0
        return tuple(matrix_name(self.name, i) for i in range(count)) or (self.name,)


def matrix_name(stack: str, index: int) -> str:
    return f"{stack}[{index}]"


@record
class Relay:
    """Where blocks of an all_to_all along a plan lie on their way: `buffer` has a place for each rank, and `arrived` a
    word for each chunk of one."""

    buffer: str
    arrived: str
    counters: str


@record
class OverRows:
    """A launch whose tiles run over all `rows` of their operands: a product contracts them, a fold adds them up.
    kept: own (this rank's shard of them alone), whole (all of them), shards (all, shard by shard, as one operand lies
    in a padded buffer)."""

    rows: SymSize
    kept: str
