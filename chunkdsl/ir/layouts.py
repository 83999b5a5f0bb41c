"""How a dimension is cut into the shards of the ranks of one mesh axis: which element is where.

A layout answers for any number of elements (0 too) and ranks, and is the one place where this is defined:

    shard(size, world)                  elements of a nominal shard: no rank holds more, buffers and chunks go by it
    held(size, world, rank)             elements that a rank really holds
    element(size, world, rank, local)   the global index of a rank's element `local`
    place(size, world, element)         (rank, local) of a global index: the inverse of `element`
    runs(size, world, rank, first, end) the rank's elements first..end as runs that are contiguous in the whole:
                                        (first local index, first global index, length), in local order

Every layout keeps a rank's elements in ascending order and without holes: it holds local indices 0..held.

    Contiguous     shard r is elements [r * S, (r + 1) * S), S = ceil(size / world), as DTensor cuts
    Zigzag         2 * world blocks of B = ceil(size / (2 * world)); rank r holds blocks r and 2 * world - 1 - r
    Cyclic(b)      blocks of b, dealt in turn: block j is on rank j mod world

The last blocks may be short or empty, as the last shards of a contiguous dimension are. Zigzag balances causal
attention over a sequence: rank r has an early part and the late one that mirrors it, as implementations of ring
attention shard it. Cyclic is ScaLAPACK's block-cyclic distribution of one dimension (Dongarra and Walker, 1995).

Not here: two mesh axes that cut one dimension (`types.shard_rows` with `inner`), which are contiguous only.
"""

from __future__ import annotations

from collections.abc import Iterator

from chunkdsl.record import record

Run = tuple[int, int, int]


@record
class Contiguous:
    """S elements behind each other."""

    def shard(self, size: int, world: int) -> int:
        return -(-size // world)

    def held(self, size: int, world: int, rank: int) -> int:
        each = self.shard(size, world)
        return max(0, min(size, (rank + 1) * each) - rank * each)

    def element(self, size: int, world: int, rank: int, local: int) -> int:
        return rank * self.shard(size, world) + local

    def place(self, size: int, world: int, element: int) -> tuple[int, int]:
        return divmod(element, self.shard(size, world))

    def runs(self, size: int, world: int, rank: int, first: int, end: int) -> Iterator[Run]:
        if first < end:
            yield first, self.element(size, world, rank, first), end - first

    def over(self, axis: str) -> str:
        """What stands behind the `@` of a type."""
        return axis

    def __str__(self) -> str:
        return "contiguous"


@record
class Zigzag:
    """An early block and the late one that mirrors it."""

    def half(self, size: int, world: int) -> int:
        """Elements of a block."""
        return -(-size // (2 * world))

    def shard(self, size: int, world: int) -> int:
        return 2 * self.half(size, world)

    def held(self, size: int, world: int, rank: int) -> int:
        half = self.half(size, world)
        return sum(max(0, min(half, size - block * half)) for block in (rank, 2 * world - 1 - rank))

    def element(self, size: int, world: int, rank: int, local: int) -> int:
        half = self.half(size, world)
        # The late block is empty where the early one is short: what is there stays without holes.
        return rank * half + local if local < half else (2 * world - 1 - rank) * half + local - half

    def place(self, size: int, world: int, element: int) -> tuple[int, int]:
        block, local = divmod(element, self.half(size, world))
        early = block < world
        return (block, local) if early else (2 * world - 1 - block, self.half(size, world) + local)

    def runs(self, size: int, world: int, rank: int, first: int, end: int) -> Iterator[Run]:
        half = self.half(size, world)
        for low, high in ((first, min(end, half)), (max(first, half), end)):
            if low < high:
                yield low, self.element(size, world, rank, low), high - low

    def over(self, axis: str) -> str:
        return f"zigzag({axis})"

    def __str__(self) -> str:
        return "zigzag"


@record
class Cyclic:
    """Blocks of `block` elements, dealt in turn."""

    block: int = 1

    def shard(self, size: int, world: int) -> int:
        return self.held(size, world, 0)  # the first rank holds most

    def held(self, size: int, world: int, rank: int) -> int:
        rounds, rest = divmod(size, self.block * world)
        return rounds * self.block + max(0, min(self.block, rest - rank * self.block))

    def element(self, size: int, world: int, rank: int, local: int) -> int:
        block, inside = divmod(local, self.block)
        return (block * world + rank) * self.block + inside

    def place(self, size: int, world: int, element: int) -> tuple[int, int]:
        block, inside = divmod(element, self.block)
        return block % world, block // world * self.block + inside

    def runs(self, size: int, world: int, rank: int, first: int, end: int) -> Iterator[Run]:
        while first < end:
            high = min(end, (first // self.block + 1) * self.block)
            yield first, self.element(size, world, rank, first), high - first
            first = high

    def over(self, axis: str) -> str:
        return f"cyclic({axis}, {self.block})"

    def __str__(self) -> str:
        return f"cyclic({self.block})"


Layout = Contiguous | Zigzag | Cyclic
CONTIGUOUS = Contiguous()
