"""A user's kernel as the tiles of a launch: part of the schedule (`schedule`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from chunkdsl.ir.types import SymSize, evaluate
from chunkdsl.plan.extents import Extent
from chunkdsl.record import record

if TYPE_CHECKING:
    from chunkdsl.plan.schedule import Launch, Staging

READS = ("block", "wrap", "turns", "whole")  # rows that a program reads, fewest first


@record
class BodyTensor:
    """A tensor that a user's kernel gets for `parameter`. `source` and `layout` as of an operand; `result` for what it
    stores. `gathered`: which rows of a gathered one a program reads: block, wrap, whole, turns; "" for another one.
    `shape`: local; `dims`: the same in the kernel's own sizes. `arrived`: the flags of a gathered one's chunks.
    `block`: what the kernel moves at once by the tensor descriptor that it takes instead of a pointer, over its
    constants; () for a pointer."""

    parameter: str
    source: str
    dtype: str
    shape: tuple[Extent, ...]
    dims: tuple[SymSize, ...]
    gathered: str = ""
    result: bool = False
    strided: bool = False
    arrived: str = ""
    block: tuple[SymSize, ...] = ()


@record
class BodyScalar:
    """A value for `parameter`: a size over the kernel's own sizes, the stride of a dimension of a tensor (by that
    tensor's parameter), or a constant."""

    parameter: str
    value: SymSize | float | bool | str
    stride: tuple[str, int] | None = None


@record
class Turn:
    """A loop that waits for the rows of the gathered arguments of `parameters` chunk by chunk: its round with value v
    reads `each` rows from row `lead` * v on (`kernels.turns`)."""

    lead: int
    each: int
    parameters: tuple[str, ...]


@record
class KernelBody:
    """A user's kernel as the tiles of a launch: program ids are handed out by ticket.

    A program handles `block` rows of the row dim (0: no block, any rows) and one of `columns` programs of them:
    cdiv(columns of the result, `columns`), or, with 0, the grid's number. Row blocks are counted over the whole row
    dim, so they may straddle shards. `order`: (axes, group, across, turned) of `kernels.order`. `untouched` and
    `by_ticket` are definitions (names, text); `sizes` the kernel's own sizes; `grid` is over these and constants.
    `also`: stagings of gathered arguments beside the launch's.
    `step`: a persistent kernel's parameter. `turns`: the loops that wait for their rows, in the order in which they
    run; `tickets`: the name of the rewritten kernel. `flops`, `loads`: operations of products and bytes loaded, of the
    busiest program at the largest sizes. `whole`: sizes of which the kernel takes whole blocks, and their elements.
    """

    item: str
    path: str
    line: int
    function: str
    tensors: tuple[BodyTensor, ...]
    scalars: tuple[BodyScalar, ...]
    parameters: tuple[str, ...]
    constants: tuple[tuple[str, int | float | bool | str], ...]
    options: tuple[tuple[str, int], ...]
    sizes: tuple[tuple[str, Extent], ...]
    row: str
    grid: tuple[SymSize, ...]
    block: int
    columns: int
    column_block: int
    order: tuple[tuple[int, int, int], int, bool, bool]
    step: str
    untouched: tuple[tuple[str, str], ...]
    by_ticket: tuple[tuple[str, str], ...]
    imports: tuple[str, ...]
    tickets: str
    turns: tuple[Turn, ...] = ()
    also: tuple[Staging, ...] = ()
    flops: int = 0
    loads: int = 0
    whole: tuple[tuple[str, int], ...] = ()

    def block_of(self, t: BodyTensor) -> list[int]:
        return [evaluate(b, dict(self.constants)) for b in t.block]

    @property
    def fetched(self) -> BodyTensor | None:
        """The gathered argument of which programs read most rows, where there are several."""
        found = [t for t in self.tensors if t.gathered]
        return max(found, key=lambda t: READS.index(t.gathered)) if found else None

    @property
    def results(self) -> tuple[BodyTensor, ...]:
        """What goes to the launch's destination, then what is kept on this rank beside it."""
        return tuple(t for t in self.tensors if t.result)

    @property
    def made_rows(self) -> SymSize:
        """The row dim of the result: not always that of what arrives."""
        return self.results[0].shape[0].size

    @property
    def arriving(self) -> tuple[str, ...]:
        """Flags of the chunks of all gathered arguments, which have the same rows."""
        return flags_of(t for t in self.tensors if t.gathered)

    def arriving_in(self, turn: Turn) -> tuple[str, ...]:
        """The same of those that a loop reads."""
        return flags_of(t for t in self.tensors if t.parameter in turn.parameters)


def flags_of(tensors: Iterable[BodyTensor]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(t.arrived for t in tensors))


def written_by(launch: Launch) -> tuple[str, ...]:
    """The buffers and results that its tiles fill."""
    return (launch.destination.buffer, *(t.source for t in (launch.body.results[1:] if launch.body else ())))


def columns_of(launch: Launch, buffer: str) -> Extent:
    """Of one of them."""
    beside = launch.body.results[1:] if launch.body else ()
    return next((t.shape[-1] for t in beside if t.source == buffer), launch.cols)


def stagings(launch: Launch) -> tuple[Staging, ...]:
    """What a launch copies into buffers that ranks read or send from, before it begins."""
    first = (launch.staging,) if launch.staging else ()
    beside = launch.body or launch.ahead
    return (*first, *beside.also) if beside else first
