"""Runs a kernel's index arithmetic and writes down what each program touches: the exact rows and columns of each
argument, by the line of the kernel's file that loads or stores.

The kernel runs in the repaired interpreter on tensors of ordinary memory, with guard bytes around each, so its own code
decides what is touched: masks, helpers, block pointers, descriptors and loops need no special care. Nothing is fitted
here (`footprint`).
"""

from __future__ import annotations

import sys
import traceback
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from chunkdsl.interp import bind, interpreting
from chunkdsl.interp.memory import Memory
from chunkdsl.interp.rewrite import is_kernel_file
from chunkdsl.kernels.fault import KernelFault
from chunkdsl.kernels.refusals import current_line
from chunkdsl.kernels.rounds import NotAlike, TooShort
from chunkdsl.kernels.source import KernelSource
from chunkdsl.kernels.spread import Parted, TooLong, TooMany
from chunkdsl.kernels.taint import mark
from chunkdsl.kernels.tracked import TrackedBuilder
from chunkdsl.kernels.turns import Loop, loops_by_function

GUARD = 1 << 22  # bytes on each side of an argument: an index that is wrong by less names its argument
EVEN = 16  # bytes, of which the rows of a tensor with a descriptor are a multiple
PADDING = 16  # elements by which strided rows are longer than their contents in a trace
MOST = 400_000  # accesses of one trace: a loop that waits for data never ends here

Program = tuple[int, int, int]


class Argument:
    """A tensor argument of a trace: `shape` elements, rows `pitch` elements apart; nothing reads or writes
    them. `block`: of the descriptor by which the kernel takes it, if it does."""

    def __init__(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype, pitch: int, block: tuple[int, ...] = ()
    ) -> None:
        self.name, self.shape, self.pitch, self.block = name, shape, pitch, block
        self.itemsize = dtype.itemsize
        rows = int(np.prod(shape[:-1])) if len(shape) > 1 else 1
        self.rows, self.cols = rows, shape[-1] if shape else 1
        guard = GUARD // self.itemsize
        numel = max(1, rows * pitch)
        memory = torch.empty(numel + 2 * guard, dtype=dtype)
        self.tensor = memory[guard : guard + numel]
        self.base = self.tensor.data_ptr()
        self.low, self.high = memory.data_ptr(), memory.data_ptr() + memory.numel() * self.itemsize

    @property
    def passed(self) -> torch.Tensor | TensorDescriptor:
        """What the kernel gets. KernelFault where no descriptor can be made."""
        if not self.block:
            return self.tensor
        if any(s * self.itemsize % EVEN for s in self.strides()[:-1]):
            raise KernelFault(f"takes {self.name} by a tensor descriptor, and its rows are {self.cols} elements long",
                              None, f"a descriptor needs rows of a multiple of {EVEN} bytes")
        return TensorDescriptor(self.tensor, list(self.shape), list(self.strides()), list(self.block))

    def strides(self) -> tuple[int, ...]:
        """In elements, of a tensor whose last dimension alone is padded."""
        found, step = [1], self.pitch
        for size in reversed(self.shape[1:]):
            found.insert(0, step)
            step *= size if len(found) > 1 else 1
        return tuple(found[: len(self.shape)]) or (1,)


@dataclass(frozen=True, eq=False)
class Touch:
    """One access: `kind` load, store or atomic; `rows` and `columns` that it touches, ascending. `key` differs for
    other elements. `elements` (of stores only) are row * cols + column, each once; `repeated`: the access
    names one twice. `rounds`: of each loop around it that was asked for, by its number, the variable's value."""

    kind: str
    argument: str
    program: Program
    line: int
    rows: np.ndarray
    columns: np.ndarray
    key: tuple[int, int]
    cols: int
    elements: np.ndarray | None = None
    repeated: bool = False
    rounds: Mapping[int, int] = field(default_factory=dict)


