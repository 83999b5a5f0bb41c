"""Types of the collectives: which mesh axis, is the operand placed as it must be, what comes out.

Each function returns what the value needs, or the one `Diagnostic` that says what is wrong.
"""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.check import axes as axis_rules
from chunkdsl.check import placements as rules
from chunkdsl.check import shapes as shape_rules
from chunkdsl.check.layouts import layout_on_two_axes
from chunkdsl.diagnostics import Diagnostic, Edit, Fix
from chunkdsl.ir.layouts import CONTIGUOUS, Layout
from chunkdsl.ir.types import Partial, Placement, Replicate, Shard, TensorType, shards
from chunkdsl.lower import placements as table
from chunkdsl.lower.operands import Operand, Speech
from chunkdsl.lower.operators import Typed
from chunkdsl.source import Span
from chunkdsl.syntax import nodes


def all_gather(call: nodes.Call, t: Operand, axis: int | None, speech: Speech) -> tuple[Typed, int, int] | Diagnostic:
    """Shard(d) -> Replicate over one axis. The type, the axis and d. `axis` None: the one that fits."""
    axis = _pick_axis("all_gather", t, axis, Shard, call, speech)
    if isinstance(axis, Diagnostic):
        return axis
    placement = t.type.placements[axis] if axis >= 0 else Replicate()
    if not isinstance(placement, Shard):
        partial = axis if isinstance(placement, Partial) else next(iter(table.axes_of(t.type, Partial)), None)
        if partial is not None:
            fix = Fix("write all_reduce", (Edit(call.function.span, "all_reduce"),))
            return rules.gather_needs_shard("Partial", f" over {speech.axis(partial)}", t.span, t.labels(),
                                            "all_reduce makes a Partial Replicate", (fix,))
        return rules.gather_needs_shard("Replicate", _over(axis, speech), t.span, t.labels(),
                                        "it is whole on every rank already", (speech.unwrap(call, t),))
    inner = [i for i, p in enumerate(t.type.placements) if i > axis and shards(p, placement.dim)]
    if inner:
        name, outer = speech.axis(inner[-1]), speech.axis(axis)
        hint = f"gather {name} first, in an op of its own, or both together: over = ({outer}, {name})"
        return axis_rules.shards_out_of_order(outer, name, call.span, "this would leave strided shards", hint)
    return Typed(_with(t.type, axis, Replicate()), t.dims), axis, placement.dim


def reduce_scatter(
    call: nodes.Call, t: Operand, name: str, span: Span, axis: int | None, speech: Speech, layout: Layout = CONTIGUOUS
) -> tuple[Typed, int, int] | Diagnostic:
    """Partial -> Shard(dimension `name`) over one axis, in a layout. The type, the axis and the dimension."""
    axis = _pick_axis("reduce_scatter", t, axis, Partial, call, speech)
    if isinstance(axis, Diagnostic):
        return axis
    placement = t.type.placements[axis] if axis >= 0 else Replicate()
    if not isinstance(placement, Partial):
        shard = axis if isinstance(placement, Shard) else next(iter(table.axes_of(t.type, Shard)), None)
        if shard is not None:
            found = t.type.placements[shard]
            same = t.dims[found.dim] == name
            hint = "it is that shard already" if same else "the addends of a sum can be scattered, a Shard has none"
            return rules.scatter_needs_partial(str(found), f" over {speech.axis(shard)}", t.span, t.labels(), hint,
                                               (speech.unwrap(call, t),) if same else ())
        return rules.scatter_needs_partial("Replicate", _over(axis, speech), t.span, t.labels(),
                                           "each rank has the whole sum already; there is nothing to add up", ())
    if t.dims.count(name) != 1:
        many = t.dims.count(name) > 1
        known = [n for n in t.dims if n is not None]
        why = "is two dimensions of the operand" if many else "is not a dimension of the operand"
        hint = "give one of them a name of its own: `dim M2 = M`" if many else (
            f"its dimensions are {', '.join(known)}" if known else "its dimensions have no names: declare a `dim`")
        return shape_rules.dimension_not_in_tensor(name, speech.type(t), span, t.labels(), why, hint)
    dim = t.dims.index(name)
    inner = [i for i, p in enumerate(t.type.placements) if i > axis and shards(p, dim)]
    if inner:
        return axis_rules.shards_out_of_order(speech.axis(axis), speech.axis(inner[0]), call.span,
                                         f"{speech.axis(inner[0])} has cut {name} already",
                                         f"scatter over {speech.axis(axis)} first")
    outer = next((p.layout for i, p in enumerate(t.type.placements) if i < axis and shards(p, dim)), None)
    if outer is not None and (outer, layout) != (CONTIGUOUS, CONTIGUOUS):
        odd = outer if outer != CONTIGUOUS else layout
        return layout_on_two_axes(f"{name} would be cut by two axes, one of them in the layout {odd}", span,
                                  "a dimension with a layout is cut by one axis", "use contiguous shards of both")
    return Typed(_with(t.type, axis, Shard(dim, layout)), t.dims), axis, dim


def all_reduce(call: nodes.Call, t: Operand, axis: int | None, speech: Speech) -> tuple[Typed, int] | Diagnostic:
    """Partial -> Replicate over one axis. The type and the axis."""
    axis = _pick_axis("all_reduce", t, axis, Partial, call, speech)
    if isinstance(axis, Diagnostic):
        return axis
    placement = t.type.placements[axis] if axis >= 0 else Replicate()
    if not isinstance(placement, Partial):
        shard = axis if isinstance(placement, Shard) else next(iter(table.axes_of(t.type, Shard)), None)
        if shard is not None:
            fix = Fix("write all_gather", (Edit(call.function.span, "all_gather"),))
            return rules.reduce_needs_partial(str(t.type.placements[shard]), f" over {speech.axis(shard)}", t.span,
                                              t.labels(), "all_gather makes a Shard Replicate", (fix,))
        return rules.reduce_needs_partial("Replicate", _over(axis, speech), t.span, t.labels(),
                                          "each rank has the whole value already", (speech.unwrap(call, t),))
    return Typed(_with(t.type, axis, Replicate()), t.dims), axis


def _pick_axis(function: str, t: Operand, axis: int | None, kind: type[Placement], call: nodes.Call,
               speech: Speech) -> int | Diagnostic:
    """The axis that `over` names, or the only one of the wanted placement; -1 if none has it."""
    if axis is not None:
        return axis
    fitting = table.axes_of(t.type, kind)
    if len(fitting) > 1:
        return axis_rules.axis_not_clear(function, tuple(speech.axis(i) for i in fitting), call.function.span)
    return fitting[0] if fitting else -1


def _with(type: TensorType, axis: int, placement: Placement) -> TensorType:
    return replace(type, placements=(*type.placements[:axis], placement, *type.placements[axis + 1 :]))


def _over(axis: int, speech: Speech) -> str:
    return f" over {speech.axis(axis)}" if axis >= 0 else f" over {', '.join(a.name for a in speech.mesh.axes)}"
