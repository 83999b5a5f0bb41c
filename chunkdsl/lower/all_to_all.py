"""The type of `all_to_all(t, D1 -> D2)`: which mesh axis, is the operand placed as it must be, what comes out."""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.check import all_to_all as rules
from chunkdsl.check import axes as axis_rules
from chunkdsl.check import shapes as shape_rules
from chunkdsl.diagnostics import Diagnostic, Edit, Fix
from chunkdsl.ir.types import Partial, Shard
from chunkdsl.lower import placements as table
from chunkdsl.lower.operands import Operand, Speech
from chunkdsl.lower.operators import Typed
from chunkdsl.syntax import nodes


def all_to_all(
    call: nodes.Call, t: Operand, move: nodes.MoveArg, axis: int | None, speech: Speech
) -> tuple[Typed, int, int, int] | Diagnostic:
    """Shard(D1) -> Shard(D2) over one axis. The type, the axis, D1 and D2. `axis` None: the one that shards D1. Onto a
    D2 that outer axes have cut: the axis is then the innermost."""
    names = move.source.text, move.target.text
    dims = [_dimension(n.text, n.span, t, speech) for n in (move.source, move.target)]
    if (wrong := next((d for d in dims if isinstance(d, Diagnostic)), None)) is not None:
        return wrong
    source, target = dims
    if source == target:
        others = [n for n in t.dims if n not in (None, names[0])]
        fix = Fix(f"move it to {others[0]}", (Edit(move.target.span, others[0]),)) if others else None
        return rules.all_to_all_of_one_dimension(names[0], move.span, fix or speech.unwrap(call, t))
    shards = table.axes_of(t.type, Shard)
    fitting = [i for i in shards if t.type.placements[i].dim == source]
    if axis is None and len(fitting) > 1:
        return axis_rules.axis_not_clear("all_to_all", tuple(map(speech.axis, fitting)), call.function.span)
    found = axis if axis is not None else next(iter(fitting), -1)
    placement = t.type.placements[found] if found >= 0 else None
    if placement != Shard(source):
        return _misplaced(call, t, move, (source, target), found, speech)
    inner = [i for i in fitting if i > found]
    if inner:
        return axis_rules.shards_out_of_order(speech.axis(found), speech.axis(inner[-1]), call.span,
                                              "this would leave strided shards", f"move {speech.axis(inner[-1])} first")
    taken = next((i for i in shards if t.type.placements[i].dim == target and i > found), None)
    if taken is not None:
        return rules.all_to_all_onto_sharded(names[1], speech.axis(taken), move.target.span, t.labels())
    placements = list(t.type.placements)
    placements[found] = Shard(target)
    return Typed(replace(t.type, placements=tuple(placements)), t.dims), found, source, target


def _dimension(name: str, span, t: Operand, speech: Speech) -> int | Diagnostic:
    if t.dims.count(name) == 1:
        return t.dims.index(name)
    known = [n for n in t.dims if n is not None]
    many = t.dims.count(name) > 1
    hint = "give one of them a name of its own: `dim M2 = M`" if many else (
        f"its dimensions are {', '.join(known)}" if known else "its dimensions have no names: declare a `dim`")
    why = "is two dimensions of the operand" if many else "is not a dimension of the operand"
    return shape_rules.dimension_not_in_tensor(name, speech.type(t), span, t.labels(), why, hint)


def _misplaced(call: nodes.Call, t: Operand, move: nodes.MoveArg, dims, axis: int, speech: Speech) -> Diagnostic:
    """Why an operand that is not Shard(D1) cannot be moved from D1, with what would mend it."""
    shard = next((i for i in ([axis] if axis >= 0 else range(len(t.type.placements)))
                  if isinstance(t.type.placements[i], Shard)), None)
    source, target = move.source.text, move.target.text
    if shard is not None:
        there = t.type.placements[shard]
        name = t.dim_text(there.dim)
        if there.dim == dims[1]:
            fixes = (Fix(f"move it from {target} to {source}", (Edit(move.span, f"{target} -> {source}"),)),
                     speech.unwrap(call, t))
            hint = f"it is sharded along {target} already; the other way is `{target} -> {source}`"
        else:
            fixes = (Fix(f"move it from {name}", (Edit(move.source.span, name),)),) if t.dims[there.dim] else ()
            hint = f"name the dimension that is sharded: {name}"
        return rules.all_to_all_from_other_dimension(source, f"{there} ({name})", f" over {speech.axis(shard)}",
                                                   move.source.span, t.labels(), hint, fixes)
    partial = next((i for i in ([axis] if axis >= 0 else range(len(t.type.placements)))
                    if isinstance(t.type.placements[i], Partial)), None)
    if partial is not None:
        inner = speech.source.slice(t.span)
        text = f"reduce_scatter({inner}, {target}{speech.over('reduce_scatter', partial)})"
        return rules.all_to_all_needs_shard("Partial", f" over {speech.axis(partial)}", t.span, t.labels(),
                                          f"reduce_scatter makes a Partial Shard({target})",
                                          (Fix("write reduce_scatter", (Edit(call.span, text),)),))
    over = speech.axis(axis) if axis >= 0 else ", ".join(a.name for a in speech.mesh.axes)
    return rules.all_to_all_needs_shard("Replicate", f" over {over}", t.span, t.labels(),
                                      "it is whole on every rank already", (speech.unwrap(call, t),))
