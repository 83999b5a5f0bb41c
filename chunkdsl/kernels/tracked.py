"""The interpreter's builder for traces: values that stem from memory are marked, and may not decide what is touched.

Every method passes its arguments' marks on (`taint`). Where a marked value would become an address or a mask, the
kernel is refused at that line, unless `exact` allows it: a program may pick any rows of an argument that is whole on
each rank. Where one would become a Python number or a truth, by which the kernel runs on, it is refused too;
`decisions` knows the conditions by which only values are chosen.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import wraps
from math import gcd
from typing import TYPE_CHECKING

import numpy as np
import triton.language as tl
from triton.language import semantic
from triton.runtime import interpreter as upstream

from chunkdsl.interp.builder import Builder
from chunkdsl.kernels.decisions import DECISIONS
from chunkdsl.kernels.refusals import address_from_data, current_line, decision_from_data
from chunkdsl.kernels.taint import MARK, RULES, Taint, handles_in, joined, known_modulo, mark, moduli, taint_of, tainted

if TYPE_CHECKING:
    from chunkdsl.kernels.trace import Recorder

TensorHandle = upstream.TensorHandle
ALL, COLUMNS = "all", "columns"  # what of a load must not depend on data


class TrackedBuilder(Builder):
    """`exact`: of each argument, what of its loads must follow from sizes and program ids: ALL of it, its COLUMNS, or,
    of one that is not named, nothing; of stores always all. None: no access is refused."""

    def __init__(self, recorder: Recorder, exact: Mapping[str, str] | None) -> None:
        super().__init__(recorder)
        self.form = DECISIONS
        self.exact = exact
        self._place: Taint | None = None  # of an access by a descriptor or block pointer that is under way
        self._placing = False

    def install(self, set_attr) -> None:
        """What of Triton's language reads values without asking the builder."""

        def truth(tensor):
            if is_there(sys._getframe(1)):
                return True
            self.known(tensor, "which way a condition goes")
            return bool(tensor.handle.data) if tensor.handle.data.size == 1 else True

        def number(tensor):
            self.known(tensor, "a number by which the kernel runs on")
            return int(tensor.handle.data.reshape(-1)[0])

        plain = tl.tensor.T
        set_attr(tl.tensor, "__bool__", truth)
        set_attr(tl.tensor, "__index__", number)
        set_attr(tl.tensor, "T", property(lambda tensor: marked_like(tensor, plain.fget(tensor))))
        for operations in (upstream.ReduceOps, upstream.ScanOps):
            set_attr(operations, "apply_impl", passing_on(operations.apply_impl))

    def worked_out(self, made, given) -> None:
        made.attr[MARK] = joined(given) or (rounded() if made.data.dtype.kind == "f" else None)

    @staticmethod
    def known(value, what: str) -> None:
        """KernelFault where a value by which the kernel is steered stems from memory."""
        if taint := joined(value):
            raise decision_from_data(what, taint, current_line())

    # ---- accesses

    def create_masked_load(self, ptrs, mask, *rest, **named):
        """Nothing is read: no value that is loaded decides what is touched."""
        self._check("load", ptrs, mask)
        self.memory.load(ptrs.data, lanes_of(mask), itemsize(ptrs), False, self._bulk)
        names = self.memory.reached(ptrs.data)
        source = f"loads it from {' or '.join(names)}" if names else "loads it"
        kind = ptrs.get_element_ty()
        nothing = np.broadcast_to(np.zeros((), upstream._get_np_dtype(kind)), ptrs.data.shape)
        return TensorHandle(nothing, kind, {MARK: Taint(current_line(), source)})

    def create_load(self, ptr, *rest):
        return self.create_masked_load(ptr, everywhere(ptr), None, *rest)

    def create_store(self, ptr, value, *rest):
        return self.create_masked_store(ptr, value, everywhere(ptr), *rest)

    def create_masked_store(self, ptrs, value, mask, *rest):
        """Nothing is written: a result is not read back."""
        self._check("store", ptrs, mask)
        self.memory.store(ptrs.data, lanes_of(mask), itemsize(ptrs), self._bulk)

    def create_atomic_rmw(self, rmwOp, ptr, val, mask, sem, scope):
        self._check("atomic", ptr, mask)
        return brought(super().create_atomic_rmw(rmwOp, ptr, val, mask, sem, scope), "has it from an atomic")

    def create_atomic_cas(self, ptr, cmp, val, sem, scope):
        self._check("atomic", ptr, None)
        return brought(super().create_atomic_cas(ptr, cmp, val, sem, scope), "has it from an atomic")

    def create_inline_asm(self, *args):
        made = super().create_inline_asm(*args)
        brought(made.outputs, "has it from inline assembly")
        return made

    def _check(self, kind: str, ptrs, mask) -> None:
        """KernelFault where data decides what an access touches, and must not."""
        where, whether = (self._place, self._place) if self._placing else (taint_of(ptrs), joined(mask))
        if self.exact is None or not (where or whether):
            return
        names = ((where.argument,) if where.argument else ()) if where else self.memory.reached(ptrs.data)
        free = bool(names) and kind == "load" and all(self._is_free(n, where, whether) for n in names)
        if not free:
            raise address_from_data(kind, names, where, whether, current_line())

    def _is_free(self, name: str, where: Taint | None, whether: Taint | None) -> bool:
        needed = self.exact.get(name)
        if needed == COLUMNS:
            return whether is None and where.modulus % self.memory.row_bytes(name) == 0
        return needed is None

    def _placed(self, where, method, *args):
        """An access whose addresses are made of a base, strides and coordinates: all of them count."""
        outer = self._place, self._placing
        if not self._placing:
            self._place, self._placing = joined(where), True
            if self._place:
                base = next(handles_in(where))
                self._place = Taint(self._place.line, self._place.source, 1, self._argument(base))
        try:
            return method(*args)
        finally:
            self._place, self._placing = outer

    def _argument(self, pointer) -> str:
        taint = taint_of(pointer)
        if taint:
            return taint.argument
        names = self.memory.reached(pointer.data)
        return names[0] if len(names) == 1 else ""

    def create_tensor_pointer_load(self, ptr, *rest):
        return self._placed(ptr, super().create_tensor_pointer_load, ptr, *rest)

    def create_tensor_pointer_store(self, ptr, value, *rest):
        return self._placed(ptr, super().create_tensor_pointer_store, ptr, value, *rest)

    def create_descriptor_load(self, desc, indices, *rest):
        return self._placed((desc, indices), super().create_descriptor_load, desc, indices, *rest)

    def create_descriptor_store(self, desc, value, indices):
        return self._placed((desc, indices), super().create_descriptor_store, desc, value, indices)

    def create_descriptor_gather(self, desc, x_offsets, y_offset, type):
        where = desc, x_offsets, y_offset
        made = self._placed(where, super().create_descriptor_gather, desc, x_offsets, y_offset, type)
        return brought(made, "gathers it by a descriptor")

    def create_descriptor_scatter(self, desc, value, x_offsets, y_offset):
        where = desc, x_offsets, y_offset
        return self._placed(where, super().create_descriptor_scatter, desc, value, x_offsets, y_offset)

    # ---- addresses

    def create_ptr_to_int(self, *args):
        """Where memory lies is another matter in each run."""
        return brought(super().create_ptr_to_int(*args), "makes a number of an address")

    def create_addptr(self, ptr, offset):
        made = super().create_addptr(ptr, offset)
        taint = known_modulo((ptr, offset), 0)
        if taint:
            known, moved = moduli((ptr, offset))
            taint = Taint(taint.line, taint.source, gcd(known, moved * itemsize(ptr)), self._argument(ptr))
        made.attr[MARK] = taint
        return made

    def create_make_block_ptr(self, base, shape, strides, offsets, block_shape, order):
        made = super().create_make_block_ptr(base, shape, strides, offsets, block_shape, order)
        for new, old in zip(made.offsets, offsets, strict=True):
            new.attr[MARK] = taint_of(old)
        return made

    def create_advance(self, ptr, offsets):
        made = super().create_advance(ptr, offsets)
        for new, *old in zip(made.offsets, ptr.offsets, offsets, strict=True):
            new.attr[MARK] = joined(old)
        return made

    # ---- values

    def create_dot(self, a, b, d, *options):
        return self.memory.product(a, b, d, *options)

    def create_assert(self, condition, message):
        """What is loaded is not known here: a run asserts it."""
        if joined(condition) is None:
            super().create_assert(condition, message)

    def create_assume(self, condition):
        if joined(condition) is None:
            super().create_assume(condition)


