"""Many programs of a kernel at once: the trace of one, and beside each value that is no data what it is in every other.

The kernel's own statements run for the first program; what follows from program ids is worked out for all of them
(`spread`), and what follows from the variable of a loop for all of its rounds (`rounds`). Where programs or rounds
part, at a condition, `Parted` says who goes together; each group then runs by itself. Only values that do not stem from
memory are spread, since others touch nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

from chunkdsl.kernels.batch_addresses import addresses, first_address, leading, outside, picked
from chunkdsl.kernels.fault import KernelFault
from chunkdsl.kernels.refusals import current_line
from chunkdsl.kernels.rounds import ByRounds, RoundsLooked
from chunkdsl.kernels.spread import (
    EACH,
    MOST,
    Lanes,
    Later,
    Parted,
    Spread,
    TooLong,
    TooMany,
    alone,
    each_of,
    halves,
    lanes_of,
    merged,
    spread_of,
    together,
)
from chunkdsl.kernels.spread_rules import ELEMENTWISE, SPREADS, added
from chunkdsl.kernels.taint import MARK, handles_in, joined, taint_of
from chunkdsl.kernels.trace import Recorder, rounds_of
from chunkdsl.kernels.tracked import TrackedBuilder, is_there
from chunkdsl.kernels.turns import Loop, loops_by_function
from chunkdsl.record import record

TensorHandle = upstream.TensorHandle


@record
class Access:
    """One load or store of all programs of a batch. `rounds`: of each loop around it that was asked for, by its number,
    the variable's value, [programs or 1, rounds or 1, 1]. `again`: it is in another part of the rounds too."""

    kind: str
    argument: str
    line: int
    lanes: Lanes
    rounds: Mapping[int, np.ndarray]
    again: bool


