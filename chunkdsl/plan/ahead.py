"""Right operands of products that are gathered while the product runs: weights gathered ahead, as ZeRO-3 has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chunkdsl.ir.types import SymSize
from chunkdsl.record import record

if TYPE_CHECKING:
    from chunkdsl.plan.schedule import Staging


@record
class Ahead:
    """`rows` of the gathered matrices, cut over the ranks. onto "columns": they are the result's columns (`a @ w.T`); a
    tile lies in one shard of them and waits for the chunks that it reads. onto "depth": the product contracts them
    (`a @ w`); every tile walks the shards in its loop and waits for each. `also`: stagings beside the launch's."""

    rows: SymSize
    onto: str
    also: tuple[Staging, ...] = ()
