"""all_to_all: what its staging, moves and tiles read and write. Boxes and origins have rows and columns of their own.

Onto rows, rank r gathers in its buffer the rows of shard r, the columns of rank q from q * C on; onto columns, the
columns of shard r, the rows of rank q from q * stride on. The word (q, chunk) of `arrived` says that the rows of a
chunk have come from rank q.
"""

from __future__ import annotations

from chunkdsl.ir.types import evaluate
from chunkdsl.plan.geometry import local_size, nominal_size
from chunkdsl.plan.plan import Access, Act, Region
from chunkdsl.plan.schedule import Deal, Moves
from chunkdsl.plan.unroll_frame import Frame


class Blocks:
    """Where the blocks of one deal lie in this call. A block is what rank `giver` has for rank `taker`.

    shard   whose row shard it is
    width   columns of the taker's buffer that it fills
    """

    def __init__(self, f: Frame, deal: Deal) -> None:
        self.f, self.onto_rows = f, deal.onto == "rows"
        self.each = nominal_size(deal.cols, f.dims, f.world)
        self.widths = [local_size(deal.cols, f.dims, f.world, q) for q in range(f.world)]
        self.all = evaluate(deal.cols.size, f.dims)

    def shard(self, giver: int, taker: int) -> int:
        return taker if self.onto_rows else giver

    def width(self, giver: int, taker: int) -> int:
        return self.widths[giver if self.onto_rows else taker]

    def origin(self, giver: int, taker: int, first: int) -> tuple[int, int]:
        """Row and column in the whole tensor of row `first` of a block."""
        column = giver if self.onto_rows else taker
        return self.shard(giver, taker) * self.f.geometry.shard + first, column * self.each

    def place(self, buffer: str, giver: int, taker: int, first: int, end: int) -> Region:
        """Rows first..end of a block in the buffer of its taker."""
        row = 0 if self.onto_rows else giver * self.f.geometry.stride
        left = giver * self.each if self.onto_rows else 0
        columns = left, left + self.width(giver, taker)
        return Region(buffer, taker, self.f.slot, row + first, row + end, *columns)

    def source(self, buffer: str, giver: int, taker: int, first: int, end: int, slot: int) -> Region:
        """The same rows where the giver has them."""
        row = taker * self.f.geometry.shard if self.onto_rows else 0
        left = 0 if self.onto_rows else taker * self.each
        columns = left, left + self.width(giver, taker)
        return Region(buffer, giver, slot, row + first, row + end, *columns)


def carry(f: Frame, b: Blocks, m: Moves, giver: int, taker: int, first: int, end: int) -> tuple[Access, ...]:
    """What moving rows first..end of a block does: from the giver's staged operand (pull), or from the operand itself.
    Parameters of the op are not in the plan, so what a push makes of them is named at its target."""
    to = b.place(m.buffer, giver, taker, first, end)
    if to.empty:
        return ()
    if m.side == "pull":
        return (Access(Act.COPY, to, b.source(m.source, giver, taker, first, end, f.slot)),)
    return put(f, b, m.source, giver, taker, first, end, to)


def put(f: Frame, b: Blocks, source: str, giver: int, taker: int, first: int, end: int, to: Region) -> tuple:
    """The same of the operand itself, to any place."""
    made = Access(Act.PUT, to, None, source, 1, b.origin(giver, taker, first))
    return (*_held(f, b, source, giver, taker, first, end), made)


def held_slot(f: Frame, buffer: str) -> int:
    """The copy of a buffer that this call uses: of memory that no other rank sees there is one."""
    return f.slot if f.kinds[buffer] == "symmetric" else 0


def _held(f: Frame, b: Blocks, source: str, giver: int, taker: int, first: int, end: int) -> list[Access]:
    """Reads of an operand that an earlier launch of this call has made."""
    if source not in f.kinds:
        return []
    at = b.source(source, giver, taker, first, end, 0)
    found = f.reads_local(source, giver, at.row0, at.row1)
    return [
        Access(a.act, at, None, a.what, a.mask, (a.origin[0], a.origin[1] + at.col0)) for a in found if not at.empty
    ]


def stage(f: Frame, rank: int) -> tuple[Access, ...]:
    """The rank's own block goes to its place, and, if others read them, all blocks to the staged copy."""
    s = f.launch.staging
    b = Blocks(f, s.deal)
    rows = range(f.heights[rank])
    to = b.place(s.buffer, rank, rank, 0, len(rows))
    accesses: list[Access] = []
    if not to.empty:
        accesses += _held(f, b, s.source, rank, rank, 0, len(rows))
        accesses.append(Access(Act.PUT, to, None, s.source, 1, b.origin(rank, rank, 0)))
    if s.sent:
        whole = f.geometry.rows if b.onto_rows else f.heights[rank]
        cols = b.widths[rank] if b.onto_rows else b.all
        copy = Region(s.sent, rank, f.slot, 0, whole, 0, cols)
        if not copy.empty:
            if s.source in f.kinds:
                accesses += f.reads_local(s.source, rank, 0, whole)
            origin = (0, rank * b.each) if b.onto_rows else (rank * f.geometry.shard, 0)
            accesses.append(Access(Act.PUT, copy, None, s.source, 1, origin))
    return tuple(accesses)


def arrived(f: Frame, buffer: str, deal: Deal, rank: int, owner: int, first: int, live: int) -> list[Access]:
    """What a tile reads of a dealt value: rows first..live of a shard, all columns that the rank has."""
    b, g = Blocks(f, deal), f.geometry
    row, cols = (0, b.all) if b.onto_rows else (owner * g.stride, b.widths[rank])
    region = Region(buffer, rank, f.slot, row + first, row + live, 0, cols)
    what, mask = f.contents.gathered(buffer)
    origin = owner * g.shard + first, 0 if b.onto_rows else rank * b.each
    return [] if region.empty else [Access(Act.NEED, region, None, what, mask, origin)]


def dealt(f: Frame, rank: int, taker: int, first: int, live: int) -> list[Access]:
    """What a tile stores for a peer: rows first..live of the block that this rank has for it, at the peer or, to be
    carried on, here."""
    d = f.launch.destination
    b = Blocks(f, d.deal)
    if d.kind == "hand_over" and taker != rank:
        to = b.source(d.buffer, rank, taker, first, live, held_slot(f, d.buffer))
    else:
        to = b.place(d.stage or d.buffer, rank, taker, first, live)
    return [] if to.empty else [Access(Act.PUT, to, None, f.launch.name, 1, b.origin(rank, taker, first))]