class BatchBuilder(TrackedBuilder):
    """`programs`: [count, 3] program ids. `left`: a list of one number, the operations that may still be done, of which
    large arrays take several. `loops`: those whose rounds are to be written down."""

    def __init__(
        self, recorder: Recorder, exact: Mapping[str, str], programs: np.ndarray, left: list[int],
        loops: Sequence[Loop] = (),
    ) -> None:  # fmt: skip
        super().__init__(recorder, exact)
        self.programs, self.left, self.loops = programs, left, loops_by_function(loops)
        self.accesses: list[Access] = []
        self.by_rounds = ByRounds()
        self._by_block = False
        self._grids = np.ones((1, 3), int)
        self._lengths: Mapping[str, np.ndarray] = {}

    def start(
        self, grids: np.ndarray, programs: np.ndarray, lengths: Mapping[str, np.ndarray], part: RoundsLooked
    ) -> None:  # fmt: skip
        """The kernel runs next for these. `grids`: [programs, 3], what each sees. `lengths`: how long the first
        dimension of each argument is for it, [programs, 1, 1]. `part`: rounds of loops that are looked at."""
        self.programs, self.accesses = programs, []
        self.by_rounds.start(part, self.accesses)
        self._grids, self._lengths = grids, lengths
        self.place(tuple(grids[0].tolist()), tuple(programs[0].tolist()))

    def install(self, set_attr) -> None:
        super().install(set_attr)
        truth, number, plain = tl.tensor.__bool__, tl.tensor.__index__, tl.tensor.T

        def one(tensor):
            if spread := tensor.handle.attr.get(EACH):
                together(spread.whole())

        def condition(tensor):
            if is_there(sys._getframe(1)):
                return True
            if tensor.handle.data.size == 1:
                one(tensor)
            return truth(tensor)

        def index(tensor):
            one(tensor)
            return number(tensor)

        def transposed(tensor):
            made = plain.fget(tensor)
            if EACH in tensor.handle.attr:
                parts = (p.transpose(0, 1, 3, 2) for p in spread_of(tensor.handle).parts)
                made.handle.attr[EACH] = Spread(tuple(parts), tensor.handle.attr[EACH].every)
            return made

        set_attr(tl.tensor, "__bool__", condition)
        set_attr(tl.tensor, "__index__", index)
        set_attr(tl.tensor, "T", property(transposed))
        for operations in (upstream.ReduceOps, upstream.ScanOps):
            set_attr(operations, "apply_impl", reducing(self, operations.apply_impl))

    # ---- where programs differ

    def create_get_program_id(self, axis):
        made = super().create_get_program_id(axis)
        if len(self.programs) > 1:
            made.attr[EACH] = Spread((self.programs[:, None, axis : axis + 1].astype(np.int32),))
        return made

    def create_get_num_programs(self, axis):
        made = super().create_get_num_programs(axis)
        if (self._grids[:, axis] != self._grids[0, axis]).any():
            made.attr[EACH] = Spread((self._grids[:, None, axis : axis + 1].astype(np.int32),))
        return made

    def worked_out(self, made, given) -> None:
        super().worked_out(made, given)
        self._alone(*(h for h in given if made.attr[MARK] is None))

    def create_splat(self, ret_ty, arg):
        made = super().create_splat(ret_ty, arg)
        view = np.broadcast_to(made.data.reshape(-1)[:1].reshape(()), made.data.shape)
        return TensorHandle(view, made.dtype, {**made.attr, **{k: v for k, v in arg.attr.items() if k == EACH}})

    def create_make_block_ptr(self, base, shape, strides, offsets, block_shape, order):
        made = super().create_make_block_ptr(base, shape, strides, offsets, block_shape, order)
        for new, old in zip(made.offsets, offsets, strict=True):
            new.attr.update(old.attr)
        return made

    def create_advance(self, ptr, offsets):
        made = super().create_advance(ptr, offsets)
        for new, *old in zip(made.offsets, ptr.offsets, offsets, strict=True):
            if any(EACH in h.attr for h in old):
                new.attr[EACH] = added(old, new)
        return made

    def spread(self, name: str, args, made) -> None:
        """What the outcome of a method is in every program."""
        if not isinstance(made, TensorHandle):
            raise self._each_alone()
        rule = SPREADS.get(name)
        if not rule and name in ELEMENTWISE:
            method = getattr(super(), name)
            made.attr[EACH] = Later(lambda: self._elementwise(method, args))
            return
        made.attr[EACH] = found = rule(args, made) if rule else self._one_by_one(getattr(super(), name), args)
        self.left[0] -= sum(p.size for p in found.parts) >> 15

    def _elementwise(self, method: Callable, args) -> np.ndarray:
        """By the method itself, on arrays with axes of programs and rounds in front."""
        wholes = [spread_of(a).whole() if isinstance(a, TensorHandle) else None for a in args]
        if np.prod(np.broadcast_shapes(*(w.shape for w in wholes if w is not None)), dtype=float) > MOST:
            raise TooMany
        found = method(*[a if w is None else bare(a, w) for a, w in zip(args, wholes, strict=True)]).data
        self.left[0] -= found.size >> 15
        return found

    def _one_by_one(self, method: Callable, args) -> Spread:
        """By the method itself, for one program and round after the other."""
        wholes = [spread_of(a).whole() if isinstance(a, TensorHandle) else None for a in args]
        each = leading(w for w in wholes if w is not None)
        self.left[0] -= int(np.prod(each))
        found = []
        for at in np.ndindex(each):
            given = [a if w is None else bare(a, one_of(w, at, a)) for a, w in zip(args, wholes, strict=True)]
            found.append(method(*given).data)
        return Spread((np.stack(found).reshape(*each, *found[0].shape),))

    def _each_alone(self) -> Parted:
        return alone(len(self.programs), self.by_rounds.count)

    def halves(self) -> Parted:
        return halves(len(self.programs), self.by_rounds.count)

    # ---- accesses

    def create_masked_load(self, ptrs, mask, *rest, **named):
        made = super().create_masked_load(ptrs, mask, *rest, **named)
        self._write("load", ptrs, mask)
        return made

    def create_masked_store(self, ptrs, value, mask, *rest):
        super().create_masked_store(ptrs, value, mask, *rest)
        self._write("store", ptrs, mask)

    def _write(self, kind: str, ptrs, mask) -> None:
        """Unless data decides where it is: then it is none that is of interest, or was refused."""
        if self._by_block:
            return
        if self._placing:
            if self._place is None:
                self._access(kind, Spread((ptrs.data[None, None],)), Spread((np.asarray(mask)[None, None],), True))
        elif taint_of(ptrs) is None and taint_of(mask) is None:
            self._access(kind, spread_of(ptrs), spread_of(mask))

    def _blocks(self, kind: str, block, offsets, checked, method, *args):
        """An access by a block pointer or a descriptor, whose bounds are held along the axes `checked`."""
        if joined((block, offsets)) is None:
            self._access(kind, *addresses(block, offsets, checked))
        self._by_block = True
        try:
            return method(*args)
        finally:
            self._by_block = False

    def create_tensor_pointer_load(self, ptr, checked, *rest):
        method = super().create_tensor_pointer_load
        return self._blocks("load", ptr, ptr.offsets, checked, method, ptr, checked, *rest)

    def create_tensor_pointer_store(self, ptr, value, checked, *rest):
        method = super().create_tensor_pointer_store
        return self._blocks("store", ptr, ptr.offsets, checked, method, ptr, value, checked, *rest)

    def create_descriptor_load(self, desc, indices, *rest):
        if self._placing:  # a part of a gather
            return super().create_descriptor_load(desc, indices, *rest)
        method = super().create_descriptor_load
        return self._blocks("load", desc, indices, range(desc.ndim), method, desc, indices, *rest)

    def create_descriptor_store(self, desc, value, indices):
        if self._placing:
            return super().create_descriptor_store(desc, value, indices)
        method = super().create_descriptor_store
        return self._blocks("store", desc, indices, range(desc.ndim), method, desc, value, indices)

    def create_descriptor_gather(self, desc, x_offsets, y_offset, type):
        self._alone(desc, x_offsets, y_offset)
        return super().create_descriptor_gather(desc, x_offsets, y_offset, type)

    def create_descriptor_scatter(self, desc, value, x_offsets, y_offset):
        self._alone(desc, x_offsets, y_offset)
        return super().create_descriptor_scatter(desc, value, x_offsets, y_offset)

    def _alone(self, *values) -> None:
        if any(EACH in h.attr for h in handles_in(values)):
            raise self._each_alone()

    def _access(self, kind: str, pointers: Spread, mask: Spread) -> None:
        line = current_line()
        mask = self.by_rounds.masked(mask)
        at = first_address(pointers, mask)
        if at is None:
            return
        a = self.memory.argument_at(at)
        if a is None:
            raise KernelFault(f"a {kind} reaches memory of no declared argument", line, "bind every pointer")
        first, *others = (p.astype(np.int64) for p in pointers.parts)
        offsets = merged([(first - a.base) // a.itemsize, *(p // a.itemsize for p in others)])
        try:
            lanes = lanes_of(offsets, mask, a.pitch)
        except TooMany:
            raise self.halves() from None
        self.left[0] -= (lanes.rows.size + lanes.columns.size) >> 13
        bad = outside(lanes, a, self._lengths[a.name])
        if bad is not None:
            shape = [*self._lengths[a.name][bad].reshape(-1), *a.shape[1:]] if a.shape else []
            shown = f"{a.name} [{' x '.join(map(str, shape))}]"
            raise KernelFault(
                f"a {kind} outside the declared shape of {shown}, by program {tuple(self.programs[bad].tolist())}",
                line, "mask it, correct the shape, or pass the stride of its rows with `arg`",
            )  # fmt: skip
        rounds = rounds_of(self.loops, each_of) if kind == "load" and self.loops else {}
        self.accesses.append(Access(kind, a.name, line, lanes, rounds, self.by_rounds.again))


# ---- programs one by one


def reducing(builder: BatchBuilder, apply_impl: Callable) -> Callable:
    """A reduction or scan, for one program after the other where programs differ."""

    def apply(self, inputs):
        results = apply_impl(self, inputs)
        if not any(EACH in t.handle.attr for t in inputs) or joined(inputs):
            return results
        wholes = [spread_of(t.handle).whole() for t in inputs]
        each = leading(wholes)
        builder.left[0] -= int(np.prod(each))
        found = []
        for at in np.ndindex(each):
            given = [bare(t.handle, one_of(w, at, t.handle)) for t, w in zip(inputs, wholes, strict=True)]
            made = apply_impl(self, tuple(tl.tensor(h, t.type) for h, t in zip(given, inputs, strict=True)))
            found.append([h.data for h in handles_in(made)])
        for handle, data in zip(handles_in(results), zip(*found, strict=True), strict=True):
            handle.attr[EACH] = Spread((np.stack(data).reshape(*each, *data[0].shape),))
        return results

    return apply


def one_of(array: np.ndarray, at: tuple[int, ...], like: TensorHandle) -> np.ndarray:
    """What it is in one program and round."""
    return np.broadcast_to(picked(array, at), like.data.shape)


def bare(like: TensorHandle, data: np.ndarray) -> TensorHandle:
    return TensorHandle(data, like.dtype, {MARK: None})


# ---- every other method


def spreading(name: str, method: Callable) -> Callable:
    @wraps(method)
    def call(self, *args, **named):
        self.left[0] -= 1
        if self.left[0] < 0:
            raise TooLong
        made = method(self, *args, **named)
        if taint_of(made) if type(made) is TensorHandle else made is None:
            return made
        given = [h for h in handles_in((args, tuple(named.values()))) if EACH in h.attr]
        done = isinstance(made, TensorHandle) and EACH in made.attr and all(made is not h for h in given)
        if given and not done and joined(made) is None:
            if named:
                raise self._each_alone()
            try:
                self.spread(name, args, made)
            except TooMany:
                raise self.halves() from None
        return made

    return call


OWN = frozenset(  # touch memory, answer nothing, or hand over what they got
    """
    create_load create_masked_load create_store create_masked_store create_atomic_rmw create_atomic_cas
    create_tensor_pointer_load create_tensor_pointer_store create_descriptor_load create_descriptor_store
    create_descriptor_gather create_descriptor_scatter create_make_block_ptr create_advance
    create_make_tensor_descriptor create_inline_asm create_assert create_assume create_print create_barrier
    create_get_program_id create_get_num_programs create_splat
    """.split()
)
for _name in dir(BatchBuilder):
    if _name.startswith("create_") and _name not in OWN:
        setattr(BatchBuilder, _name, spreading(_name, getattr(BatchBuilder, _name)))
