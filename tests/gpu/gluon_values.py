"""Kernels of specialised warps as Python (gluon_in_python.py), with tiles that hold values: boxes are copied between
memory and shared memory, products and sums are made, and results can be compared with what they should be, bit by bit.

Products are of f32, in whatever order torch takes: inputs are small whole numbers, of which every order gives the same.
Copies and products are done when they are issued, and layouts are nothing: it says nothing of waits for either, of
swizzles, of registers, or of what compiles. Memory that nobody has written holds NaN.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import torch

sys.path.insert(0, str(Path(__file__).parent))
from gluon_in_python import PATIENCE, Memory, Number, Rank, Shared, nothing, run_all
from modules import warps_in_tiles

from chunkdsl.plan.tile_kernels import warp_tiles

OTHERS = ("open_call", "close_call", "stage_shard")  # kernels that compute nothing


class Tile(torch.Tensor):
    """Numbers of a tile, with Triton's words where they are not torch's."""

    type = nothing

    def split(self):
        return self[..., 0], self[..., 1]


class Box:
    """Shared memory of a ring, a slot of it, or a part of one."""

    layout = nothing

    def __init__(self, held):
        self.held, self.dtype = held, held.dtype

    def index(self, slot):
        return Box(self.held[slot])

    def slice(self, first, length, dim):
        return Box(self.held.narrow(dim, first, length))

    def permute(self, order):
        return Box(self.held.permute(order))

    def _reinterpret(self, dtype, shape, _):
        return Box(self.held.view(dtype).view(shape))

    def load(self, _):
        return self.held.clone().as_subclass(Tile)

    def store(self, tile):
        if tile.shape != self.held.shape or tile.dtype != self.dtype:
            raise ValueError(f"{tile.dtype} {list(tile.shape)} for {self.dtype} {list(self.held.shape)}")
        self.held.copy_(tile)


class Matrix:
    """A descriptor: of a matrix of rows some elements apart, taken in blocks, the first of which begins `at`."""

    def __init__(self, at, shape, strides, block_shape, layout=nothing):
        self.at, self.shape, self.pitch, self.layout = at, list(map(int, shape)), int(strides[0]), layout
        self.block_shape, self.block_type = list(block_shape), SimpleNamespace(shape=list(block_shape))

    def inside(self, place, box, memory):
        """What a box at a place has of the matrix: (in memory, in shared memory)."""
        flat = memory.around(int(self.at.address))
        if self.at.address % 16 or self.pitch * flat.element_size() % 16 or min(self.shape) < 1:
            raise ValueError(f"TMA knows no matrix of {self.shape}, {self.pitch} apart, at {self.at.address:x}")
        if list(box.held.shape) != self.block_shape:
            raise ValueError(f"boxes of {self.block_shape} for {list(box.held.shape)}")
        first, left = map(int, place)
        rows, cols = (min(b, n - p) for b, n, p in zip(self.block_shape, self.shape, (first, left), strict=True))
        if rows <= 0 or cols <= 0:
            return box.held[:0], box.held[:0]
        start = (int(self.at.address) - flat.data_ptr()) // flat.element_size() + first * self.pitch + left
        if start + (rows - 1) * self.pitch + cols > flat.numel():
            raise IndexError(f"{rows} rows of {cols} from {start} on lie beyond {flat.numel()} elements")
        return flat[start:].as_strided((rows, cols), (self.pitch, 1)), box.held[:rows, :cols]


class Values(Memory):
    """Memory with the tensors of numbers in it, beside its words."""

    REPLACED: ClassVar = {"fetch_rows": nothing}

    def __init__(self):
        super().__init__()
        self.tensors = {}

    def hold(self, tensor):
        if tensor.is_floating_point() and tensor.numel():
            self.tensors[tensor.data_ptr(), tensor.nbytes] = tensor.view(-1)

    def around(self, address):
        """All of the tensor in which an address lies."""
        found = [flat for (at, size), flat in self.tensors.items() if at <= address < at + size]
        if not found:
            raise IndexError(f"{address:x} is in no tensor")
        return max(found, key=torch.Tensor.nelement)

    def elements(self, at, mask):
        """(tensor, elements of it at the addresses that are asked for, which of them these are), or None for none."""
        live = torch.ones_like(at.address, dtype=torch.bool) if mask is None else mask.bool().expand(at.address.shape)
        wanted = at.address[live].as_subclass(torch.Tensor)
        if not wanted.numel():
            return None
        flat = self.around(int(wanted.min()))
        return flat, (wanted - flat.data_ptr()) // at.size, live.as_subclass(torch.Tensor)

    def load(self, at, mask=None, other=None, volatile=False):
        if not isinstance(at.address, torch.Tensor):
            return super().load(at, mask, other, volatile)
        found = self.elements(at, mask)
        if found is None:
            return torch.full(at.address.shape, other).as_subclass(Tile)
        flat, index, live = found
        made = torch.full(live.shape, 0.0 if other is None else other, dtype=flat.dtype)
        made[live] = flat[index]
        return made.as_subclass(Tile)

    def store(self, at, value, mask=None):
        if not isinstance(at.address, torch.Tensor):
            super().store(at, value, mask)
        elif found := self.elements(at, mask):
            flat, index, live = found
            flat[index] = value.as_subclass(torch.Tensor).expand(live.shape)[live]

    def load_box(self, matrix, place, full, box):
        there, here = matrix.inside(place, box, self)
        box.held.zero_()
        here.copy_(there)
        full.b.arrive(0, owing=-box.held.nbytes)

    def store_box(self, matrix, place, box):
        there, here = matrix.inside(place, box, self)
        there.copy_(here)

    def multiplied(self, a, b, acc, use_acc, is_async):
        made = (a.held.float() @ b.held.float()).as_subclass(Tile)
        return acc + made if use_acc else made

    def language(self):
        names = super().language()
        both = dict(
            load=self.load, store=self.store, allocate_shared_memory=shared, broadcast_to=torch.broadcast_to,
            zeros=lambda shape, dtype, *_: torch.zeros(shape, dtype=dtype).as_subclass(Tile),
            arange=lambda first, end, **_: torch.arange(int(first), int(end)).as_subclass(Tile),
            maximum=lambda a, b: a.clamp(min=b) if isinstance(a, torch.Tensor) else Number(max(a, b)),
            float32=torch.float32, bfloat16=torch.bfloat16, float16=torch.float16,
        )  # fmt: skip
        for space in (names["tl"], names["gl"]):
            vars(space).update(both)
        hopper = names["hopper"]
        hopper.mbarrier.expect = lambda at, size: at.b.arrive(owing=size)
        hopper.warpgroup_mma, hopper.warpgroup_mma_wait = self.multiplied, lambda num_outstanding, deps: deps[0]
        hopper.tma = SimpleNamespace(
            make_tensor_descriptor=lambda at, **named: Matrix(at, **named), store_wait=lambda _: None
        )
        return names | {"load_box": self.load_box, "store_box": self.store_box}

    def taken(self, value):
        if hasattr(value, "block_shape"):
            self.hold(value.base)
            return Matrix(super().taken(value.base), value.shape, value.strides, value.block_shape)
        if isinstance(value, torch.Tensor):
            self.hold(value)
        return super().taken(value)


def shared(dtype, shape, _):
    return Box(torch.full(shape, torch.nan, dtype=dtype)) if isinstance(dtype, torch.dtype) else Shared()


class Computing(Rank):
    """A rank whose launches that compute are kept, and whose copies are made: all before the kernels run."""

    def launch(self, kernel, programs, args, constants, *rest, **named):
        if args["active"] and kernel.__name__ not in OTHERS:
            self.kept.append((kernel.__name__, programs, args, constants))

    def copy(self, destination, source, nbytes, lane, label=""):
        if nbytes == 4:  # a word that tells of a chunk
            self.memory.words[destination] = self.memory.epoch
        else:
            ctypes.memmove(destination, source, nbytes)


def results_of(cls, text, name, dims, calls, inputs, programs=2):
    """The results of all ranks in `calls` of an op one after the other, each given as the columns of the tiles that a
    rank's product takes. `cls`: the class of the module that was built; `text`: the module whose kernels run; `inputs`:
    by rank, of local shards."""
    cls.warps = warp_tiles().triton[0]
    world, board, memory, found = len(inputs), {}, Values(), []
    kernels = memory.kernels(text)
    machines = [Computing(board, rank, world, programs) for rank in range(world)]
    ops = [getattr(cls(machine=machine, timeout=PATIENCE, **dims), name) for machine in machines]
    held = [each for every in board.values() for each in every if each.is_floating_point()]
    for memory.epoch, columns in enumerate(calls, 1):
        for each in held:
            memory.hold(each.fill_(torch.nan))
        for machine, op, given, across in zip(machines, ops, inputs, columns, strict=True):
            warps_in_tiles(cls, across)
            machine.memory, machine.kept = memory, []
            ((dtype, shape),) = op.RESULTS.values()
            found.append(torch.full(op.local_shape(shape, dims), torch.nan, dtype=dtype))
            op.run(True, 1, dims, *given, found[-1])
            memory.words[op.state.local.data_ptr()] = memory.epoch
        for beside in zip(*(machine.kept for machine in machines), strict=True):
            run_all([body for kernel, *rest in beside for body in memory.launches(kernels[kernel], *rest)])
    return found
