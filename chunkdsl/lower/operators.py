"""Types of the operators: matmul, elementwise, transpose, pick, cast. Shapes, dtypes, then placements axis by axis.

Each function returns a `Typed`, or the one `Diagnostic` that says what is wrong. Collectives are in `collectives.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chunkdsl.check import placements as rules
from chunkdsl.check import shapes as shape_rules
from chunkdsl.diagnostics import Diagnostic, Edit, Fix, Label
from chunkdsl.ir.dump import shape_text, size_text
from chunkdsl.ir.layouts import CONTIGUOUS
from chunkdsl.ir.types import DType, Partial, Placement, Shard, TensorType, shards
from chunkdsl.lower import placements as table
from chunkdsl.lower.layouts import clash_of_layouts
from chunkdsl.lower.operands import Operand, Speech
from chunkdsl.lower.placements import Clash
from chunkdsl.source import Span
from chunkdsl.syntax import nodes

ELEMENTWISE = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
NONLINEAR = ("gelu", "relu", "silu", "tanh")


@dataclass(frozen=True)
class Typed:
    """A result's type and its dimensions' names."""

    type: TensorType
    dims: tuple[str | None, ...]


@dataclass(frozen=True)
class Enclosing:
    """The reduction whose whole argument is being typed, to say where an addend belongs instead."""

    call: nodes.Call
    is_statement: bool


def matmul(a: Operand, b: Operand, speech: Speech) -> Typed | Diagnostic:
    """`a @ b`: [m, k] @ [k, n] -> [m, n]."""
    for o in (a, b):
        if o.type.rank != 2:
            what = "a number is not a matrix: `@`" if o.is_const else "`@`"
            return shape_rules.not_a_matrix(what, shape_text(o.type.shape, o.dims), o.span, _matrix_hint(o, speech))
    if a.type.shape[1] != b.type.shape[0]:
        return _contracted_sizes(a, b, speech)
    dtype = _dtype(a, b, speech)
    if isinstance(dtype, Diagnostic):
        return dtype
    left, right = _contracted_axis(a, 1), _contracted_axis(b, 0)
    if left is not None and right is not None and left != right:
        hint = f"gather one of them: {speech.whole(a, left)[0].removeprefix('gather it: ')} or " + (
            speech.whole(b, right)[0].removeprefix("gather it: "))
        return rules.contracted_dim_sharded_over_two_axes(
            a.dim_text(1), speech.axis(left), a.span, speech.label(b, right), (*a.labels(), *b.labels()), hint)
    placements: list[Placement] = []
    for axis, (p, q) in enumerate(zip(a.type.placements, b.type.placements, strict=True)):
        found = table.matmul_axis(p, q)
        if isinstance(found, Clash):
            return _matmul_clash(found, a, b, axis, speech)
        placements.append(found)
    shape = (a.type.shape[0], b.type.shape[1])
    return Typed(TensorType(dtype, shape, tuple(placements)), (a.dims[0], b.dims[1]))


def elementwise(op: str, a: Operand, b: Operand, speech: Speech, inside: Enclosing | None = None) -> Typed | Diagnostic:
    """`a op b` for + - * /, with broadcasting of trailing dimensions. Not both are numbers."""
    rule = {"+": table.add_axis, "-": table.add_axis, "*": table.mul_axis, "/": table.div_axis}[op]
    return _aligned(rule, op, a, b, speech, inside)


def swiglu(a: Operand, b: Operand, speech: Speech) -> Typed | Diagnostic:
    """`silu(a) * b`."""
    return _aligned(table.swiglu_axis, "swiglu", a, b, speech, None)


def nonlinear(function: str, t: Operand, speech: Speech) -> Typed | Diagnostic:
    for axis, p in enumerate(t.type.placements):
        if isinstance(table.nonlinear_axis(p), Clash):
            return _nonlinear_clash(function, t, axis, speech)
    return Typed(t.type, t.dims)


def transpose(t: Operand, speech: Speech) -> Typed | Diagnostic:
    if t.type.rank != 2:
        return shape_rules.not_a_matrix("`.T`", shape_text(t.type.shape, t.dims), t.span, _matrix_hint(t, speech))
    placements = tuple(table.transpose_axis(p) for p in t.type.placements)
    return Typed(TensorType(t.type.dtype, t.type.shape[::-1], placements), t.dims[::-1])


def pick(t: Operand, index: int, least: Callable, span: Span, speech: Speech) -> Typed | Diagnostic:
    """`t[index]`. `least` gives the smallest value of a size."""
    if t.type.rank == 0:
        return shape_rules.index_out_of_range(index, "none: it is a scalar", span, t.labels())
    size = t.type.shape[0]
    if not 0 <= index < least(size):
        shown = size_text(size) if isinstance(size, int) else f"{size_text(size)}, which may be {least(size)}"
        return shape_rules.index_out_of_range(index, shown, span, t.labels())
    placements: list[Placement] = []
    for axis, p in enumerate(t.type.placements):
        found = table.pick_axis(p)
        if isinstance(found, Clash):
            hint, fixes = speech.whole(t, axis)
            return rules.pick_of_sharded_dim(speech.axis(axis), t.span, t.labels(), hint, fixes)
        placements.append(found)
    return Typed(TensorType(t.type.dtype, t.type.shape[1:], tuple(placements)), t.dims[1:])


def cast(t: Operand, dtype: DType) -> Typed:
    return Typed(TensorType(dtype, t.type.shape, t.type.placements), t.dims)


def _aligned(rule: Callable, op: str, a: Operand, b: Operand, speech: Speech, inside: Enclosing | None):
    dtype = _dtype(a, b, speech)
    if isinstance(dtype, Diagnostic):
        return dtype
    rank = max(a.type.rank, b.type.rank)
    left = (1,) * (rank - a.type.rank) + a.type.shape
    right = (1,) * (rank - b.type.rank) + b.type.shape
    for d, (x, y) in enumerate(zip(left, right, strict=True)):
        if x != y and 1 not in (x, y):
            why = f"dimension {d - rank}: {size_text(x)} and {size_text(y)}"
            return shape_rules.shapes_do_not_broadcast(
                shape_text(a.type.shape, a.dims), shape_text(b.type.shape, b.dims), a.span.cover(b.span),
                (*a.labels(), *b.labels()), why)
    shape = tuple(y if x == 1 else x for x, y in zip(left, right, strict=True))
    has = table.own_extent(a.type, shape), table.own_extent(b.type, shape)
    placements: list[Placement] = []
    for axis, (p, q) in enumerate(zip(a.type.placements, b.type.placements, strict=True)):
        p, q = table.in_result(p, a.type.rank, rank), table.in_result(q, b.type.rank, rank)
        found = rule(p, q, *has)
        if isinstance(found, Clash):
            return _aligned_clash(found, op, a, b, axis, speech, inside)
        placements.append(found)
    names = [(None,) * (rank - len(o.dims)) + o.dims for o in (a, b)]
    dims = tuple((n if has[0](d) else None) or (m if has[1](d) else None) for d, (n, m) in
                 enumerate(zip(*names, strict=True)))
    return Typed(TensorType(dtype, shape, tuple(placements)), dims)


def _dtype(a: Operand, b: Operand, speech: Speech) -> DType | Diagnostic:
    """The operands' one dtype; numbers and f32 scalars go with any."""
    weak = [o.is_const or (o.type.rank == 0 and o.type.dtype is DType.F32) for o in (a, b)]
    if weak[0] != weak[1]:
        return (b if weak[0] else a).type.dtype
    if a.type.dtype is b.type.dtype:
        return a.type.dtype
    keep, mend = (a, b) if a.type.rank >= b.type.rank else (b, a)
    text = f"cast({speech.source.slice(mend.span)}, {keep.type.dtype.value})"
    fix = Fix(f"cast it to {keep.type.dtype.value}", (Edit(mend.span, text),))
    labels = (Label(keep.span, f"{keep.type.dtype.value} here"), *mend.labels(), *keep.labels())
    return shape_rules.dtypes_differ(a.type.dtype.value, b.type.dtype.value, mend.span,
                                     f"{mend.type.dtype.value} here", labels, (fix,))


