"""What fusing an op keeps asking of its values, and the lists that it fills."""

from __future__ import annotations

import math

from chunkdsl.check.layouts import layout_on_two_axes
from chunkdsl.check.meshes import axes_mixed_in_one_op, sharded_behind_the_op
from chunkdsl.check.targets import dtype_not_built, pattern_not_built
from chunkdsl.diagnostics import Report
from chunkdsl.ir.graph import Op, Program, Value, axes_of
from chunkdsl.ir.layouts import CONTIGUOUS, Layout
from chunkdsl.ir.meshes import bindings, grid_of
from chunkdsl.ir.types import DimRef, Shard, Share, SymSize, evaluate, shards
from chunkdsl.lower.gates import values_of
from chunkdsl.lower.tensors import TABLE_DTYPES
from chunkdsl.plan.schedule import Buffer, Choice, Extent, Flags, Launch
from chunkdsl.plan.settled import Settlement

POINTWISE = frozenset(
    "add sub mul div neg gelu relu silu tanh swiglu cast const gelu_grad relu_grad silu_grad tanh_grad".split()
)
ROWWISE = frozenset(("rms_norm", "rms_norm_grad"))  # like pointwise, where a tile has whole rows
REDUCTIONS = ("reduce_scatter", "all_reduce")


class Refused(Exception):
    """The op cannot be scheduled; the report says why."""


