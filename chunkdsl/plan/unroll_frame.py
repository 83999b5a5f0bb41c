"""One launch in one call: the numbers that its tasks on all ranks share, each worked out once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from chunkdsl.ir.meshes import grid_of, inner_of
from chunkdsl.plan.body import columns_of, written_by
from chunkdsl.plan.geometry import Geometry, local_size, nominal_size
from chunkdsl.plan.plan import Access, Act, Region
from chunkdsl.plan.schedule import Launch, OpSchedule
from chunkdsl.plan.unroll_book import Book
from chunkdsl.plan.unroll_contents import Contents
from chunkdsl.plan.within import sum_within


class Frame:
    """heights   rows that each shard really has
    blocks    runs of row blocks with equal chunks (Geometry.blocks)
    cols      columns of the launch's value on each rank
    inner     ranks of the inner axis, where the op communicates over two; `grid`: both sizes, for its routes
    widths    columns of each buffer in this call
    slot      copy of the symmetric buffers that this call uses: the first epoch is 1
    gather    the moves whose arrivals the tiles wait for, if they wait for any
    handed    the moves of an earlier launch that bring what the tiles wait for: blocks that its tiles handed over
    deals     the all_to_all that fills a buffer, for each such buffer
    total     the frame of the sum that the own tiles make
    """

    def __init__(
        self, op: OpSchedule, world: int, launch: Launch, call: int, dims: Mapping[str, int],
        book: Book, contents: Contents,
    ) -> None:  # fmt: skip
        self.op, self.world, self.launch, self.call, self.dims = op, world, launch, call, dims
        self.book, self.contents = book, contents
        self.inner = inner_of(op.over, dims)
        self.grid = grid_of(world, tuple([dims[axis] for axis in op.over]))
        whole = launch.space == "whole"
        self.geometry = g = Geometry.of(launch.rows, whole, op.pad, dims, world, self.inner, launch.layout)
        self.heights = [g.height(owner) for owner in range(world)]
        self.blocks = list(g.blocks(launch))
        self.cols = [local_size(launch.cols, dims, world, rank, op.over) for rank in range(world)]
        self.kinds = {b.name: b.kind for b in op.buffers}
        self.widths = {b.name: nominal_size(b.cols, dims, world) for b in op.buffers}
        self.slot = (call + 1) % op.slots
        moves = [m for n in op.launches for m in n.moves]
        mine = [m for m in moves if m.arrived == launch.chunk_flags]
        self.gather = next((m for m in mine if not m.leaving), None)
        self.handed = next((m for m in mine if m.leaving and m.deal), None)
        found = [(m.buffer, m.deal) for m in moves if m.deal]
        found += [(n.destination.buffer, n.destination.deal) for n in op.launches if n.destination.kind == "deal"]
        self.deals = dict(found)
        summed = not launch.sums and launch.destination.kind != "local" and not launch.destination.deal
        self.sum_name = contents.sum_of(launch) if summed else ""
        self._local: dict[str, tuple] = {}
        within = sum_within(op, launch)
        self.total = within and Frame(op, world, within, call, dims, book, contents)

    def chunk(self, flags: str, owner: int, group: int, chunk: int, giver: int) -> int:
        """Number of the signal of chunk `chunk` of shard `group` on rank `owner` in this call."""
        return self.book.chunk(flags, owner, group, chunk, giver, self.call)

    def geometry_of(self, rows) -> Geometry:
        """Of another row dim, cut over all ranks."""
        return Geometry.of(rows, False, self.op.pad, self.dims, self.world)

    def local(self, extent, rank: int) -> int:
        """Elements of an extent on a rank."""
        return local_size(extent, self.dims, self.world, rank)

    def start(self, extent, rank: int) -> int:
        """The global row that a rank's shard begins with."""
        return rank * nominal_size(extent, self.dims, self.world) if extent.sharded else 0

    def held(self, source: str) -> Geometry:
        """How the rows of a tensor are cut that this rank has a shard of: as declared, or as the launch that makes it
        does; not as its reader takes it to be."""
        declared = [p.shape[0].layout for p in self.op.parameters if p.name == source]
        found = declared or [n.layout for n in self.op.launches if source in written_by(n)]
        return replace(self.geometry, layout=found[0])

    def reads_local(self, source: str, rank: int, low: int, high: int) -> list[Access]:
        """Rows low..high of a local buffer that an earlier launch of this call filled."""
        if source not in self._local:
            maker = self.contents.maker(source)
            own = maker.destination.layout == "own"
            rows = maker.body.made_rows if maker.body else maker.rows
            g = Geometry.of(rows, False, self.op.pad, self.dims, self.world, self.inner, maker.layout)
            over, ranks = self.op.over, range(self.world)
            wide = columns_of(maker, source)
            cols = [local_size(wide, self.dims, self.world, rank, over) for rank in ranks]
            self._local[source] = *self.contents.of(maker, source), g if own else None, cols
        what, mask, g, cols = self._local[source]
        if not cols[rank] or low >= high:
            return []
        runs = g.runs(rank, low, high) if g else ((low, low, high - low),)
        boxes = [(Region(source, rank, 0, at, at + rows, 0, cols[rank]), origin) for at, origin, rows in runs]
        return [Access(Act.NEED, box, None, what, mask, (origin, 0)) for box, origin in boxes]
