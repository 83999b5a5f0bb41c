"""Zigzag and cyclic shards in a generated module: which row of the whole is which row of a shard. Copied into modules
that have such a layout.

A layout is ("zigzag",) or ("cyclic", block). Zigzag: 2 W blocks of ceil(size / 2 W), rank r holds blocks r and
2 W - 1 - r. Cyclic: blocks of `block`, block j is on rank j mod W. Both keep a shard ascending and without holes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from chunkdsl.runtime.arguments import cdiv
from chunkdsl.runtime.operation import Operation
from chunkdsl.runtime.placed import PlacementTable


@triton.jit
def zigzag_height(owner, rows, W: tl.constexpr):
    """Rows of a shard: what there is of an early block and of the late one that mirrors it."""
    half = tl.cdiv(rows, 2 * W)
    early = tl.maximum(tl.minimum(rows - owner * half, half), 0)
    return early + tl.maximum(tl.minimum(rows - (2 * W - 1 - owner) * half, half), 0)


@triton.jit
def zigzag_row(owner, local, rows, W: tl.constexpr):
    """The row of the whole that is row `local` of a shard."""
    half = tl.cdiv(rows, 2 * W)
    return tl.where(local < half, owner * half, (2 * W - 2 - owner) * half) + local


@triton.jit
def cyclic_height(owner, rows, BLOCK: tl.constexpr, W: tl.constexpr):
    """Rows of a shard: a block of every whole round, and what there is of the last one."""
    rest = rows % (BLOCK * W)
    return rows // (BLOCK * W) * BLOCK + tl.maximum(tl.minimum(rest - owner * BLOCK, BLOCK), 0)


@triton.jit
def cyclic_row(owner, local, BLOCK: tl.constexpr, W: tl.constexpr):
    """The row of the whole that is row `local` of a shard."""
    return (local // BLOCK * W + owner) * BLOCK + local % BLOCK


def layout_held(size, world, rank, layout):
    """Elements that a rank holds."""
    if layout[0] == "zigzag":
        half = cdiv(size, 2 * world)
        return sum(max(0, min(half, size - block * half)) for block in (rank, 2 * world - 1 - rank))
    block = layout[1]
    return size // (block * world) * block + max(0, min(block, size % (block * world) - rank * block))


def layout_shard(size, world, layout):
    """Elements of a nominal shard: no rank holds more."""
    return 2 * cdiv(size, 2 * world) if layout[0] == "zigzag" else layout_held(size, world, 0, layout)


def layout_places(size, world, layout, device):
    """For each element of the whole its place among shards of nominal size, one behind the other."""
    at = torch.arange(size, device=device)
    if layout[0] == "zigzag":
        half = max(1, cdiv(size, 2 * world))
        block = at // half
        rank, local = torch.minimum(block, 2 * world - 1 - block), at % half + half * (block >= world)
    else:
        block = at // layout[1]
        rank, local = block % world, block // world * layout[1] + at % layout[1]
    return rank * layout_shard(size, world, layout) + local


def in_order(shards, size, layout):
    """The whole of its padded shards [world, each, n], in the global order."""
    return shards.flatten(0, 1)[layout_places(size, len(shards), layout, shards.device)]


def dealt_out(whole, world, layout):
    """The shards of a tensor behind each other, padded to equal rows: [world * each, n]."""
    size = whole.shape[0]
    shards = whole.new_zeros((world * layout_shard(size, world, layout), *whole.shape[1:]))
    shards[layout_places(size, world, layout, whole.device)] = whole
    return shards


class LayoutShard:
    """The placement of a dimension in a layout that DTensor does not have; equal to none of DTensor's."""

    def __init__(self, said):
        self.said = said
        dim, self.layout = said[6:-1].split(", ")
        self.dim = int(dim)

    def __repr__(self):
        return self.said

    def __eq__(self, other):
        return isinstance(other, LayoutShard) and self.said == other.said

    def __hash__(self):
        return hash(self.said)

    def positions(self, size, world, rank):
        """The global index of each element that a rank holds of `size`, ascending: position ids of its tokens, and
        `whole.index_select(dim, positions)` is its shard. int64, on the CPU."""
        kind, _, block = self.layout.rstrip(")").partition("(")
        layout = (kind, int(block)) if block else (kind,)
        places = layout_places(size, world, layout, "cpu")
        return (places // max(1, layout_shard(size, world, layout)) == rank).nonzero().flatten()

    def is_shard(self, dim=None):
        return dim is None or dim == self.dim

    def is_partial(self):
        return False

    def is_replicate(self):
        return False


class LayoutTable(PlacementTable):
    """Placements by a tensor's name: DTensor's, and `LayoutShard` for those that DTensor does not have."""

    def __getitem__(self, name):
        said = self.said[name]
        known = PlacementTable({name: [p for p in said if ", " not in p]})[name]
        rest = iter(known)
        return tuple(LayoutShard(p) if ", " in p else next(rest) for p in said)


class LayoutOperation(Operation):
    """An op with zigzag or cyclic shards: its tables have a layout in place of True."""

    def placed(self, call, tensors, given, out=None):
        names = dict.fromkeys((*self.PARAMETERS, *self.RESULTS))
        odd = [n for n in names if any(isinstance(p, LayoutShard) for p in self.placements[n])]
        if odd:
            names = ", ".join(odd)
            raise ValueError(f"{self.NAME}: no DTensor has the layout of {names}: pass local tensors")
        return super().placed(call, tensors, given, out)

    def part(self, n, sharded, rank):
        if isinstance(sharded, tuple):
            return layout_held(n, self.world, rank, sharded)
        return super().part(n, sharded, rank)

    def nominal(self, n, sharded):
        return layout_shard(n, self.world, sharded) if isinstance(sharded, tuple) else super().nominal(n, sharded)

    def pointer_tiling(self, constants):
        """The tile of a launch whose left operand is read by pointers on every target."""
        return constants | {"BN": constants["NARROW_BN"]}
