"""Host side of one op of a generated module: sizes, memory, launches, the call itself. Copied into the module.

A generated class derives from `Operation` and supplies tables (PARAMETERS, RESULTS, SITES ...) and three methods:
`memory` (what to allocate), `run` (the launches, fused or exact) and `plain` (the library's way).
"""

from __future__ import annotations

import ctypes
import math

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from chunkdsl.runtime.apart import keep_apart
from chunkdsl.runtime.arguments import cdiv, shard_rows, whole_sizes
from chunkdsl.runtime.calls import Calls
from chunkdsl.runtime.device import close_call, open_call, stage_shard
from chunkdsl.runtime.dispatch import unobserved, updating
from chunkdsl.runtime.gated import GatedCalls
from chunkdsl.runtime.gradients import Call, by_fallback, transformed
from chunkdsl.runtime.layer import refuse_placed
from chunkdsl.runtime.live import Live, OfProcess
from chunkdsl.runtime.placed import PlacedCalls, any_placed
from chunkdsl.runtime.replay import Replays


def round_up(a, b):
    return cdiv(a, b) * b


def padded(columns, multiple):
    """Columns of a buffer whose rows are whole multiples of 16 bytes."""
    return round_up(max(1, columns), multiple)


def stride_of(rows, ranks, pad):
    """Rows between the shards of a communication buffer."""
    return round_up(max(1, cdiv(rows, ranks)), pad)


def parted(whole, world, inner=1):
    """The shards of a tensor behind each other, padded to equal rows: [world * each, n]."""
    rows, row = whole.shape[0], 0
    if rows % world == 0:
        return whole
    each = cdiv(rows, world)
    padded = whole.new_zeros((world * each, *whole.shape[1:]))
    for rank in range(world):
        height = shard_rows(rows, world, rank, inner)
        padded[rank * each : rank * each + height] = whole[row : row + height]
        row += height
    return padded


def pitch_of(tensor):
    """Row pitch in units of 16 bytes. Rows are contiguous: the wrapper made them so."""
    return tensor.shape[-1] * tensor.element_size() // 16


