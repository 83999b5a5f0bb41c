"""Does every program do what the description says, at the largest sizes and at `more_sizes`? Many at a time (`batch`).

Traces at small sizes, and of some programs at the largest, do not see `if row == 157`. Here each program's loads of
what is gathered are held against its block of rows, in every round of its loops, its stores too, and every element of a
result is stored once: row by row, the sums of random numbers that stand for the elements are those of a result that is
whole (a fingerprint of 64 bits, after Carter and Wegman's classes of hash functions). A kernel whose programs go on so
differently that this takes more than ALL_OPERATIONS is not believed: it waits for all rows, or is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

from chunkdsl.interp import bind, interpreting
from chunkdsl.ir.types import DimRef
from chunkdsl.kernels.batch import Access, BatchBuilder
from chunkdsl.kernels.fault import KernelFault
from chunkdsl.kernels.order import Order
from chunkdsl.kernels.rounds import ONE, NotAlike, TooShort
from chunkdsl.kernels.sizes_tried import more_sizes
from chunkdsl.kernels.spread import EACH, Parted, Spread, TooLong, TooMany
from chunkdsl.kernels.taint import MARK, mark
from chunkdsl.kernels.trace import PADDING, Recorder, faults_of

if TYPE_CHECKING:
    from chunkdsl.kernels.footprint import Finder, Footprint
    from chunkdsl.kernels.turns import Turns

OPERATIONS = 6_000  # of the builder, a fraction of a second
ALL_OPERATIONS = 24_000  # at the largest sizes
PROGRAMS = 1 << 16  # of a grid
ALL_PROGRAMS = 1 << 20
BATCH = 4096
MEND = "let every program do the same, for the rows that follow from its number"


Sizes = Mapping[str, int]


def check_every_program(finder: Finder, found: Footprint, small: Sizes) -> Footprint:
    """The description, as it was held. KernelFault at the access by which a program falls out of line, at the largest
    sizes, then at `more_sizes`. `small` sizes stand for those that the result does not have."""
    try:
        hold_all(finder, found, dict(finder.q.sizes))
    except TooLong:
        found = unheld(finder, found)
        check_some(finder, found, small)
    left = [OPERATIONS]
    for group in alike_but_rows(finder, more_sizes(finder, small)):
        try:
            Check(finder, found, group).run(left)
        except TooLong:
            break
    return found


def hold_all(finder: Finder, found: Footprint, largest: Sizes) -> None:
    """Every program, in every round of its loops. TooLong where that takes too many operations. Rows lie one behind the
    other, as they mostly do when it is called; in traces there is a gap between them."""
    if np.prod(finder.grid(largest)) > ALL_PROGRAMS:
        raise TooLong
    Check(finder, found, [largest], padding=0).run([ALL_OPERATIONS])


def unheld(finder: Finder, found: Footprint) -> Footprint:
    """What can be done with a kernel of whose programs not all were held at the largest sizes: they wait for all rows,
    and their result is kept. KernelFault where it is sent."""
    if finder.q.sent:
        raise KernelFault("has too many programs, or rounds, to look at each at the largest sizes", finder.line,
                          "narrow the dims' ranges, or bind the result to a name first: a launch behind it sends it")
    return replace(found, block=0, order=Order(), reads=tuple((name, "whole") for name, _ in found.reads), columns=0,
                   step="", column_block=0, turns=())  # fmt: skip


def check_some(finder: Finder, found: Footprint, small: Sizes) -> None:
    for sizes in tried(finder, small):
        try:
            return Check(finder, found, [sizes]).run([OPERATIONS])
        except TooLong:
            continue
    return None


def alike_but_rows(finder: Finder, several: Sequence[Sizes]) -> list[list[Sizes]]:
    """Sizes that can be looked at in one run: no tensor's rows are longer at one than at another, and all descriptors
    can be made."""
    groups: dict[tuple, list[Sizes]] = {}
    for sizes in several:
        shapes = {t.name: finder.shape(t, sizes) for t in finder.binding.all}
        if all(finder.has_descriptor(t, shapes[t.name]) for t in finder.binding.all):
            groups.setdefault(tuple(shape[1:] for shape in shapes.values()), []).append(sizes)
    return list(groups.values())


def tried(finder: Finder, small: Sizes) -> Iterator[dict[str, int]]:
    """Largest rows and columns first, then fewer rows, with few columns if there are many programs."""
    sizes = dict(small) | {name: finder.q.sizes[name] for name in (finder.row, finder.col) if name}
    while finder.row:
        if np.prod(finder.grid(sizes)) > PROGRAMS and finder.col:
            sizes[finder.col] = small[finder.col]
        if np.prod(finder.grid(sizes)) <= PROGRAMS:
            yield dict(sizes)
        if sizes[finder.row] <= 1:
            return
        sizes[finder.row] //= 2


class Check:
    """Of `several` sizes, `alike_but_rows`, at once: what differs from one to the next is an array over programs.
    `padding`: elements between strided rows."""

    def __init__(self, finder: Finder, found: Footprint, several: Sequence[Sizes], padding: int = PADDING) -> None:
        self.finder, self.found, self.several = finder, found, several
        self.grids = [finder.grid(sizes) for sizes in several]
        counts = [x * y * z for x, y, z in self.grids]
        self.at = np.repeat(np.arange(len(several)), counts)
        self.programs = np.concatenate([programs_of(grid) for grid in self.grids])
        self.shown_grids = np.array([finder.shown(grid) for grid in self.grids])
        self.blocks = np.concatenate([self.placed(i) for i in range(len(several))]) if found.block else None
        self.modes = dict(found.reads)
        largest = {name: max(sizes[name] for sizes in several) for name in several[0]}
        arguments = finder.arguments(largest, padding)
        self.recorder = Recorder(arguments)
        self.arguments = {a.name: a for a in arguments}
        self.scalars = [finder.scalars(sizes, self.arguments) for sizes in several]
        self.lengths = {
            t.name: np.array([(finder.shape(t, s) or (1,))[0] for s in several]) for t in finder.binding.all
        }  # fmt: skip
        rng = np.random.default_rng(0)
        self.weights = {n: rng.integers(0, 1 << 63, self.arguments[n].cols, np.uint64) | 1 for n in finder.outputs}
        rows = {n: self.lengths[n] if len(self.arguments[n].shape) > 1 else np.ones(len(several), int)
                for n in finder.outputs}  # fmt: skip
        self.begins = {n: np.cumsum([0, *rows[n]]) for n in finder.outputs}
        self.stored = {n: np.zeros(self.begins[n][-1], np.uint64) for n in finder.outputs}
        self.lines: dict[str, int] = {}

    def shown(self, which: int) -> str:
        return ", ".join(f"{k} = {v}" for k, v in self.several[which].items())

    def extent(self, name: str, numbers: np.ndarray) -> np.ndarray:
        """Of a size, [programs, 1, 1]."""
        return np.array([sizes[name] for sizes in self.several])[self.at[numbers]][:, None, None]

    def placed(self, which: int) -> np.ndarray:
        """The block of rows of every program at one of the sizes."""
        x, y, z = grid = self.grids[which]
        blocks, total = -(-self.several[which][self.finder.row] // self.found.block), x * y * z
        columns, rest = divmod(total, blocks)
        if rest:
            raise KernelFault(f"a grid of {total} programs for {blocks} blocks of rows", self.finder.line, MEND)
        block, column = (n.reshape(-1) for n in np.mgrid[:blocks, :columns])
        order = self.found.order
        a, b, c = order.program(order.number(block, column, blocks, columns), grid)
        found = np.zeros(total, np.int64)
        found[a + x * (b + y * c)] = block
        return found

    def run(self, left: list[int]) -> None:
        """KernelFault, or TooLong. `left`: operations, as of `BatchBuilder`."""
        finder = self.finder
        builder = BatchBuilder(self.recorder, finder.exact, self.programs[:1], left, finder.loops)
        named = {p: self.arguments[n].passed for p, n in finder.pointers.items()}
        with interpreting(self.recorder, builder):
            function, bound = bind(finder.kernel, {**self.scalars[0], **named}, builder.form)
            mark(tuple(bound.values()), None)
            while not self.went_through(builder, function, bound):
                for stored in self.stored.values():
                    stored[:] = 0
        self.check_stored()

    def went_through(self, builder: BatchBuilder, function, bound: Mapping[str, object]) -> bool:
        """Runs all programs. False where a loop turns out to be one whose rounds must be gone through one by one."""
        total = len(self.programs)
        waiting = [(np.arange(i, min(i + BATCH, total)), ONE) for i in range(0, total, BATCH)]
        while waiting:
            numbers, part = waiting.pop()
            at = self.at[numbers]
            builder.start(self.shown_grids[at], self.programs[numbers],
                          {n: v[at][:, None, None] for n, v in self.lengths.items()}, part)  # fmt: skip
            try:
                with faults_of(self.finder.source):
                    function(**bound | self.differing(bound, at))
            except (Parted, TooMany) as parted:
                groups = (parted if isinstance(parted, Parted) else builder.halves()).groups
                count = builder.by_rounds.count
                waiting += [(numbers if p is None else numbers[p], part.some(r, count)) for p, r in groups]
                continue
            except TooShort as loop:
                waiting.append((numbers, part.up_to(loop.rounds)))
                continue
            except NotAlike as loop:
                builder.by_rounds.one_by_one.add(loop.line)
                return False
            for access in builder.accesses:
                self.check(access, numbers, builder.by_rounds.steps)
            for cut in self.finder.q.cuts:
                self.check_part(cut, builder.accesses, numbers)
        return True

    def differing(self, bound: Mapping[str, object], at: np.ndarray) -> dict[str, object]:
        """Parameters that are not the same at all sizes, as they are at those of `at`."""
        if len(self.several) == 1:
            return {}
        found: dict[str, object] = {}
        for name, first in self.scalars[0].items():
            each = [scalars[name] for scalars in self.scalars]
            if name in bound and any(v != first for v in each):
                found[name] = number_of(np.array(each)[at])
        for t in self.finder.binding.all:
            if t.block and t.pointer in bound:
                set_length(bound[t.pointer], self.lengths[t.name][at])
        return found

    def check(self, access: Access, numbers: np.ndarray, steps: Mapping[int, int]) -> None:
        """`steps`: the least step of each loop."""
        name = access.argument
        if access.kind == "store":
            if name not in self.stored:
                raise KernelFault(f"stores to {name}, which is an argument and not a result", access.line,
                                  "name it as a result of the kernel item")
            self.lines[name] = access.line
            if not access.again:
                self.count(access, numbers)
            mode = "block"
        elif name in self.stored:
            raise KernelFault(f"reads its result {name}, which another program may have stored or sent", access.line,
                              "keep the value in registers")
        else:
            mode = self.modes.get(name, "whole")
        if mode == "turns":
            turns, value = self.turn(access)
            if steps.get(turns.line, 1) < 1:
                raise KernelFault("a program goes through the rows downwards, others do upwards", turns.line, MEND)
            begin = turns.lead * value
            if (begin % turns.each).any():
                raise KernelFault("a round of a program begins between two blocks of rows", turns.line, MEND)
            self.hold(access, numbers, begin, turns.each)
        elif mode != "whole" and self.blocks is not None:
            first = self.blocks[numbers][:, None, None] * self.found.block
            rows = self.extent(self.finder.row, numbers) if mode == "wrap" else None
            self.hold(access, numbers, first, self.found.block, rows)

    def check_part(self, cut: str, accesses: Sequence[Access], numbers: np.ndarray) -> None:
        """Of a size of the result that is sharded a program reads only the block that it stores."""
        result = self.finder.result
        dim = result.dims.index(DimRef(cut))
        size = self.finder.block if dim == 0 else self.finder.column
        least = np.full((len(numbers), 1, 1), 1 << 62)
        for access in accesses:
            if access.kind == "store" and access.argument == result.name:
                at, mask, some = access.lanes.along(dim > 0)
                least = np.minimum(least, np.where(mask & some, at, 1 << 62).min(axis=(1, 2), keepdims=True))
        for access in accesses:
            dims = self.finder.binding.tensor(access.argument).dims
            if access.kind == "load" and DimRef(cut) in dims:
                last = dims.index(DimRef(cut)) == len(dims) - 1
                self.hold(access, numbers, least // size * size, size, self.extent(cut, numbers), last,
                          least < 1 << 62)  # fmt: skip

    def turn(self, access: Access) -> tuple[Turns, np.ndarray]:
        """The loop that a load stands in, and its variable's value."""
        for number, loop in enumerate(self.finder.loops):
            for turns in self.found.turns:
                where = turns.function, turns.line
                if number in access.rounds and where == (loop.function, loop.line) and access.argument in turns.names:
                    return turns, access.rounds[number]
        raise KernelFault(f"loads {access.argument} outside of the loops over its rows", access.line, MEND)

    def hold(
        self, access: Access, numbers: np.ndarray, first: np.ndarray, count: int, modulus: np.ndarray | None = None,
        columns: bool = False, asked: np.ndarray | bool = True,
    ) -> None:  # fmt: skip
        """Every row (or column) that a program touches, where it is `asked`, is one of `count` from `first` on, modulo
        `modulus` if there is one."""
        at, mask, some = access.lanes.along(columns)
        away = (at - first) % modulus if modulus is not None else at - first
        wrong = (away < 0) | (away >= count)
        if not wrong.any():
            return
        wrong = wrong & mask & asked
        wrong = wrong & some if wrong.any() else wrong
        bad = np.argwhere(wrong)
        if bad.size:
            program, *_ = place = tuple(bad[0])
            found, begin = (np.broadcast_to(v, wrong.shape)[place] for v in (at, first))
            number = numbers[min(program, len(numbers) - 1)]
            who = tuple(self.programs[number].tolist())
            what = "column" if columns else "row"
            raise KernelFault(
                f"program {who} {access.kind}s {what} {found} of {access.argument}; what others do would be {what}s "
                f"{begin} to {begin + count - 1} (with {self.shown(self.at[number])})", access.line, MEND,
            )  # fmt: skip

    def count(self, access: Access, numbers: np.ndarray) -> None:
        """Adds up what stands for the stored elements of each row, of all rounds of a loop at once where they are
        stored to the same rows."""
        lanes, stored, weights = access.lanes, self.stored[access.argument], self.weights[access.argument]
        values = np.where(lanes.column_mask, weights[np.where(lanes.column_mask, lanes.columns, 0)], np.uint64(0))
        if not lanes.paired:
            values = values.sum(axis=-1, keepdims=True, dtype=np.uint64)
        _, mask, some = lanes.along(False)
        if not lanes.paired and lanes.rows.shape[1] == lanes.row_mask.shape[1] == 1:
            values, some = (v.sum(axis=1, keepdims=True, dtype=v.dtype) for v in (values, some))
        rows = lanes.rows + self.begins[access.argument][self.at[numbers]][:, None, None]
        rows, values, used = np.broadcast_arrays(rows, values, mask & some)
        np.add.at(stored, rows[used], values[used])

    def check_stored(self) -> None:
        for name, stored in self.stored.items():
            weights, rows = self.weights[name], np.diff(self.begins[name])
            wanted = weights.sum(dtype=np.uint64)
            if len(self.arguments[name].shape) == 1:
                wanted = np.array([weights[:n].sum(dtype=np.uint64) for n in self.lengths[name]]).repeat(rows)
            wrong = np.flatnonzero(stored != wanted)
            if wrong.size and self.arguments[name].cols:
                which = int(np.searchsorted(self.begins[name], wrong[0], "right")) - 1
                row = wrong[0] - self.begins[name][which]
                raise KernelFault(f"does not store each element of row {row} of {name} once (with {self.shown(which)})",
                                  self.lines.get(name, self.finder.line), MEND)


def programs_of(grid: tuple[int, int, int]) -> np.ndarray:
    """Their ids, [programs, 3], the first axis fastest."""
    x, y, z = grid
    number = np.arange(x * y * z)
    return np.stack([number % x, number // x % y, number // (x * y)], axis=1)


def number_of(values: np.ndarray) -> tl.tensor:
    """An integer parameter that is `values` in the programs of a batch."""
    kind = upstream._implicit_cvt(int(values.max())).dtype
    data = values.astype(np.int64 if kind == tl.int64 else np.int32)
    handle = upstream.TensorHandle(data[:1], kind)
    set_each(handle, data)
    return tl.tensor(handle, kind)


def set_length(descriptor, values: np.ndarray) -> None:
    """How many rows a descriptor that is made on the host has."""
    length = descriptor.handle.shape[0]
    length.data = values[:1].astype(length.data.dtype)
    set_each(length, values.astype(length.data.dtype))


def set_each(handle: upstream.TensorHandle, values: np.ndarray) -> None:
    handle.attr[MARK] = None
    handle.attr.pop(EACH, None)
    if (values != values[0]).any():
        handle.attr[EACH] = Spread((values[:, None, None],))