def _contracted_axis(t: Operand, dim: int) -> int | None:
    return next((i for i, p in enumerate(t.type.placements) if shards(p, dim)), None)


def _matrix_hint(t: Operand, speech: Speech) -> str:
    if t.type.rank == 3:
        return f"pick one matrix: `{speech.text(t.span)}[0]`"
    return "a vector can be declared as a matrix with one row or column" if t.type.rank == 1 else ""


def _contracted_sizes(a: Operand, b: Operand, speech: Speech) -> Diagnostic:
    fixes: tuple[Fix, ...] = ()
    hint = "the columns of the left operand are contracted with the rows of the right one"
    if a.type.shape[1] == b.type.shape[1]:  # an nn.Linear weight without its .T
        text = speech.source.slice(b.span)
        plain = isinstance(b.node, nodes.Ref | nodes.Pick | nodes.Group | nodes.Call)
        new = b.span if not isinstance(b.node, nodes.Attr) else b.node.span
        drop = isinstance(b.node, nodes.Attr)
        mended = speech.source.slice(b.node.base.span) if drop else f"{text}.T" if plain else f"({text}).T"
        fixes = (Fix("drop the transpose" if drop else "transpose it", (Edit(new, mended),)),)
        hint = f"{'drop the transpose' if drop else 'transpose it'}: `{' '.join(mended.split())}`"
    label = f"{speech.type(b)}: {b.dim_text(0)} rows"
    labels = (Label(a.span, f"{speech.type(a)}: {a.dim_text(1)} columns"), *a.labels(), *b.labels())
    return shape_rules.contracted_sizes_differ(_sized(a, 1), _sized(b, 0), b.span, label, labels, fixes, hint)


