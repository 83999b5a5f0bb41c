"""`zigzag(tp)`, `cyclic(tp, 128)`: what stands behind the `@` of a dimension -> a layout of `ir/layouts.py`.

In a type it is a `nodes.Layout`; in `reduce_scatter(t, M @ zigzag(tp))` it is parsed as an expression and read here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chunkdsl.check import layouts as rules
from chunkdsl.check import names as name_rules
from chunkdsl.check.unbuilt import not_built_yet
from chunkdsl.diagnostics import Diagnostic, Edit, Fix, Label
from chunkdsl.ir.layouts import CONTIGUOUS, Cyclic, Layout, Zigzag
from chunkdsl.ir.types import Shard
from chunkdsl.lower.nearest import Nearest
from chunkdsl.lower.operands import Operand, Speech
from chunkdsl.source import Span
from chunkdsl.syntax import nodes

LAYOUTS = ("zigzag", "cyclic", "ragged")
LEAST_BLOCK = 16
_NEAR_LAYOUT = Nearest(LAYOUTS)


@dataclass(frozen=True)
class Written:
    """A layout as it was written; `axes` is how it reads without one."""

    kind: str
    kind_span: Span
    axes: str
    count: int  # of axes
    argument: int | None
    span: Span


def as_written(layout: nodes.Layout) -> Written:
    names = [n.text for n in layout.axes.names]
    axes = names[0] if len(names) == 1 else f"({', '.join(names)})"
    return Written(layout.kind.text, layout.kind.span, axes, len(names), layout.argument, layout.span)


def find_layout(w: Written) -> Layout | Diagnostic:
    """The layout, or what is wrong with it."""
    text = f"{w.kind}({w.axes}{'' if w.argument is None else f', {w.argument}'})"
    plain = (Fix(f"use contiguous shards: {w.axes}", (Edit(w.span, w.axes),)),)
    if w.kind not in LAYOUTS:
        return name_rules.unknown_name(w.kind, w.kind_span, "a layout", _NEAR_LAYOUT.of(w.kind),
                                       "layouts are zigzag, cyclic, ragged")
    if w.kind == "ragged":
        return not_built_yet("the layout `ragged`", w.span, f"use contiguous shards: `@ {w.axes}`")
    if w.count > 1:
        return rules.layout_on_two_axes(f"the layout `{text}` of two axes together", w.span, "a layout is of one axis",
                                        f"use contiguous shards: `@ {w.axes}`", plain)
    if w.kind == "zigzag":
        if w.argument is None:
            return Zigzag()
        mended = f"zigzag({w.axes})"
        why = "has no blocks of a fixed size"
    else:
        if w.argument is not None and w.argument >= LEAST_BLOCK:
            return Cyclic(w.argument)
        mended = f"cyclic({w.axes}, {128 if w.argument is None else LEAST_BLOCK})"
        why = "needs the size of its blocks" if w.argument is None else f"has blocks of less than {LEAST_BLOCK}"
    return rules.layout_argument(text, why, w.span, f"write `{mended}`", (Fix(f"write {mended}", (
        Edit(w.span, mended),)),))


def dimension_and_place(node: nodes.Expr) -> tuple[nodes.Ref, nodes.Ref | None, Written | None] | None:
    """The second argument of a reduce_scatter: `M`, `M @ tp` or `M @ zigzag(tp)`, as (dimension, axis, layout). None if
    it is none of them."""
    if isinstance(node, nodes.Ref):
        return node, None, None
    if not (isinstance(node, nodes.Binary) and node.op == "@" and isinstance(node.left, nodes.Ref)):
        return None
    place = node.right
    if isinstance(place, nodes.Ref):
        return node.left, place, None
    if not (isinstance(place, nodes.Call) and 1 <= len(place.args) <= 2 and isinstance(place.args[0], nodes.Ref)):
        return None
    argument = place.args[1].value if len(place.args) == 2 and isinstance(place.args[1], nodes.Literal) else None
    if len(place.args) == 2 and not isinstance(argument, int):
        return None
    axis = place.args[0]
    return node.left, axis, Written(place.function.text, place.function.span, axis.name, 1, argument, place.span)


def clash_of_layouts(a: Operand, b: Operand, axis: int, speech: Speech) -> Diagnostic:
    """Two operands that are cut alike, but dealt out differently. The mend is offered at a reduce_scatter in place."""
    name = speech.axis(axis)
    odd, other = (a, b) if a.type.placements[axis].layout == CONTIGUOUS else (b, a)
    wanted = other.type.placements[axis].layout
    fixes: tuple[Fix, ...] = ()
    dim = odd.dims[odd.type.placements[axis].dim] or "M"
    hint = f"give both one layout, such as `{dim} @ {wanted.over(name)}`, or gather one of them"
    node = odd.node.inner if isinstance(odd.node, nodes.Group) else odd.node
    if isinstance(node, nodes.Call) and node.function.text == "reduce_scatter" and len(node.args) >= 2:
        text = f"{dim} @ {wanted.over(name)}"
        fixes = (Fix(f"scatter it to {text}", (Edit(node.args[1].span, text),)),)
        hint = f"`reduce_scatter(..., {text})`"
    label = Label(other.span, f"{other.type.placements[axis]} over {name}")
    return rules.layouts_differ(f"{odd.type.placements[axis]} over {name}", name, odd.span, label,
                                (*odd.labels(), *other.labels()), hint, fixes)


def refuse_layouts(what: str, operands: list[Operand], span: Span, fail: Callable, instead: str) -> bool:
    """Refuse a construct that takes contiguous shards alone. True if an operand has others."""
    for o in operands:
        for p in o.type.placements:
            if isinstance(p, Shard) and p.layout != CONTIGUOUS:
                fail(rules.layout_not_built_here(what, str(p.layout), span, o.labels(), instead))
                return True
    return False