class Operation(Calls, GatedCalls, PlacedCalls, Replays, OfProcess):
    """One op on one instance of the module. Called on local shards; see the module's docstring."""

    NAME, PARAMETERS, RESULTS, RANGES, SITES = "", {}, {}, {}, ()
    MATRICES, GATHERED, STAYS, STAGE_BLOCK, INOUT = (), {}, (), (32, 256), ()
    FORWARD, BACKWARD = "", ()
    SLOTS, CLOSING, PAD = 1, False, 1
    HOST_WORD, LANES, OVER, TABLES = False, (), (), {}
    by_warps, WARP_COLUMNS = 0, ()  # a warm-up's: columns of the tiles of specialised warps, of all that there are

    def __init__(self, module):
        self.module, self.machine = module, module.ranks.machine_of(self.OVER)
        self.inner, self.here = module.ranks.inner_of(self.OVER), module.ranks.here
        self.world, self.rank = self.machine.world, self.machine.rank
        self.set_gates(module.ranks)
        self.tapes, self.places, self.number = {}, (), Live.add(self)
        self.why_not = module.why_not or self._alignment(module.bounds) or self.broken_block()
        self.meets = module.check_calls or self.machine.target == "cpu"
        if self.why_not is None:
            m, name = self.machine, self.NAME
            self.state = m.symmetric(f"{name}_state", (16,), torch.int32)
            self.record = m.pinned(f"{name}_record", (8,), torch.int32)
            self.verdict = ctypes.c_int32.from_address(self.record.data_ptr())  # its first word, read at every call
            self.word = m.pinned(f"{name}_word", (1,), torch.int32)
            self.opening = m.zeros(f"{name}_opening", (8,), torch.int32)
            self.closed = m.symmetric(f"{name}_closed", (self.world,), torch.int32) if self.CLOSING else None
            self.nothing = m.zeros(f"{name}_nothing", (256, 256), torch.float32)
            if module.check_calls:
                self.shapes = m.symmetric(f"{name}_shapes", (2 * self.world,), torch.int32)
                self.agreed_words = m.symmetric(f"{name}_agreed", (self.world,), torch.int32)
            for lane in self.LANES:
                m.open_lane(lane)
            for label, kind, shape, dtype in self.memory(module.bounds, self.world):
                setattr(self, f"_{label}", (m.symmetric if kind == "symmetric" else m.zeros)(label, shape, dtype))
            for label, tables in self.TABLES.items():
                self._upload(label, *tables[module.ranks.shape if len(self.OVER) > 1 else self.world])
            self.look_up_memory()

    def _upload(self, label, parts, ranks):
        """This rank's rows of a route, in device memory; every rank allocates what the longest needs."""
        flat = [[n for row in rows for n in (row if isinstance(row, tuple) else (row,))] for rows in ranks]
        table = self.machine.zeros(label, (max(1, *map(len, flat)),), torch.int32)
        mine = flat[self.rank]
        table[: len(mine)].copy_(torch.tensor(mine, dtype=torch.int32))
        setattr(self, f"_{label}", table)
        setattr(self, f"_{label}_rows", ranks[self.rank])
        setattr(self, f"_{label}_count", len(ranks[self.rank]))
        setattr(self, f"_{label}_parts", parts)

    @classmethod
    def symmetric_bytes(cls, dims, world):
        """Bytes of symmetric memory that each rank gives: buffers, flags, the state and the closing words."""
        shared = [(shape, dtype) for _, kind, shape, dtype in cls.memory(dims, world) if kind == "symmetric"]
        words = 16 + (world if cls.CLOSING else 0)
        return sum(math.prod(shape) * dtype.itemsize for shape, dtype in shared) + 4 * words

    # ---- other ways of a call (`Calls` has the first)

    def exact(self, *tensors, **given):
        """The same bits without fusion: whole collective, then the same local kernels in the same order."""
        if any_placed(tensors):
            return self.placed(self.exact, tensors, given)
        self.check()
        tensors, dims = self.bind(tensors, given)
        if self.why_not is not None:
            raise RuntimeError(f"{self.NAME}.exact needs the kernels: {self.why_not}")
        results = self.results(dims, None)
        self.run_exact(dims, tensors, results)
        return self.first(results)

    def run_exact(self, dims, tensors, results):
        """Ordered with the fused calls: they share local memory."""
        self.machine.begin_call(self.NAME, fused=False)
        self.run(False, 1, dims, *tensors, *results)
        self.machine.end_call()

    def fallback(self, *tensors, **given):
        """The process group's collectives and the library's GEMM."""
        if not torch.compiler.is_compiling() and unobserved(tensors):
            return self.first(self.plain_call(tensors, given))
        refuse_placed(self.NAME, tensors)
        if any_placed(tensors):
            return self.placed(self.fallback, tensors, given)
        if self.INOUT:
            return self.first(updating(self, by_fallback, tensors, given))
        if self.differentiated(tensors) or transformed():
            return self.first(Call.apply(by_fallback, self.ahead(tensors), given, *tensors))
        return self.first(self.plain_call(tensors, given))

    # ---- sizes

    def bind(self, tensors, given, strict=True, outs=()):
        """Aligned tensors and the value of every run-time dim. ValueError where a tensor is not as declared, or one of
        `outs` is not memory of its own."""
        self.count(tensors, given)
        if outs or self.INOUT:
            keep_apart(self, tensors, outs)
        for tensor, (name, (_, shape)) in zip(tensors, self.PARAMETERS.items(), strict=True):
            if tensor.dim() != len(shape):
                raise ValueError(f"{self.NAME}: {name} has {tensor.dim()} dimensions, declared with {len(shape)}")
        dims = self.sizes_of(tensors, whole_sizes(self.NAME, {k: v for k, v in given.items() if v is not None}))
        for dim, value in dims.items():
            low, high, step = self.RANGES[dim]
            high = self.module.bounds.get(dim, high)
            if not low <= value <= high or value % step:
                raise ValueError(f"{self.NAME}: {dim} = {value} is outside {low}..{high} step {step}")
        ready = []
        for tensor, (name, (dtype, shape)) in zip(tensors, self.PARAMETERS.items(), strict=True):
            want = self.local_shape(shape, dims)
            if tuple(tensor.shape) != want:
                raise ValueError(
                    f"{self.NAME}: rank {self.rank} passes {name} of shape {tuple(tensor.shape)}; with "
                    f"{', '.join(f'{k} = {v}' for k, v in dims.items())} its shard has shape {want}"
                )
            if strict and self.why_not is None and tensor.device != self.nothing.device:
                raise ValueError(f"{self.NAME}: {name} is on {tensor.device}, this instance on {self.nothing.device}")
            if strict and tensor.dtype != dtype:
                raise ValueError(f"{self.NAME}: {name} is {tensor.dtype}, declared as {dtype}")
            ready.append(self._aligned(tensor))
        return ready, dims

    def _alignment(self, bounds):
        """Why some rank's matrix has rows that are not a multiple of 16 bytes, or None. The same on every rank."""
        for name, (dtype, shape) in (*self.PARAMETERS.items(), *self.RESULTS.items()):
            if name not in self.MATRICES:
                continue
            size, sharded, *before = shape[-1]
            if isinstance(size, str) or callable(size):
                continue
            lengths = [size]
            for axis in before:
                ranks = self.here[axis]
                lengths = [shard_rows(n, ranks, rank) for n in lengths for rank in range(ranks)]
            for n, rank in [(n, rank) for n in lengths for rank in range(self.world)]:
                n = self.part(n, sharded, rank)
                if n * dtype.itemsize % 16:
                    return f"rank {rank}'s rows of {name} are {n * dtype.itemsize} bytes, not a multiple of 16"
        return None

    def results(self, dims, out):
        given = () if out is None else out
        made = []
        for i, (name, (dtype, shape)) in enumerate(self.RESULTS.items()):
            want = self.local_shape(shape, dims)
            if given:
                o = given[i]
                if tuple(o.shape) != want or o.dtype != dtype or not o.is_contiguous() or o.data_ptr() % 16:
                    wanted = f"a contiguous, aligned {dtype} tensor of shape {want}"
                    raise ValueError(f"{self.NAME}: out for {name} must be {wanted}")
            made.append(given[i] if given else self.machine.empty(want, dtype))
        return made

    def buffer(self, name, shape, **given):
        """A view of the gathered buffer where this rank's shard of parameter `name` belongs: produced there, it is not
        copied (ordinary memory for one that nothing copies). Local `shape`, sizes as in the call. Else ValueError."""
        if self.closed_because:
            raise RuntimeError(f"{self.NAME}: {self.closed_because}")
        if self.why_not is not None or name in self.STAYS:
            return self.machine.empty(shape, self.PARAMETERS[name][0])
        if name not in self.GATHERED or self.SLOTS != 1:
            why = "alternates between buffers (write buffers = 1)" if name in self.GATHERED else "is not gathered"
            raise ValueError(f"{self.NAME}: {name} {why}, so it has no place to be produced in")
        gathered, dim, *before = self.GATHERED[name]
        rows = self.cut(given[dim], before) if given.get(dim) else shape[0] * self.world
        target = getattr(self, f"_{gathered}").local
        each = self.nominal(rows, self.PARAMETERS[name][1][0][1])
        own = self.rank * round_up(max(1, each), self.PAD)
        if own + shape[0] > target.shape[0] or shape[1] > target.shape[1]:
            raise ValueError(f"{self.NAME}: {name} of local shape {tuple(shape)} does not fit this instance's bounds")
        return target[own : own + shape[0], : shape[1]]

    def source_of(self, tensor, target, own):
        """(tensor to stage, whether it must be copied to row `own`). One elsewhere in the buffer is moved out."""
        low, high = target.data_ptr(), target.data_ptr() + target.numel() * target.element_size()
        if tensor.data_ptr() == low + own * target.stride(0) * target.element_size():
            return tensor, False
        return (tensor.clone() if low <= tensor.data_ptr() < high else tensor), True

    def warm_up(self):
        """Compile and load every kernel, fused and exact, by launches with nothing to do."""
        dims = {}
        for name, (low, _, step) in self.RANGES.items():  # of a size of 1 the compiler would make a constant
            dims[name] = max(low, min(self.module.bounds[name], round_up(16, step)))
        tensors = [
            torch.zeros(self.local_shape(shape, dims), dtype=dtype, device=self.machine.device)
            for dtype, shape in self.PARAMETERS.values()
        ]
        results = self.results(dims, None)
        for fused in (False, True):  # a user's kernel first: the fused launch is sized like it (`Machine.fit`)
            self.run(fused, 0, dims, *tensors, *results)
        for columns in self.WARP_COLUMNS if self.module.warps else ():
            self.by_warps = columns
            self.run(True, 0, dims, *tensors, *results)
        self.machine.synchronize()

    # ---- device work

    def tiling(self, constants):
        """The tile for this target: narrower where loads go through pointers."""
        return constants if self.module.tma else constants | {"BN": constants["NARROW_BN"]}

    def matrix(self, kind, tensor, constants, tma, columns):
        """An operand of a product: a TMA descriptor, or the tensor itself for pointer loads."""
        if tensor.numel() == 0 or columns == 0:
            tensor = self.nothing.view(tensor.dtype)
            columns = tensor.shape[-1]
        if not tma:
            return tensor
        bm, bn, bk = constants["BM"], constants["BN"], constants["BK"]
        block = {"a": [bm, bk], "at": [bk, bm], "bt": [bn, bk], "b": [bk, bn]}[kind]
        rows = tensor.numel() // tensor.shape[-1]
        return TensorDescriptor(tensor, [rows, columns], [tensor.shape[-1], 1], block)

    def launch(self, kernel, tiles, args, constants, active, first=0, last=0, inside=None, each=False, crowd=1,
               early=None, beside=False):  # fmt: skip
        """A kernel of tiles on the main lane; `first` and `last` are communication programs. `inside`: the user's
        kernel that its tiles run. `each`: a program for each tile, none of which waits for another, instead of as many
        as are resident together. `crowd`: so many on a multiprocessor. `early`: may the kernel behind start while this
        one runs (None: it does not ask); `beside`: may this one, beside the kernel ahead?"""
        fit = self.machine.fit(inside, kernel) if inside else {}
        stages = constants["STAGES"].get(self.machine.target, min(constants["STAGES"].values()))
        resident = self.machine.sms * fit.get("PER_SM", self.machine.crowd(crowd))
        programs = max(1, tiles if each else min(resident, tiles + first + last))
        movers = {"MOVERS_FIRST": first, "MOVERS_LAST": min(last, programs - 1)}
        movers |= {} if early is None else {"EARLY": early}
        shared, args = self.shared(constants), {**args, "active": active}
        bound = {k: v for k, v in fit.items() if k != "PER_SM"}
        options = {"early": True} if beside and early else {}
        self.machine.launch(kernel, programs, args, movers | shared | bound, constants["WARPS"], stages, **options)
        if inside and not active and self.machine.fit(inside, kernel) != fit:  # it turned out too wide
            self.launch(kernel, tiles, args, constants, active, first, last, inside, each)

    def shared(self, constants):
        """Of a launch's constants those that its kernel takes, with what is the instance's."""
        apart = ("WARPS", "STAGES", "NARROW_BN", "WARP_TILES")
        shared = {k: v for k, v in constants.items() if k not in apart}
        shared |= {"INNER": self.inner} if len(self.OVER) > 1 else {}
        return shared | {"W": self.world, "SLOTS": self.SLOTS, "NVIDIA": not self.machine.target.startswith("gfx")}

    def open(self, active, dims):
        m, args = self.machine, dict(state=self.state.local, word=self.word, active=active)
        m.launch(open_call, 1, args, dict(HOST_WORD=self.HOST_WORD, SLOTS=self.SLOTS, EARLY=m.starts_beside()), 1, 1)
        if self.module.check_calls:
            self.agree_in_kernel(active, dims)

    def stage(self, source, buffer, ready, height, columns, stride, cap, entry, copy, site, active, slots):
        """Copy this rank's shard into its place of a gathered buffer and tell the readers (not in `exact`)."""
        m = self.machine
        args = dict(
            source=source, buffer=buffer, ready=ready and ready.local, ready_peers=ready and ready.table,
            tickets=self.opening, state=self.state.local, state_peers=self.state.table, record=self.record,
            pitch=pitch_of(buffer), height=height, n=columns, stride=stride, cap=cap, rank=self.rank,
            site=site, limit=self.module.limit, active=active,
        )  # fmt: skip
        rows, cols = self.STAGE_BLOCK
        for variant in (copy,) if active else (True, False):  # a warm-up loads both
            flags = dict(COPY=variant, READY=ready is not None, ENTRY=entry, NVIDIA=not m.target.startswith("gfx"))
            shared = dict(W=self.world, SLOTS=slots, BR=rows, BC=cols, **flags)
            m.launch(stage_shard, max(1, min(m.sms, cdiv(height, rows))), args, shared, 4, 1)

    def close(self, active):
        """The closing barrier of a call."""
        args = dict(
            closed=self.closed.local, closed_peers=self.closed.table, state=self.state.local,
            state_peers=self.state.table, record=self.record, rank=self.rank, site=len(self.SITES) - 1,
            limit=self.module.limit, active=active,
        )  # fmt: skip
        shared = dict(W=self.world, NVIDIA=not self.machine.target.startswith("gfx"))
        self.machine.launch(close_call, 1, args, shared, 1, 1)
