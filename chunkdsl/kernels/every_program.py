"""Does every program of the largest grid do what the description says? All of them, many at a time (`batch`).

Traces at small sizes, and of some programs at the largest, do not see `if row == 157`. Here each program's loads of
what is gathered are held against its block of rows, its stores too, and every element of a result is stored once: row
by row, the sums of random numbers that stand for the elements are those of a result that is whole (a fingerprint of 64
bits, after Carter and Wegman's classes of hash functions). Only the sizes of the result are at their largest. A kernel
whose programs go on too differently is looked at with fewer rows, as many as OPERATIONS allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from chunkdsl.interp import bind, interpreting
from chunkdsl.ir.types import DimRef
from chunkdsl.kernels.batch import Access, BatchBuilder
from chunkdsl.kernels.fault import KernelFault
from chunkdsl.kernels.spread import Parted, TooLong
from chunkdsl.kernels.taint import mark
from chunkdsl.kernels.trace import Recorder, faults_of

if TYPE_CHECKING:
    from chunkdsl.kernels.footprint import Finder, Footprint
    from chunkdsl.kernels.turns import Turns

OPERATIONS = 6_000  # of the builder, a fraction of a second
PROGRAMS = 1 << 16  # of a grid
BATCH = 4096
MEND = "let every program do the same, for the rows that follow from its number"


Sizes = Mapping[str, int]


def check_every_program(finder: Finder, found: Footprint, small: Sizes, traced: Sequence[Sizes]) -> None:
    """KernelFault at the access by which a program falls out of line. `small` sizes stand for those that the result
    does not have. All programs of the `traced` sizes were looked at before."""
    for sizes in tried(finder, small):
        if any(all(t[n] >= sizes[n] for n in (finder.row, finder.col) if n) for t in traced):
            return
        try:
            Check(finder, found, sizes).run()
            return
        except TooLong:
            continue


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
    def __init__(self, finder: Finder, found: Footprint, sizes: Sizes) -> None:
        self.finder, self.found, self.sizes = finder, found, sizes
        self.grid = finder.grid(sizes)
        x, y, z = self.grid
        number = np.arange(x * y * z)
        self.programs = np.stack([number % x, number // x % y, number // (x * y)], axis=1)
        self.blocks = self.placed()
        self.modes = dict(found.reads)
        arguments, self.scalars = finder.launch(sizes)
        self.recorder = Recorder(arguments)
        self.arguments = {a.name: a for a in arguments}
        rng = np.random.default_rng(0)
        self.weights = {n: rng.integers(0, 1 << 63, self.arguments[n].cols, np.uint64) | 1 for n in finder.outputs}
        self.stored = {n: np.zeros(self.arguments[n].rows, np.uint64) for n in finder.outputs}
        self.lines: dict[str, int] = {}
        self.shown = ", ".join(f"{k} = {v}" for k, v in sizes.items())

    def placed(self) -> np.ndarray | None:
        """The block of rows of every program."""
        if not self.found.block:
            return None
        blocks, total = -(-self.sizes[self.finder.row] // self.found.block), len(self.programs)
        columns, rest = divmod(total, blocks)
        if rest:
            raise KernelFault(f"a grid of {total} programs for {blocks} blocks of rows", self.finder.line, MEND)
        found = np.zeros(total, np.int64)
        order, (x, y, _) = self.found.order, self.grid
        for block in range(blocks):
            for column in range(columns):
                a, b, c = order.program(order.number(block, column, blocks, columns), self.grid)
                found[a + x * (b + y * c)] = block
        return found

    def run(self) -> None:
        """KernelFault, or TooLong."""
        finder, left = self.finder, [OPERATIONS]
        builder = BatchBuilder(self.recorder, finder.exact, self.programs[:1], left, finder.loops)
        named = {p: self.arguments[n].passed for p, n in finder.pointers.items()}
        waiting = [np.arange(i, min(i + BATCH, len(self.programs))) for i in range(0, len(self.programs), BATCH)]
        with interpreting(self.recorder, builder):
            function, bound = bind(finder.kernel, {**self.scalars, **named}, builder.form)
            mark(tuple(bound.values()), None)
            while waiting:
                numbers = waiting.pop()
                builder.start(finder.shown(self.grid), self.programs[numbers])
                try:
                    with faults_of(finder.source):
                        function(**bound)
                except Parted as parted:
                    waiting += [numbers[g] for g in parted.groups]
                    continue
                for access in builder.accesses:
                    self.check(access, numbers)
                for cut in finder.q.cuts:
                    self.check_part(cut, builder.accesses, numbers)
        self.check_stored()

    def check(self, access: Access, numbers: np.ndarray) -> None:
        name = access.argument
        if access.kind == "store":
            if name not in self.stored:
                raise KernelFault(f"stores to {name}, which is an argument and not a result", access.line,
                                  "name it as a result of the kernel item")
            self.lines[name] = access.line
            self.count(access)
            mode = "block"
        elif name in self.stored:
            raise KernelFault(f"reads its result {name}, which another program may have stored or sent", access.line,
                              "keep the value in registers")
        else:
            mode = self.modes.get(name, "whole")
        if mode == "turns":
            turns, value = self.turn(access)
            self.hold(access, numbers, turns.lead * value, turns.each, 0)
        elif mode != "whole" and self.blocks is not None:
            first = self.blocks[numbers][:, None] * self.found.block
            self.hold(access, numbers, first, self.found.block, self.sizes[self.finder.row] if mode == "wrap" else 0)

    def check_part(self, cut: str, accesses: Sequence[Access], numbers: np.ndarray) -> None:
        """Of a size of the result that is sharded a program reads only the block that it stores."""
        result = self.finder.result
        dim = result.dims.index(DimRef(cut))
        size = self.finder.block if dim == 0 else self.finder.column
        least = np.full((len(numbers), 1), 1 << 62)
        for access in accesses:
            if access.kind == "store" and access.argument == result.name:
                at, used = access.lanes.along(dim > 0)
                least = np.minimum(least, np.where(used, at, 1 << 62).min(axis=1, keepdims=True))
        for access in accesses:
            dims = self.finder.binding.tensor(access.argument).dims
            if access.kind == "load" and DimRef(cut) in dims:
                last = dims.index(DimRef(cut)) == len(dims) - 1
                self.hold(access, numbers, least // size * size, size, self.sizes[cut], last, least < 1 << 62)

    def turn(self, access: Access) -> tuple[Turns, np.ndarray]:
        """The loop that a load stands in, and its variable's value."""
        for number, loop in enumerate(self.finder.loops):
            for turns in self.found.turns:
                where = turns.function, turns.line
                if number in access.rounds and where == (loop.function, loop.line) and access.argument in turns.names:
                    return turns, access.rounds[number]
        raise KernelFault(f"loads {access.argument} outside of the loops over its rows", access.line, MEND)

    def hold(
        self, access: Access, numbers: np.ndarray, first: np.ndarray, count: int, modulus: int, columns: bool = False,
        asked: np.ndarray | bool = True,
    ) -> None:  # fmt: skip
        """Every row (or column) that a program touches, where it is `asked`, is one of `count` from `first` on, modulo
        `modulus` if it is not 0."""
        at, used = access.lanes.along(columns)
        away = (at - first) % modulus if modulus else at - first
        bad = np.argwhere(used & asked & ((away < 0) | (away >= count)))
        if bad.size:
            program, lane = bad[0]
            found, begin = (np.broadcast_to(v, away.shape)[program, lane] for v in (at, first))
            who = tuple(self.programs[numbers[min(program, len(numbers) - 1)]].tolist())
            what = "column" if columns else "row"
            raise KernelFault(
                f"program {who} {access.kind}s {what} {found} of {access.argument}; what others do would be {what}s "
                f"{begin} to {begin + count - 1} (with {self.shown})", access.line, MEND,
            )  # fmt: skip

    def count(self, access: Access) -> None:
        """Adds up what stands for the stored elements of each row."""
        lanes, stored, weights = access.lanes, self.stored[access.argument], self.weights[access.argument]
        values = np.where(lanes.column_mask, weights[np.where(lanes.column_mask, lanes.columns, 0)], np.uint64(0))
        if not lanes.paired:
            values = values.sum(axis=1, keepdims=True, dtype=np.uint64)
        rows, values, used = np.broadcast_arrays(lanes.rows, values, lanes.row_mask)
        np.add.at(stored, rows[used], values[used])

    def check_stored(self) -> None:
        for name, stored in self.stored.items():
            wanted = self.weights[name].sum(dtype=np.uint64)
            wrong = np.flatnonzero(stored != wanted)
            if wrong.size and self.arguments[name].cols:
                raise KernelFault(f"does not store each element of row {wrong[0]} of {name} once (with {self.shown})",
                                  self.lines.get(name, self.finder.line), MEND)