def _sized(t: Operand, dim: int) -> str:
    name, size = t.dims[dim], size_text(t.type.shape[dim])
    return size if name is None or name == size else f"{name} = {size}"


def _matmul_clash(clash: Clash, a: Operand, b: Operand, axis: int, speech: Speech) -> Diagnostic:
    name, both = speech.axis(axis), (*a.labels(), *b.labels())
    if clash is Clash.LAYOUTS:
        return clash_of_layouts(a, b, axis, speech)
    if clash is Clash.CONTRACTED:
        s, other, dim = (a, b, 1) if shards(a.type.placements[axis], 1) else (b, a, 0)
        hint, fixes = speech.whole(s, axis)
        return rules.contracted_dim_sharded_on_one_side(
            a.dim_text(1), name, s.span, speech.label(other, axis), (*s.labels(), *other.labels()),
            f"{hint}, or shard {s.dim_text(dim)} alike on both sides", fixes)
    if clash is Clash.ROWS_AND_COLUMNS:
        left, right = speech.whole(a, axis), speech.whole(b, axis)
        other = Label(b.span, f"the columns: Shard(1) over {name}")
        hint = f"{left[0]}, or {right[0].removeprefix('gather it: ')}"
        return rules.rows_and_columns_on_one_axis(name, a.span, other, both, hint, (*left[1], *right[1]))
    return _product_clash(clash, a, b, axis, speech)


