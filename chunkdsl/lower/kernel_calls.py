"""Calls of `kernel` items in expressions: sizes unify, placements follow the sizes, the result gets its type.

A size is sharded if a dimension that it names is. Sharded sizes of the result shard it there; others need `sum`, and
make it Partial.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chunkdsl.check.kernels import kernel_argument, kernel_size_sharded
from chunkdsl.diagnostics import Label
from chunkdsl.ir.types import DimRef, DType, Partial, Placement, Replicate, Shard, SymSize, TensorType, shards
from chunkdsl.kernels.binding import BoundTensor
from chunkdsl.lower.kernel_items import DeclaredKernel
from chunkdsl.lower.layouts import refuse_layouts
from chunkdsl.lower.operands import Operand
from chunkdsl.lower.operators import Typed
from chunkdsl.syntax import nodes

if TYPE_CHECKING:
    from chunkdsl.lower.expressions import Expressions


LEAST_BYTES = 16  # of a row that a tensor descriptor moves at once


@dataclass(frozen=True)
class Unified:
    """What a call makes of one of the kernel's sizes."""

    size: SymSize
    axes: tuple[int, ...]
    name: str | None
    operand: Operand
    dim: int


def lower_kernel_call(e: Expressions, call: nodes.Call, kernel: DeclaredKernel) -> Operand | None:
    """The value of a call; None if anything in it was reported."""
    tensors = kernel.binding.tensors
    operands = [e.lower(a) for a in call.args if not isinstance(a, nodes.MoveArg | nodes.KeywordArg)]
    if len(operands) != len(call.args) or len(operands) != len(tensors):
        usage = f"{kernel.name}({', '.join(t.name for t in tensors)})"
        e.fail(kernel_argument(f"`{kernel.name}` takes {len(tensors)} tensors", call.span, "this call", (), usage))
        return None
    if any(o is None for o in operands):
        return None
    results = kernel.binding.results
    if len(results) != (e.targets if call is e.statement else 1):
        usage = f"`{', '.join(r.name.lower() for r in results)} = {kernel.name}(...)` as a statement"
        e.fail(kernel_argument(f"`{kernel.name}` has {len(results)} result{'s' * (len(results) > 1)}", call.span,
                               "this call", (), f"bind each to a name: {usage}"))
        return None
    if refuse_layouts("a kernel's argument", operands, call.span, e.fail, "gather it, or use contiguous shards"):
        return None
    sizes: dict[str, Unified] = {}
    for bound, operand in zip(tensors, operands, strict=True):
        if not unify(e, kernel, bound, operand, sizes):
            return None
    types = [result_type(e, call, kernel, bound, operands, sizes) for bound in results]
    if None in types:
        return None
    made = e.make("kernel", tuple(operands), types[0], call, item=kernel.name)
    e.outputs[made.value] = tuple(e.make("output", (made,), t, call, index=i) for i, t in enumerate(types[1:], 1))
    return made


