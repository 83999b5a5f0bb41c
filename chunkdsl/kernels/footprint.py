"""What a kernel's programs read and write, as a parametric description, from traces at several sizes.

    block     rows of the row dimension that one program handles; 0: programs are not tied to rows
    order     which program handles which row block
    reads     for each gathered argument: "block" (the rows of the program's block), "wrap" (the same, rows beyond the
              last one taken from the first), "whole" (any rows), "turns" (any rows, by a loop upwards: `turns`)

A description is accepted when it gives exactly what was traced: all programs at small sizes, ragged and whole ones, one
and several blocks each way, and at the largest (`every_program`). What does not fit is a KernelFault at the line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import gcd

import numpy as np
import torch

from chunkdsl.ir.types import DimRef, evaluate
from chunkdsl.kernels.addresses import exact_loads
from chunkdsl.kernels.beside import check_beside
from chunkdsl.kernels.binding import Binding, BoundTensor, Stride
from chunkdsl.kernels.edges import edge_inside
from chunkdsl.kernels.every_program import check_every_program
from chunkdsl.kernels.fault import KernelFault
from chunkdsl.kernels.loops import MANY, persistent_step
from chunkdsl.kernels.order import Order, fits, orders
from chunkdsl.kernels.sizes_tried import alike, shorter, telling_size
from chunkdsl.kernels.source import KernelSource
from chunkdsl.kernels.trace import EVEN, PADDING, Argument, Recorder, Touch, by_program, trace
from chunkdsl.kernels.turns import Turns, candidate_loops, fit_turns
from chunkdsl.kernels.whole_blocks import whole_blocks
from chunkdsl.record import record

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
DTYPES |= {"i32": torch.int32, "i64": torch.int64}
TALL = 8192  # rows at which the block of a program is looked for


@record
class Footprint:
    """`columns`: programs of a row block are cdiv(size of the result's columns, `columns`); 0: the grid's number.
    `step`: the parameter that a persistent loop steps by, "" for a kernel without one. `column_block`: columns that a
    program stores, if there are several programs in a row block. `flops` and `loads`: operations of products, and bytes
    loaded, of the busiest program at the largest sizes; only the cost model reads them. `whole`: `whole_blocks`."""

    block: int
    order: Order
    reads: tuple[tuple[str, str], ...]
    columns: int
    step: str
    column_block: int = 0
    turns: tuple[Turns, ...] = ()
    flops: int = 0
    loads: int = 0
    whole: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Question:
    """What a spec wants of a kernel: `gathered` arguments arrive row by row, `sent`: the result is given away row by
    row. `sizes`: of every size the largest value. `cuts`: sizes of the result that are sharded, so that the kernel
    runs on parts of them. `parted`: all sizes that are sharded. `fixed`: those that are the same in every call.
    `ranges`: of those that a call may choose, and that are not sharded, the least value and the step to the next.
    `shards`: of those that are sharded and fixed the parts that ranks hold."""

    source: KernelSource
    binding: Binding
    gathered: tuple[str, ...]
    sent: bool
    sizes: Mapping[str, int]
    cuts: tuple[str, ...] = ()
    parted: frozenset[str] = frozenset()
    fixed: frozenset[str] = frozenset()
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    shards: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


class Finder:
    def __init__(self, q: Question) -> None:
        self.q, self.source, self.binding = q, q.source, q.binding
        self.kernel = q.source.load()
        self.step = persistent_step(q.source) or ""
        self.loops = candidate_loops(q.source) if q.gathered and not q.sent else ()
        self.result = q.binding.results[0]
        self.outputs = [r.name for r in q.binding.results]
        self.pointers = {t.pointer: t.name for t in q.binding.all}
        self.exact = exact_loads(q.binding, q.gathered, q.parted)
        rows = self.result.dims[0]
        self.row = rows.name if isinstance(rows, DimRef) else ""
        last = self.result.dims[-1]
        self.col = last.name if len(self.result.dims) > 1 and isinstance(last, DimRef) and last != rows else ""
        self.line = q.source.kernel.lineno

    def find(self) -> Footprint:
        """KernelFault where the kernel cannot be fused as asked."""
        small = {name: shorter(v) for name, v in self.q.sizes.items()}
        try:
            block, column = self.blocks(small)
        except KernelFault:
            small = dict(self.q.sizes)  # a constant may fix a size
            block, column = self.blocks(small)
        seen = [(s, self.touches(s)) for s in self.samples(small, block, column)]
        for sizes, touches in seen:
            self.check_touches(sizes, touches)
        found = self.fit(seen, block, column)
        check_beside(self, found, seen, block, column)
        if not found.block and self.loops:
            found = self.in_turns(found, small, [touches for _, touches in seen])
        found = check_every_program(self, found, small)
        found = replace(found, whole=whole_blocks(self, found, small))
        largest = self.check_largest(found)
        return replace(found, **largest.busiest) if largest else found

    # ---- traces

    @staticmethod
    def shape(t: BoundTensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(max(0, evaluate(d, sizes)) for d in t.dims)

    def argument(self, t: BoundTensor, sizes: Mapping[str, int], padding: int) -> Argument:
        shape = self.shape(t, sizes)
        pitch = max(1, shape[-1] if shape else 1) + (padding if t.strided and len(shape) > 1 else 0)
        dtype = DTYPES[t.dtype or self.binding.tensors[0].dtype]
        return Argument(t.name, shape, dtype, pitch, self.binding.block_of(t))

    def arguments(self, sizes: Mapping[str, int], padding: int = PADDING) -> list[Argument]:
        return [self.argument(t, sizes, padding) for t in self.binding.all]

    def has_descriptor(self, t: BoundTensor, shape: tuple[int, ...]) -> bool:
        """Can a descriptor of a tensor of this shape be made, if the kernel takes it by one?"""
        size = DTYPES[t.dtype or self.binding.tensors[0].dtype].itemsize
        return not t.block or all(n * size % EVEN == 0 for n in shape[-1:])

    def touches(self, sizes: Mapping[str, int], programs=None) -> list[Touch]:
        return self.trace(sizes, programs).touches

    def trace(self, sizes: Mapping[str, int], programs=None) -> Recorder:
        """Of all programs of the grid, or of some numbers along its first axis."""
        grid = self.grid(sizes)
        if programs is None:
            programs = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
        arguments, scalars = self.launch(sizes)
        return trace(self.source, self.kernel, arguments, self.pointers, scalars, self.shown(grid), programs,
                     loops=self.loops, exact=self.exact)

    def launch(self, sizes: Mapping[str, int]) -> tuple[list[Argument], dict[str, object]]:
        """What the kernel is given: tensors, and the other parameters."""
        arguments = self.arguments(sizes)
        return arguments, self.scalars(sizes, {a.name: a for a in arguments})

    def scalars(self, sizes: Mapping[str, int], by_name: Mapping[str, Argument]) -> dict[str, object]:
        scalars: dict[str, object] = dict(self.binding.constants)
        for name, value in self.binding.scalars:
            if isinstance(value, Stride):
                scalars[name] = by_name[value.tensor].strides()[value.index]
            else:
                scalars[name] = value if isinstance(value, float | bool | str) else evaluate(value, sizes)
        if self.step and self.step != "num_programs":
            scalars[self.step] = MANY
        return scalars

    def shown(self, grid: tuple[int, int, int]) -> tuple[int, int, int]:
        """The grid that the kernel sees."""
        return (MANY, 1, 1) if self.step else grid

    def grid(self, sizes: Mapping[str, int]) -> tuple[int, int, int]:
        """Of a persistent kernel: as many programs as a result of these sizes can have tiles, one element each."""
        if not self.step:
            return self.binding.grid_at(sizes)
        return self.tiles(sizes), 1, 1

    def tiles(self, sizes: Mapping[str, int]) -> int:
        rows, cols = (evaluate(d, sizes) for d in (self.result.dims[0], self.result.dims[-1]))
        return -(-rows // self.block) * -(-cols // self.column)

    def blocks(self, small: Mapping[str, int]) -> tuple[int, int]:
        """Rows and columns of the result that a program stores, looked for with many rows."""
        sizes = dict(small)
        if self.row:
            sizes[self.row] = max(1, min(TALL, self.q.sizes[self.row]))
        if self.col:
            most = self.q.sizes[self.col]
            sizes[self.col] = small[self.col] if small[self.col] == most else min(TALL, most)
        self.block = self.column = 1
        last = tuple(max(0, n - 1) for n in self.binding.grid_at(sizes))
        programs = [(0, 0, 0)] if self.step else sorted({(0, 0, 0), last})
        stores = [t for t in self.touches(sizes, programs) if t.kind == "store" and t.argument == self.result.name]
        if not stores:
            raise KernelFault(f"its first program stores nothing to {self.result.name}", self.line)
        if len(self.result.dims) < 2:
            return max(t.elements.size for t in stores), 1
        self.block = max(int(np.ptp(rows)) + 1 for rows in by_program(stores, lambda t: t.rows))
        self.column = max(int(np.ptp(cols)) + 1 for cols in by_program(stores, lambda t: t.elements % t.cols))
        return self.block, self.column

    def samples(self, small: Mapping[str, int], block: int, column: int) -> list[dict[str, int]]:
        """Sizes that have one, several, whole and ragged blocks of rows and columns, as far as the sizes allow."""
        most_rows = self.q.sizes.get(self.row, 1)
        wide = self.col and self.q.sizes[self.col] > column
        rows = [9 * block + block // 2 + 1, block // 2 + 1, 3 * block, 2 * block + 1]
        cols = [2 * column + column // 2, 3 * column, 5 * column, column // 2 or 1]
        made = []
        short = [(alike(r, most_rows, block), cols[2]) for r in rows if r > most_rows]
        for r, c in (*zip(rows, cols, strict=True), *short):
            sizes = dict(small)
            if self.row:
                sizes[self.row] = max(1, min(r, most_rows))
            if wide:
                most = self.q.sizes[self.col]
                even = gcd(most, self.binding.evenness)
                if self.col in self.q.fixed:  # the last block is as long as it always is: it may have no masks
                    last = (most - 1) % column + 1
                    sizes[self.col] = min(most, (c - last) // column * column + last if c >= last else last)
                else:
                    sizes[self.col] = max(even, min(c, most) // even * even)
            if sizes not in made:
                made.append(sizes)
        return made

    # ---- what must hold of every trace

    def check_touches(self, sizes: Mapping[str, int], touches: list[Touch]) -> None:
        for t in touches:
            if t.kind == "store" and t.argument not in self.outputs:
                raise KernelFault(f"stores to {t.argument}, which is an argument and not a result", t.line,
                                  "name it as a result of the kernel item")
            if t.kind == "load" and t.argument in self.outputs:
                raise KernelFault(f"reads its result {t.argument}, which another program may have stored or sent",
                                  t.line, "keep the value in registers")
        for name in self.outputs:
            self.check_written_once(name, sizes, [t for t in touches if t.argument == name])

    def check_written_once(self, name: str, sizes: Mapping[str, int], stores: list[Touch]) -> None:
        shape = [evaluate(d, sizes) for d in self.binding.tensor(name).dims]
        count = np.zeros(int(np.prod(shape)), np.int64)
        shown = ", ".join(f"{k} = {v}" for k, v in sizes.items())
        for t in stores:
            if t.repeated or count[t.elements].any():
                at = int(t.elements[count[t.elements].argmax()])
                raise KernelFault(f"stores element [{at // t.cols}, {at % t.cols}] of {name} twice (with {shown})",
                                  t.line, "each element of a result is stored once")
            count[t.elements] = 1
        if not count.all():
            at = int(count.argmin())
            cols = shape[-1] if shape else 1
            raise KernelFault(f"leaves element [{at // cols}, {at % cols}] of {name} unwritten (with {shown})",
                              self.line, "check the grid, the constants and the masks")

    # ---- the description

    def fit(self, seen, block: int, column: int) -> Footprint:
        tied = self.tied(seen, block)
        self.check_cuts(seen, block, column, tied)
        self.check_all_read(seen)
        reads = {a: self.mode(a, seen, block, tied) for a in self.q.gathered}
        if self.q.sent and not tied:
            raise edge_inside(self, [touches for _, touches in seen], block)
        if not tied or (not self.q.sent and all(m == "whole" for m in reads.values())):
            # A persistent program keeps its loop over tiles: there is no ticket for each of them.
            return Footprint(0, Order(), tuple((a, "whole") for a in reads), 0, "")
        known = orders(tuple(map(max, *(self.grid(s) for s, _ in seen))) if len(seen) > 1 else self.grid(seen[0][0]))
        order = next((o for o in known if all(self.ordered(o, s, t, block) for s, t in seen)), None)
        if order is None:
            raise KernelFault("its programs go through the row blocks in an order that is not known", self.line,
                              "row by row, column by column, and groups of rows or columns are known")
        other = replace(order, turned=not order.turned)
        if telling := telling_size(self, order, other, seen[0][0]):
            sizes, program = telling
            touches = self.touches(sizes, [program])
            order = next((o for o in (order, other) if self.ordered(o, sizes, touches, block)), order)
        several = any(self.grid(s) != (-(-s[self.row] // block), 1, 1) for s, _ in seen)
        return Footprint(block, order, tuple(reads.items()), column if self.step else 0, self.step, column * several)

    def in_turns(self, found: Footprint, small: Mapping[str, int], traces: list[list[Touch]]) -> Footprint:
        """The same, if loops read the gathered rows upwards, for other numbers of these rows and the largest too."""
        names = self.q.gathered
        several = {self.binding.tensor(name).dims[0] for name in names}
        rows = self.binding.tensor(names[0]).dims[0]
        turns = fit_turns(self.loops, names, traces)
        if not turns or len(several) > 1 or not isinstance(rows, DimRef):
            return found
        tried = [dict(self.q.sizes)]
        for count in sorted({n for t in turns for n in (t.each, 2 * t.each + t.each // 2 + 1)}):
            tried.append(small | {rows.name: min(count, self.q.sizes[rows.name])})
        lasts = [tuple(n - 1 for n in self.grid(s)) for s in tried]
        ends = [[last] if i == 0 else sorted({(0, 0, 0), last}) for i, last in enumerate(lasts)]
        more = [self.trace(s, programs) for s, programs in zip(tried, ends, strict=True)]
        found = replace(found, **more[0].busiest)
        traces = [*traces, *(traced.touches for traced in more)]
        if fit_turns(self.loops, names, traces) != turns:
            return found
        return replace(found, reads=tuple((name, "turns") for name in names), turns=turns)

    def check_cuts(self, seen, block: int, column: int, tied: bool) -> None:
        """A kernel that runs on a part of a size of its result computes the same there: a program that stores some of
        it reads only this of it, and the traces had several such parts."""
        for cut in self.q.cuts:
            self.check_cut(cut, seen, block, column, tied)

    def check_cut(self, cut: str, seen, block: int, column: int, tied: bool) -> None:
        dim = next(i for i, d in enumerate(self.result.dims) if d == DimRef(cut))
        size = block if dim == 0 else column
        local = tied and cut in (self.row, self.col) and any(s[cut] > size for s, _ in seen)
        for t in self.binding.tensors:
            for i, d in enumerate(t.dims):
                if d == DimRef(cut) and local:
                    local = len(t.dims) <= 2 and all(self.within(t.name, i, dim, size, s[cut], x) for s, x in seen)
        if not local:
            raise KernelFault(
                f"`{cut}` is sharded, and it does not show that a program needs only its own part of `{cut}`",
                self.line, f"gather `{cut}`, or let each program read the block of it that it stores",
            )  # fmt: skip

    def within(self, name: str, axis: int, dim: int, size: int, extent: int, touches) -> bool:
        stored = {t.program: int((t.rows if dim == 0 else t.columns)[0]) // size
                  for t in touches if t.argument == self.result.name}  # fmt: skip
        for t in touches:
            if t.argument == name:
                at = t.columns if axis == len(self.binding.tensor(name).dims) - 1 else t.rows
                wanted = (stored[t.program] * size + np.arange(size)) % extent
                if not np.isin(at, wanted).all():
                    return False
        return True

    def check_all_read(self, seen) -> None:
        for name in self.q.gathered:
            for sizes, touches in seen:
                shape = [evaluate(d, sizes) for d in self.binding.tensor(name).dims]
                mine = [t for t in touches if t.argument == name]
                rows = {int(r) for t in mine for r in t.rows}
                if len(rows) < shape[0]:
                    raise KernelFault(f"reads only {len(rows)} of the {shape[0]} rows of {name} that are gathered",
                                      self.line, "gather only what is read")

    def tied(self, seen, block: int) -> bool:
        """Does every program store within one block of rows?"""
        if not self.row or len(self.result.dims) < 2:
            return False
        return all(
            len({int(r) // block for r in rows}) == 1
            for _, touches in seen
            for rows in by_program([t for t in touches if t.argument == self.result.name], lambda t: t.rows)
        )

    def block_of(self, touches, block: int) -> dict:
        return {t.program: int(t.rows[0]) // block for t in touches if t.argument == self.result.name}

    def ordered(self, order: Order, sizes, touches, block: int) -> bool:
        placed = self.block_of(touches, block)
        grid = self.grid(sizes)
        return bool(placed) and fits(order, placed, grid, -(-sizes[self.row] // block))

    def mode(self, name: str, seen, block: int, tied: bool) -> str:
        if not tied or self.binding.tensor(name).dims[0] != DimRef(self.row):
            return "whole"
        modes = ("block", "wrap")
        return next((m for m in modes if all(self.reads_as(m, name, s, t, block) for s, t in seen)), "whole")

    def reads_as(self, mode: str, name: str, sizes, touches, block: int) -> bool:
        placed, size = self.block_of(touches, block), sizes[self.row]
        for t in touches:
            if t.argument != name:
                continue
            if t.program not in placed:
                return False
            first = placed[t.program] * block
            rows = np.arange(first, first + block)
            wanted = set((rows % size if mode == "wrap" else rows[rows < size]).tolist())
            if not set(t.rows.tolist()) <= wanted:
                return False
        return True

    def check_largest(self, found: Footprint) -> Recorder | None:
        """A program at the largest sizes touches what the description says. What was traced, if it was not before."""
        sizes = dict(self.q.sizes)
        grid = self.grid(sizes)
        total = grid[0] * grid[1] * grid[2]
        if not found.block and found.turns:
            return None  # done
        if not found.block:
            return self.trace(sizes, sorted({(0, 0, 0), tuple(n - 1 for n in grid)}))
        blocks = -(-sizes[self.row] // found.block)
        columns = total // blocks
        block, column = blocks // 2, columns // 3
        wanted = {found.order.program(found.order.number(block, column, blocks, columns), grid): block}
        traced = self.trace(sizes, sorted(wanted))
        touches = traced.touches
        placed = self.block_of(touches, found.block)
        modes = all(mode == "whole" or self.reads_as(mode, a, sizes, touches, found.block) for a, mode in found.reads)
        if not placed.items() <= wanted.items() or not placed or not modes:
            shown = ", ".join(f"{k} = {v}" for k, v in sizes.items())
            raise KernelFault(f"behaves unlike at small sizes when {shown}", self.line, "narrow the dims' ranges")
        return traced