class Facts:
    """One op under construction. `places` says where a value lies: (source, layout of its rows).
    `kernels` are the names of all launches of the file so far, `settled` what the cost model found of `auto`s."""

    def __init__(
        self, op: Op, program: Program, report: Report, kernels: set[str], settled: Settlement
    ) -> None:
        self.op, self.program, self.report, self.kernels = op, program, report, kernels
        self.settled = settled
        self.over = self._communicates_over()
        self.world = math.prod(program.mesh.axes[a].size for a in self.over)
        self.grid = grid_of(self.world, tuple(program.mesh.axes[a].size for a in self.over))
        self.highs = {r.name: r.high for r in program.ranges.values()} | bindings(program.mesh)
        self.target = ""  # of the statement at hand
        self.places: dict[Value, tuple[str, str]] = {}
        self.names: dict[Value, str] = {}
        self.buffers: list[Buffer] = []
        self.flags: list[Flags] = []
        self.counters: list[Flags] = []
        self.launches: list[Launch] = []
        self.choices: list[Choice] = []
        self.slots: list[int] = []
        self.carried: set[str] = set()

    def _fresh(self, stem: str, *endings: str) -> str:
        """The stem, or one with underscores, that makes names nobody in the op has: with each of the endings."""
        taken = {p.name for p in self.op.params} | {name for name, _ in self.op.results}
        taken |= {x.name for x in (*self.buffers, *self.flags, *self.counters)}
        while any(stem + ending in taken for ending in endings or ("",)):
            stem += "_"
        return stem

    # ---- mesh axes

    def _communicates_over(self) -> tuple[int, ...]:
        """The mesh axes over which the collectives of the op run: among their ranks it is an op of one axis. An op
        without collectives is one over an axis that has a layout, or over the inner one."""
        found: dict[tuple[int, ...], Value] = {}
        for v in values_of(self.op):
            if axes := axes_of(v):
                found.setdefault(axes, v)
        axes = [a.name for a in self.program.mesh.axes]
        if len(found) > 1:
            (first, one), (second, two) = list(found.items())[:2]
            words = (" and ".join(axes[i] for i in over) for over in (first, second))
            self.report.add(axes_mixed_in_one_op(*words, two.span, one.span))
            raise Refused
        odd = [i for p in self.op.params for i, at in enumerate(p.value.type.placements)
               if isinstance(at, Shard) and at.layout != CONTIGUOUS]  # fmt: skip
        return next(iter(found), (odd[0] if odd else len(axes) - 1,) if axes else ())

    def _extent(self, value: Value, dim: int) -> Extent:
        """The axes of the op cut what the others leave: `sharded` says that they do, `Share` that others do."""
        size, axes = value.type.shape[dim], self.program.mesh.axes
        cut = [i for i, p in enumerate(value.type.placements) if shards(p, dim)]
        if tuple(cut) == self.over:
            return Extent(size, True, value.type.layout_of(dim))
        own = [i for i in cut if i in self.over]
        if own and len(self.over) == 1 and own[0] != cut[-1]:
            names = [axes[i].name for i in cut]
            self.report.add(sharded_behind_the_op(str(size), *names, value.span, ()))
            raise Refused
        together = len(self.over) == 1
        for i in cut:
            if not (together and i in self.over):
                if (layout := value.type.placements[i].layout) != CONTIGUOUS:
                    over = " and ".join(axes[j].name for j in self.over)
                    what = f"rows or columns in the layout {layout.over(axes[i].name)} in an op over {over}"
                    self.report.add(layout_on_two_axes(what, value.span, f"{size} is not cut by {over}",
                                                       "use contiguous shards there, or gather it in an op before"))
                    raise Refused
                size = Share(size, axes[i].name)
        return Extent(size, together and bool(own))

    def _layout(self, value: Value) -> str:
        return "own" if self._sharded_rows(value) else "plain"

    def _sharded_rows(self, value: Value) -> bool:
        return value.type.rank > 0 and self._extent(value, 0).sharded

    def _extents(self, value: Value) -> tuple[Extent, ...]:
        return tuple(self._extent(value, d) for d in range(value.type.rank))

    def _declared(self, value: Value) -> tuple[str, tuple[Extent, ...], tuple[str, ...]]:
        """dtype, local shape and placements of what goes in or comes out."""
        return value.type.dtype.value, self._extents(value), tuple(map(str, value.type.placements))

    def _rows(self, value: Value) -> SymSize:
        if value.kind == "sum_rows":
            return 1  # kept as a matrix of one row
        if value.type.rank != 2:
            self._refuse("a value that is not a matrix", "reshape it before the call", value.span)
        size = self._extent(value, 0).size
        if isinstance(size, Share) and len(self.over) > 1:
            what = f"rows sharded over {size.axis} alone in an op that communicates over both axes"
            self._refuse(what, "shard them over both, or over neither", value.span)
        return size

    def _cols(self, value: Value) -> Extent:
        return self._extents(value)[-1]

    def _high(self, extent: Extent) -> int:
        size = evaluate(extent.size, self.highs)
        return extent.layout.shard(size, self.world) if extent.sharded else size

    def _row_layout(self, value: Value) -> Layout:
        """How the rows of a value are cut into the ranks' shards."""
        return self._extent(value, 0).layout if value.type.rank else CONTIGUOUS

    def _dtype(self, value: Value) -> str:
        if value.type.dtype.value not in ("bf16", "f16", "f32"):
            self.report.add(dtype_not_built(value.type.dtype.value, value.span))
            raise Refused
        return value.type.dtype.value

    def _held_dtype(self, value: Value) -> str:
        """Of what only a user's kernel reads: tables that the caller passes may hold integers."""
        held = value.kind == "param" and value.type.dtype in TABLE_DTYPES
        return value.type.dtype.value if held else self._dtype(value)

    def _line(self, span) -> int:
        return self.program.source.line_of(span.start)

    def _aligned(self, value: Value, span) -> None:
        """Refuse a matrix whose rows may not be multiples of 16 bytes at every size: kernels load 16 at once."""
        size, sharded = value.type.shape[-1], value.type.axis_sharding(value.type.rank - 1) is not None
        if isinstance(size, int):
            return  # decided for each world size
        elements = 16 // value.type.dtype.bytes
        steps = self.program.ranges[size.name].step if isinstance(size, DimRef) else 1
        if sharded or steps % elements:
            what = "a matrix whose row length is a run-time size" + (" that is sharded" if sharded else "")
            self._refuse(what, f"fix the size, or promise `step {elements}` (16 bytes) for an unsharded one", span)

    def _refuse(self, what: str, instead: str, span) -> None:
        self.report.add(pattern_not_built(what, instead, span))
        raise Refused

    def _leaves(self, value: Value, found: dict[Value, None]) -> dict[Value, None]:
        if value in self.places and value not in self.gathers:
            pass
        elif value.kind in POINTWISE or value.kind in ROWWISE:
            for a in value.args:
                self._leaves(a, found)
        else:
            found.setdefault(value)
        return found

    def _contracts_rows(self, value: Value) -> bool:
        """Is it made of a product over rows, `a.T @ b`?"""
        return any(v.kind == "matmul" and v.args[0].kind == "transpose" for v in self._leaves(value, {}))

    def _arrives(self, value: Value) -> bool:
        """Chunks of it arrive while tiles wait: a gather, or an all_to_all of something that is there."""
        return value.kind == "all_gather" or (value.kind == "all_to_all" and not self._splits(value))

    def _splits(self, value: Value) -> bool:
        """It splits its statement: tiles below it send what they made, a launch above it waits for that."""
        if value.kind == "all_to_all":
            return any(v.kind == "matmul" for v in self._leaves(value.args[0], {}))
        return value.kind in REDUCTIONS

    def _reduction(self, value: Value) -> Value | None:
        found = [v for v in self._leaves(value, {}) if self._splits(v)]
        if len(found) > 1:
            self._refuse("two reductions in one statement", "give each a statement of its own", found[1].span)
        if found and len(self._leaves(value, {})) > 1:
            other = next(v for v in self._leaves(value, {}) if v is not found[0])
            self._refuse("a reduction beside a product or a gather in one statement", "bind one to a name", other.span)
        return found[0] if found else None