def rounded() -> Taint:
    return Taint(current_line(), "works it out in floats, which a GPU may round otherwise")


def is_there(frame) -> bool:
    """Triton itself, in this frame, asks whether there is a mask, not what it is."""
    return frame.f_code.co_filename == semantic.__file__


def lanes_of(mask) -> np.ndarray:
    return mask.data if isinstance(mask, TensorHandle) else np.asarray(mask)


def itemsize(ptrs) -> int:
    return max(1, ptrs.get_element_ty().primitive_bitwidth // 8)


def everywhere(ptrs) -> TensorHandle:
    """A mask that is true, and known."""
    return TensorHandle(np.ones(ptrs.data.shape, bool), tl.int1, {MARK: None})


def brought(made, source: str):
    mark(made, Taint(current_line(), source))
    return made


def marked_like(tensor, made):
    made.handle.attr[MARK] = taint_of(tensor.handle)
    return made


def passing_on(apply_impl):
    """Reductions and scans work on bare arrays."""

    def apply(self, inputs):
        taint = joined(inputs)
        results = apply_impl(self, inputs)
        mark(results, taint)
        return results

    return apply


# ---- every other method: what it returns depends on what it got

OWN = frozenset(  # mark what they return themselves, or call one that does
    ["create_addptr", "create_make_block_ptr", "create_advance", "create_make_tensor_descriptor", "create_load",
     "create_masked_load", "create_tensor_pointer_load", "create_descriptor_load", "create_descriptor_gather",
     "create_atomic_rmw", "create_atomic_cas", "create_inline_asm", "create_ptr_to_int"]
)  # fmt: skip
ROUNDED = frozenset(  # floats that GPUs round otherwise, where they divide by approximation or fuse a product and a sum
    f"create_{name}"
    for name in "fadd fsub fmul fdiv frem fma exp exp2 log log2 sin cos sqrt rsqrt erf".split()
)


def marking(name: str, method):
    rule = RULES.get(name, depends)

    @wraps(method)
    def call(self, *args, **named):
        made = method(self, *args, **named)
        given = (*args, *named.values()) if named else args
        taint = rule(given, made) if tainted(given) else None
        if taint is None and name in ROUNDED:
            taint = rounded()
        if type(made) is TensorHandle:
            made.attr[MARK] = taint
        else:
            mark(made, taint)
        return made

    return call


def depends(args, out) -> Taint | None:
    return joined(args)


for _name in dir(TrackedBuilder):
    if _name.startswith(("create_", "get_")) and _name not in OWN:
        setattr(TrackedBuilder, _name, marking(_name, getattr(TrackedBuilder, _name)))
TrackedBuilder.cast_impl = marking("cast_impl", TrackedBuilder.cast_impl)