class Recorder(Memory):
    def __init__(self, arguments: Sequence[Argument], loops: Sequence[Loop] = ()) -> None:
        self.loops = loops_by_function(loops)
        self.arguments = sorted(arguments, key=lambda a: a.low)
        self._lows = [a.low for a in self.arguments]
        self.program: Program = (0, 0, 0)
        self.touches: list[Touch] = []
        self.work: dict[Program, list[int]] = {}  # operations of products, bytes loaded

    @property
    def busiest(self) -> dict[str, int]:
        """The most that a program had to do."""
        flops, loads = (max((w[i] for w in self.work.values()), default=0) for i in (0, 1))
        return {"flops": flops, "loads": loads}

    def row_bytes(self, name: str) -> int:
        """Bytes from one row of an argument to the next."""
        a = next(a for a in self.arguments if a.name == name)
        return a.pitch * a.itemsize

    def argument_at(self, address: int) -> Argument | None:
        """In whose memory, guards included, an address lies."""
        i = bisect_right(self._lows, address) - 1
        return self.arguments[i] if i >= 0 and address < self.arguments[i].high else None

    def reached(self, addresses: np.ndarray) -> tuple[str, ...]:
        """The arguments in whose memory, guards included, any of these addresses lie."""
        first, last = (bisect_right(self._lows, int(at)) - 1 for at in (addresses.min(), addresses.max()))
        named = self.arguments[max(0, first) : last + 1]
        if first == last and first >= 0 and int(addresses.max()) < named[0].high:
            return (named[0].name,)
        return tuple(a.name for a in named if bool(((addresses >= a.low) & (addresses < a.high)).any()))

    def load(self, addresses, mask, itemsize, volatile, bulk):
        self._touch("load", addresses, mask)
        self._count(1, int(np.broadcast_to(np.asarray(mask, bool), addresses.shape).sum()) * itemsize)

    def product(self, a, b, d, *options):
        """Stands in for a product of loaded values: nothing that is touched depends on what it is."""
        self._count(0, 2 * a.data.size * b.data.shape[-1])
        return type(d)(d.data + (a.data.reshape(-1)[0] * b.data.reshape(-1)[0]).astype(d.data.dtype), d.dtype)

    def _count(self, what: int, amount: int) -> None:
        self.work.setdefault(self.program, [0, 0])[what] += amount

    def store(self, addresses, mask, itemsize, bulk):
        self._touch("store", addresses, mask)

    def atomic(self, operation, addresses, mask, itemsize, sem, scope, perform):
        self._touch("atomic", addresses, mask)
        if self.touches and self.touches[-1].kind == "atomic":
            last = self.touches[-1]
            raise KernelFault(
                f"an atomic on {last.argument}: its order is not fixed, and a peer may see it half done",
                last.line,
                "store each element once",
            )
        return perform()

    def _touch(self, kind: str, addresses: np.ndarray, mask: np.ndarray) -> None:
        found = np.asarray(addresses)[np.broadcast_to(np.asarray(mask, bool), addresses.shape)]
        if found.size == 0:
            return
        line = current_line()
        i = bisect_right(self._lows, int(found[0])) - 1
        a = self.arguments[i] if i >= 0 else None
        if a is None or int(found.max()) >= a.high or int(found.min()) < a.low:
            raise KernelFault(f"a {kind} reaches memory of no declared argument", line, "bind every pointer")
        offsets = (found.astype(np.int64) - a.base) // a.itemsize
        rows = offsets // a.pitch
        cols = offsets - rows * a.pitch
        if int(rows.min()) < 0 or int(rows.max()) >= a.rows or int(cols.max()) >= a.cols:
            self._outside(kind, a, line, offsets, (rows < 0) | (rows >= a.rows) | (cols >= a.cols))
        elements, key = None, (int(offsets.sum()), int((offsets * offsets).sum()))
        if kind == "store":
            elements = np.unique(rows * a.cols + cols)
        repeated = elements is not None and elements.size < found.size
        places = distinct(rows), distinct(cols)
        rounds = rounds_of(self.loops) if kind == "load" and self.loops else {}
        touch = Touch(kind, a.name, self.program, line, *places, key, a.cols, elements, repeated, rounds)
        self.touches.append(touch)
        if len(self.touches) > MOST:
            raise KernelFault(f"more than {MOST} accesses at small sizes: does a loop wait for data?", line)

    def _outside(self, kind: str, a: Argument, line: int | None, offsets: np.ndarray, bad: np.ndarray) -> None:
        at = int(offsets[bad.argmax()])
        where = f"element {at}, counted with {a.pitch} elements a row" if at >= 0 else f"{-at} elements before it"
        shape = " x ".join(map(str, a.shape))
        raise KernelFault(
            f"a {kind} outside the declared shape of {a.name} [{shape}]: {where}, by program {self.program}",
            line,
            "mask it, correct the shape, or pass the stride of its rows with `arg`",
        )