def _aligned_clash(clash: Clash, op: str, a: Operand, b: Operand, axis: int, speech: Speech,
                   inside: Enclosing | None) -> Diagnostic:
    if clash is Clash.PARTIAL_AND_WHOLE:
        return _partial_and_whole(op, a, b, axis, speech, inside)
    if clash is Clash.NONLINEAR:
        t = a if isinstance(a.type.placements[axis], Partial) else b
        return _nonlinear_clash(op, t, axis, speech)
    if clash is Clash.DIVISOR:
        hint, fixes = speech.whole(b, axis)
        return rules.division_by_partial(speech.axis(axis), b.span, b.labels(), hint, fixes)
    if clash is Clash.LAYOUTS:
        return clash_of_layouts(a, b, axis, speech)
    if clash is Clash.UNLIKE:
        s, other = (a, b) if isinstance(a.type.placements[axis], Shard) else (b, a)
        alone = not isinstance(other.type.placements[axis], Shard)
        hint, fixes = speech.whole(s, axis) if alone else ("gather one of them, or declare them alike", ())
        return rules.operands_sharded_unlike(
            speech.axis(axis), _placed(s, axis), _placed(other, axis), s.span, speech.label(other, axis),
            (*s.labels(), *other.labels()), hint + (", or shard the other one alike" if alone else ""), fixes)
    return _product_clash(clash, a, b, axis, speech)


def _product_clash(clash: Clash, a: Operand, b: Operand, axis: int, speech: Speech) -> Diagnostic:
    p, other = (a, b) if isinstance(a.type.placements[axis], Partial) else (b, a)
    labels = (*p.labels(), *other.labels())
    if clash is Clash.BOTH_PARTIAL:
        hint = f"reduce one of them: {speech.whole(p, axis)[0].removeprefix('reduce it: ')}"
        return rules.product_of_partials(speech.axis(axis), p.span, speech.label(other, axis), labels, hint, ())
    hint, fixes = speech.whole(other, axis)
    return rules.partial_times_shard(speech.axis(axis), p.span, speech.label(other, axis), labels, hint, fixes)


def _nonlinear_clash(function: str, t: Operand, axis: int, speech: Speech) -> Diagnostic:
    hint, fixes = speech.whole(t, axis)
    scatter = "" if t.type.rank == 0 else f", or reduce_scatter({speech.text(t.span)}, {t.dim_text(0)}) to a Shard"
    return rules.nonlinearity_of_partial(function, speech.axis(axis), t.span, t.labels(), hint + scatter, fixes)


def _partial_and_whole(op: str, a: Operand, b: Operand, axis: int, speech: Speech, inside: Enclosing | None):
    p, whole = (a, b) if isinstance(a.type.placements[axis], Partial) else (b, a)
    placement = whole.type.placements[axis]
    hint, fixes = speech.whole(p, axis)
    cut = speech.source.slice
    if inside is not None and whole.type.rank < p.type.rank:
        call = inside.call
        before = speech.source.text[call.span.start : call.args[0].span.start]
        after = speech.source.text[call.args[0].span.end : call.span.end]
        reduced = f"{before}{cut(p.span)}{after}"
        text = f"{reduced} {op} {cut(whole.span)}" if p is a else f"{cut(whole.span)} {op} {reduced}"
        text = text if inside.is_statement else f"({text})"
        hint, fixes = f"`{' '.join(text.split())}`", (Fix("add it after the reduction", (Edit(call.span, text),)),)
    elif isinstance(placement, Shard):
        d = placement.dim + p.type.rank - whole.type.rank
        name = p.dims[d] if 0 <= d < p.type.rank else None
        hint, fixes = "reduce_scatter makes the Partial a Shard", ()
        if name is not None:
            place = "" if placement.layout == CONTIGUOUS else f" @ {placement.layout.over(speech.axis(axis))}"
            text = f"reduce_scatter({cut(p.span)}, {name}{place}{speech.over('reduce_scatter', axis)})"
            hint, fixes = f"`{' '.join(text.split())}`", (Fix("reduce it with reduce_scatter", (Edit(p.span, text),)),)
    found = "number" if whole.is_const else str(placement)
    return rules.partial_plus_whole(found, speech.axis(axis), whole.span, speech.label(p, axis),
                                    (*whole.labels(), *p.labels()), hint, fixes)


def _placed(t: Operand, axis: int) -> str:
    placement = t.type.placements[axis]
    return f"{placement} (dimension {t.dim_text(placement.dim)})" if isinstance(placement, Shard) else str(placement)
