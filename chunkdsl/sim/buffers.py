"""The memory that simulated ranks may touch: each buffer with its owner, shape and who may reach it.

Every access is looked up here by address. Buffers keep their tensors alive, so an address never names two of them.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np
import torch

from chunkdsl.sim.boxes import Cells
from chunkdsl.sim.faults import OutOfBounds, PrivateMemory
from chunkdsl.sim.log import Box, Place

ALIGNMENT = 256
GUARD = 1 << 16  # least number of bytes around an allocation that belong to nobody, so that a wrong index is seen


@dataclass(eq=False)
class Buffer:
    """`kind`: symmetric, device, pinned, result or argument. `ranks` None: every rank may touch it."""

    name: str
    owner: int
    kind: str
    tensor: torch.Tensor
    ranks: set[int] | None
    base: int = 0
    nbytes: int = 0
    pitch: int = 0
    rows: int = 0
    itemsize: int = 0
    slot_rows: int = 0
    bytes: np.ndarray = field(init=False, repr=False)
    shadow: object = None
    words: dict = field(default_factory=dict)
    polled: bool = False

    def __post_init__(self) -> None:
        t = self.tensor
        self.itemsize = t.element_size()
        self.base = t.data_ptr()
        order = sorted(zip(t.stride(), t.shape, strict=True), reverse=True)
        span = sum(stride * (size - 1) for stride, size in order) + 1 if t.numel() else 0
        self.nbytes = span * self.itemsize
        unit = bool(order) and order[-1][0] == 1
        self.pitch = order[-2][0] * self.itemsize if len(order) > 1 and unit else self.nbytes
        self.pitch = max(self.pitch or self.nbytes, self.itemsize)
        self.rows = -(-self.nbytes // self.pitch)
        self.slot_rows = order[-2][1] if len(order) > 2 else max(self.rows, 1)
        self.bytes = np.frombuffer((ctypes.c_uint8 * max(self.nbytes, 1)).from_address(self.base or 1), np.uint8)
        self.bytes = self.bytes[: self.nbytes]

    @property
    def end(self) -> int:
        return self.base + self.nbytes

    @property
    def place(self) -> Place:
        return Place(self.name, self.owner)

    def __str__(self) -> str:
        return f"{self.name} of rank {self.owner}"

    def describe(self, boxes: list[Cells]) -> str:
        """`rows 0:4, columns 8:16 of x of rank 1`, for messages."""
        box = self.in_elements(boxes[:1])[0]
        slot = f"slot {box.slot}, " if self.slot_rows < self.rows else ""
        rows = f"rows {box.row0}:{box.row1}, " if self.rows > 1 else ""
        more = f" and {len(boxes) - 1} more pieces" if len(boxes) > 1 else ""
        return f"{self}, {slot}{rows}columns {box.col0}:{box.col1}{more}"

    def in_elements(self, boxes: list[Cells]) -> tuple[Box, ...]:
        """Byte boxes as boxes of elements, cut at the edges of slots."""
        out = []
        for row0, row1, col0, col1 in boxes:
            while row0 < row1:
                slot, row = divmod(row0, self.slot_rows)
                height = min(row1 - row0, self.slot_rows - row)
                out.append(Box(slot, row, row + height, col0 // self.itemsize, -(-col1 // self.itemsize)))
                row0 += height
        return tuple(out)

    def word(self, offset: int, itemsize: int, kind: str = "i"):
        """The integer (`kind` i) or float (f) at a byte offset."""
        return self.bytes[offset : offset + itemsize].view(f"{kind}{itemsize}")[0].item()


def allocate(shape, dtype: torch.dtype, fill: int) -> torch.Tensor:
    """A tensor with every byte `fill`, aligned to 256 bytes, between guard zones of at least its own size."""
    count = 1
    for size in shape:
        count *= size
    nbytes = count * dtype.itemsize
    guard = max(GUARD, nbytes)
    raw = torch.empty(nbytes + 2 * guard + ALIGNMENT, dtype=torch.uint8)  # the guards are never touched
    start = guard + -(raw.data_ptr() + guard) % ALIGNMENT
    return raw[start : start + nbytes].fill_(fill).view(dtype).view(tuple(shape))


class AddressSpace:
    """All buffers, found by address."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._buffers: list[Buffer] = []
        self._edges = np.zeros((2, 0), np.uint64)

    def add(self, name: str, owner: int, kind: str, tensor: torch.Tensor, ranks: set[int] | None) -> Buffer:
        buffer = Buffer(name, owner, kind, tensor, ranks)
        if not buffer.nbytes:
            return buffer
        at = bisect_right(self._bases, buffer.base)
        self._bases.insert(at, buffer.base)
        self._buffers.insert(at, buffer)
        self._edges = np.array([[b.base for b in self._buffers], [b.end for b in self._buffers]], np.uint64)
        return buffer

    def adopt(self, name: str, rank: int, tensor: torch.Tensor) -> None:
        """Make a tensor that the host hands to a kernel known, unless it lies in a known buffer."""
        probe = Buffer(name, rank, "argument", tensor, {rank})
        if not probe.nbytes:
            return
        touching = [b for b in self._buffers if b.base < probe.end and probe.base < b.end]
        if len(touching) == 1 and touching[0].base <= probe.base and probe.end <= touching[0].end:
            if touching[0].kind == "argument":
                touching[0].ranks.add(rank)
            return
        if any(b.kind != "argument" for b in touching):
            raise OutOfBounds(f"argument {name} of rank {rank} reaches beyond {touching[0]}", rank)
        # Two views of one storage: known from now on as the storage.
        ranks = {rank}.union(*(b.ranks for b in touching))
        for old in touching:
            at = self._buffers.index(old)
            del self._buffers[at], self._bases[at]
        whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage()) if touching else tensor
        self.add(touching[0].name if touching else name, rank, "argument", whole, ranks)

    def find(self, address: int) -> Buffer | None:
        at = bisect_right(self._bases, address) - 1
        if at >= 0 and address < self._buffers[at].end:
            return self._buffers[at]
        return None

    def span(self, address: int, nbytes: int, rank: int, who: str) -> tuple[Buffer, int]:
        """(buffer, byte offset) of a contiguous range, which must lie in one buffer that `rank` may touch."""
        buffer = self.find(address)
        if buffer is None or address + nbytes > buffer.end:
            raise OutOfBounds(
                f"{who}: {nbytes} bytes at {self._near(address)} lie in no buffer that the machine made, "
                "was told of (adopt) or saw as an argument",
                rank,
            )
        self._allowed(buffer, rank, who)
        return buffer, address - buffer.base

    def locate(
        self, addresses: np.ndarray, mask: np.ndarray, itemsize: int, rank: int, who: str
    ) -> list[tuple[Buffer, np.ndarray, np.ndarray]]:
        """(buffer, byte offsets, mask) for each buffer that the masked elements lie in.

        Raises OutOfBounds or PrivateMemory."""
        chosen = addresses if mask.all() else addresses[mask]
        if chosen.size == 0:
            return []
        low, high = int(chosen.min()), int(chosen.max())
        buffer = self.find(low)
        if buffer is not None and high + itemsize <= buffer.end:
            self._allowed(buffer, rank, who)
            return [(buffer, (addresses - np.uint64(buffer.base)).astype(np.int64), mask)]
        at = np.searchsorted(self._edges[0], addresses, side="right").astype(np.int64) - 1
        inside = (at >= 0) & (addresses + np.uint64(itemsize) <= self._edges[1][np.maximum(at, 0)])
        bad = mask & ~inside
        if bad.any():
            first = int(addresses[bad].flat[0])
            raise OutOfBounds(f"{who}: {int(bad.sum())} elements lie in no buffer, first {self._near(first)}", rank)
        found = [(self._buffers[i], mask & (at == i)) for i in np.unique(at[mask]).tolist()]
        names = {b.name for b, _ in found}
        if len(names) > 1:
            raise OutOfBounds(f"{who}: one access runs over the buffers {', '.join(sorted(names))}", rank)
        for buffer, _ in found:
            self._allowed(buffer, rank, who)
        return [(b, (addresses - np.uint64(b.base)).astype(np.int64), part) for b, part in found]

    def _allowed(self, buffer: Buffer, rank: int, who: str) -> None:
        if buffer.ranks is not None and rank not in buffer.ranks:
            raise PrivateMemory(f"{who}: touches {buffer}, which is not symmetric memory", rank)

    def _near(self, address: int) -> str:
        """Where a bad address is, relative to the buffer before or after it."""
        at = bisect_right(self._bases, address) - 1
        before = self._buffers[at] if at >= 0 else None
        after = self._buffers[at + 1] if at + 1 < len(self._buffers) else None
        if before and (after is None or address - before.end <= after.base - address):
            return f"{address - before.end} bytes after the end of {before}"
        return f"{after.base - address} bytes before {after}" if after else f"address {address:#x}"