def by_program(touches: Sequence[Touch], of: Callable[[Touch], np.ndarray]) -> list[np.ndarray]:
    """What `of` gives for each touch, of every program together."""
    found: dict = {}
    for t in touches:
        found.setdefault(t.program, []).append(of(t))
    return [np.concatenate(v) for v in found.values()]


def distinct(values: np.ndarray) -> np.ndarray:
    """The distinct values, ascending: a sort would cost more than the access."""
    least = int(values.min())
    seen = np.zeros(int(values.max()) - least + 1, bool)
    seen[values - least] = True
    return np.flatnonzero(seen) + least


def rounds_of(loops: Mapping[str, list[tuple[int, Loop]]], value: Callable = int) -> dict[int, int]:
    """Of each of these loops that runs now, by its number, the `value` of its variable."""
    found = {}
    frame = sys._getframe(1)
    while frame is not None:
        if is_kernel_file(frame.f_code.co_filename):
            for number, loop in loops.get(frame.f_code.co_name, ()):
                if loop.begin <= frame.f_lineno <= loop.end:
                    found[number] = value(frame.f_locals[loop.variable])
        frame = frame.f_back
    return found


def trace(
    source: KernelSource, kernel, tensors: Sequence[Argument], pointers: Mapping[str, str],
    scalars: Mapping[str, object], grid: Program, programs: Sequence[Program], recording: type[Recorder] = Recorder,
    loops: Sequence[Loop] = (), exact: Mapping[str, str] | None = None,
) -> Recorder:
    """Touches and work of `programs` of a `grid`. `pointers` maps parameters to names of `tensors`; `scalars` has the
    rest. `loops`: those whose rounds are to be written down. `exact`: of which loads the place must not depend on data
    (`tracked`).

    KernelFault where the kernel fails, reaches outside its arguments, or touches what data decides."""  # fmt: skip
    recorder = recording(tensors, loops)
    named = {a.name: a.passed for a in tensors}
    with faults_of(source):
        builder = TrackedBuilder(recorder, exact)
        with interpreting(recorder, builder):
            function, bound = bind(kernel, {**scalars, **{p: named[n] for p, n in pointers.items()}}, builder.form)
            mark(tuple(bound.values()), None)
            for program in programs:
                recorder.program = program
                builder.place(grid, program)
                function(**bound)
    return recorder


@contextmanager
def faults_of(source: KernelSource) -> Iterator[None]:
    """What a kernel raises while it is interpreted becomes a KernelFault at its line."""
    try:
        yield
    except (KernelFault, TooLong, TooMany, Parted, NotAlike, TooShort):
        raise
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(source.file)]
        line = lines[-1] if lines else None
        if isinstance(error, AttributeError) and error.name in ("load", "store", "gather", "scatter"):
            raise KernelFault("takes a tensor descriptor that is made on the host", line,
                              "say what it moves at once: `A = a_desc[BM, BK] : [m, k]`") from None
        text = " ".join(str(error).split()) or type(error).__name__
        if "tensor_descriptor" in text:
            raise KernelFault("uses a tensor descriptor like a pointer", line,
                              "of a pointer no block is written: `A = a_ptr : [m, k]`") from None
        raise KernelFault(f"does not run: {text}", line) from None