def unify(e: Expressions, kernel: DeclaredKernel, bound, operand: Operand, sizes: dict[str, Unified]) -> bool:
    t, where = operand.type, Label(kernel.spans[bound.name], f"`{bound.name}` here")
    shape = f"[{', '.join(map(str, bound.dims))}]"
    if operand.is_const or t.rank != len(bound.dims):
        what = "a number" if operand.is_const else e.speech.type(operand)
        e.fail(kernel_argument(f"`{bound.name}` of `{kernel.name}` is {shape}, this is {what}", operand.span, what,
                               (where,), "pass a tensor of as many dimensions"))
        return False
    if any(isinstance(p, Partial) for p in t.placements):
        e.fail(kernel_argument(f"`{bound.name}` of `{kernel.name}` is Partial", operand.span, e.speech.type(operand),
                               (where,), "a kernel computes on whole values: reduce it first"))
        return False
    if bound.dtype is not None and bound.dtype != t.dtype.value:
        e.fail(kernel_argument(f"`{bound.name}` of `{kernel.name}` is {bound.dtype}", operand.span, t.dtype.value,
                               (where,), "cast it"))
        return False
    if not wide_enough(e, kernel, bound, t.dtype, operand.span):
        return False
    for i, (own, size) in enumerate(zip(bound.dims, t.shape, strict=True)):
        axes = tuple(axis for axis, p in enumerate(t.placements) if shards(p, i))
        if not isinstance(own, DimRef):
            if own != size or axes:
                e.fail(kernel_argument(f"dimension {i} of `{bound.name}` is {own}, this is {operand.dim_text(i)}",
                                       operand.span, e.speech.type(operand), (where,), "the kernel item says so"))
                return False
            continue
        known = sizes.setdefault(own.name, Unified(size, axes, operand.dims[i], operand, i))
        if (known.size, known.axes) != (size, axes):
            first = known.operand
            said = f"`{own.name}` is {first.dim_text(known.dim)} in {e.speech.type(first)}"
            labels = (Label(first.span, said), where)
            e.fail(kernel_argument(
                f"`{own.name}` of `{kernel.name}` is {first.dim_text(known.dim)} and {operand.dim_text(i)}"
                + ("" if known.axes == axes else ", sharded in one of them"),
                operand.span, e.speech.type(operand), labels, "a size is the same, and placed alike, everywhere",
            ))  # fmt: skip
            return False
    return True


def wide_enough(e: Expressions, kernel: DeclaredKernel, bound, dtype: DType, span) -> bool:
    """Does a tensor descriptor move 16 bytes of a row at once?"""
    block = kernel.binding.block_of(bound)
    width = block[-1] * dtype.bytes if block else LEAST_BYTES
    if width < LEAST_BYTES:
        where = Label(kernel.spans[bound.name], f"`{bound.name}` here")
        e.fail(kernel_argument(f"a block of `{bound.name}` has rows of {width} bytes in {dtype.value}", span,
                               f"{block[-1]} elements", (where,), f"a descriptor moves {LEAST_BYTES} at least"))
    return width >= LEAST_BYTES


def result_type(
    e: Expressions, call: nodes.Call, kernel: DeclaredKernel, bound: BoundTensor, operands: list[Operand],
    sizes: dict[str, Unified],
) -> Typed | None:  # fmt: skip
    where = Label(kernel.spans[bound.name], f"the result `{bound.name}`")
    shape: list[SymSize] = []
    names: list[str | None] = []
    for d in bound.dims:
        if isinstance(d, DimRef) and d.name not in sizes:
            what = f"`{d.name}` of the result is a size of no argument"
            e.fail(kernel_argument(what, call.span, "this call", (where,), "its sizes are those of the arguments"))
            return None
        known = sizes[d.name] if isinstance(d, DimRef) else None
        shape.append(known.size if known else d)
        names.append(known.name if known else None)
    placements: list[Placement] = [Replicate()] * len(e.file.mesh.axes)
    for name, known in sizes.items():
        if not known.axes:
            continue
        places = [i for i, d in enumerate(bound.dims) if d == DimRef(name)]
        labels = (Label(known.operand.span, e.speech.type(known.operand)), where)
        if not places and (bound.name, name) not in kernel.sums:
            e.fail(kernel_size_sharded(name, "and the result does not have it", call.span, labels,
                                       f"gather it, or write `sum {name}` behind the result if it is added over"))
            return None
        if any(placements[axis] != Replicate() for axis in known.axes) or len(places) > 1:
            e.fail(kernel_size_sharded(name, "and so is another size of the result, over the same axis", call.span,
                                       labels, "gather one of them"))
            return None
        for axis in known.axes:
            placements[axis] = Shard(places[0]) if places else Partial()
    dtype = DType(bound.dtype) if bound.dtype else operands[0].type.dtype
    if not wide_enough(e, kernel, bound, dtype, call.span):
        return None
    return Typed(TensorType(dtype, tuple(shape), tuple(placements)), tuple(names))
