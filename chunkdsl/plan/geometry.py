"""Numbers of one launch at one world size and one binding of the run-time dims: shards, strides, chunks, row blocks.

The emitted wrapper and kernels compute the same in their own words; conformance holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from chunkdsl.ir.layouts import CONTIGUOUS, Layout, Run
from chunkdsl.ir.meshes import inner_of, of_rank
from chunkdsl.ir.policy import ChunkCount, ChunkSize
from chunkdsl.ir.types import SymSize, evaluate, shard_first, shard_rows
from chunkdsl.plan.schedule import Extent, Launch


def local_size(extent: Extent, dims: Mapping[str, int], world: int, rank: int, over: tuple[str, ...] = ()) -> int:
    """Elements of an extent that `rank` holds. `over`: the axes of an op on a mesh of two."""
    size = evaluate(extent.size, of_rank(over, dims, rank))
    if extent.sharded and extent.layout != CONTIGUOUS:
        return extent.layout.held(size, world, rank)
    return shard_rows(size, world, rank, inner_of(over, dims)) if extent.sharded else size


def nominal_size(extent: Extent, dims: Mapping[str, int], world: int) -> int:
    """The same for the rank that holds most: columns of a buffer, equal on every rank."""
    size = evaluate(extent.size, dims)
    return extent.layout.shard(size, world) if extent.sharded else size


def rows_apart(n: Launch) -> bool:
    """Do the rows of a tile lie apart in the left operand of its products? They are then read by pointers."""
    return n.layout != CONTIGUOUS and n.space == "all" and n.a is not None and n.a.layout == "plain"


@dataclass(frozen=True)
class Geometry:
    """`rows` elements cut into `groups` shards of at most `shard` rows, kept every `stride` rows. Two axes cut one
    after the other: the outer one into `groups` / `inner` parts, the inner one each part into `inner` shards. `layout`
    says which rows a shard has, where one axis cuts."""

    rows: int
    groups: int
    shard: int
    stride: int
    inner: int = 1
    layout: Layout = CONTIGUOUS

    @staticmethod
    def of(
        rows: SymSize, whole: bool, pad: int, dims: Mapping[str, int], world: int, inner: int = 1,
        layout: Layout = CONTIGUOUS,
    ) -> Geometry:  # fmt: skip
        n = evaluate(rows, dims)
        groups, layout = (1, CONTIGUOUS) if whole else (world, layout)
        shard = max(1, layout.shard(n, groups))
        return Geometry(n, groups, shard, -(-shard // pad) * pad, 1 if whole else inner, layout)

    def height(self, owner: int) -> int:
        """Rows that shard `owner` really has: 0 for an empty one."""
        if self.inner > 1:
            return shard_rows(self.rows, self.groups, owner, self.inner)
        return self.layout.held(self.rows, self.groups, owner)

    def runs(self, owner: int, first: int, end: int) -> Iterator[Run]:
        """Rows first..end of shard `owner` as runs that are contiguous in the tensor: (row in the shard, row of the
        tensor, rows), each at least one row."""
        if self.inner > 1:
            if first < end:
                yield first, shard_first(self.rows, self.groups, owner, self.inner) + first, end - first
        else:
            yield from self.layout.runs(self.rows, self.groups, owner, first, end)

    def chunk(self, chunk: ChunkSize) -> int:
        """Rows of a chunk."""
        return -(-self.shard // chunk.count) if isinstance(chunk, ChunkCount) else min(chunk.count, self.shard)

    def chunks(self, chunk: ChunkSize) -> int:
        """Chunks of every shard, empty ones included."""
        return -(-self.shard // self.chunk(chunk))

    def chunk_cap(self, chunk: ChunkSize) -> int:
        """Flag words for a shard when this is the geometry of the bounds."""
        return chunk.count if isinstance(chunk, ChunkCount) else -(-self.shard // chunk.count)

    def calls(self, chunk: ChunkSize | None, arrives: bool) -> Iterator[tuple[int, int, tuple, tuple]]:
        """What `blocks` says of a product that the library computes: a call for each chunk, or one for all rows."""
        if chunk is None:
            yield 0, self.shard, (), ()
            return
        size = self.chunk(chunk)
        for c in range(self.chunks(chunk)):
            waits, signals = ((c,), ()) if arrives else ((), (c,))
            yield c * size, min((c + 1) * size, self.shard), waits, signals

    def covering(self, first: int, last: int, chunk: ChunkSize) -> range:
        """Chunks that hold nominal rows first..last (inclusive)."""
        n = self.chunk(chunk)
        return range(first // n, last // n + 1)

    def bands(self, launch: Launch) -> Iterator[range]:
        """Rows of every shard that an interleaved launch computes before the next ones: whole row blocks, as many as
        fit a chunk; the last band has all that are left (runtime/bands.py)."""
        bm = launch.tiling.bm
        together = max(1, self.chunk(launch.out_chunk) // bm)
        count = max(1, -(-self.shard // bm) // together)
        for i in range(count):
            yield range(i * together * bm, self.shard if i == count - 1 else (i + 1) * together * bm)

    def blocks(self, launch: Launch) -> Iterator[tuple[int, int, tuple[int, ...], tuple[int, ...]]]:
        """Runs of row blocks with the same chunks: (first row, last row + 1, chunks awaited, chunks signalled).

        Tiles of such a run have equal waits and signals, so one task stands for all of them.
        """
        if launch.library:
            yield from self.calls(launch.chunk or launch.out_chunk, launch.chunk_flags is not None)
            return
        bm = launch.tiling.bm
        run: list | None = None
        for row in range(0, self.shard, bm):
            last = min(row + bm, self.shard) - 1
            waits = tuple(self.covering(row, last, launch.chunk)) if launch.chunk_flags else ()
            signals = tuple(self.covering(row, last, launch.out_chunk)) if launch.out_chunk else ()
            if run and run[2:] == [waits, signals]:
                run[1] = last + 1
            else:
                if run:
                    yield tuple(run)
                run = [row, last + 1, waits, signals]
        if run:
            yield tuple(run)
