"""Calls in tensor expressions: collectives, nonlinear functions, `swiglu`, `cast`. Arguments are matched and typed.

Functions that a later version builds are refused by one finding at the call. Of their arguments only the names are
looked up: what types they take is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from chunkdsl.check import axes as axis_rules
from chunkdsl.check import names as rules
from chunkdsl.check.unbuilt import not_built_yet
from chunkdsl.diagnostics import Diagnostic
from chunkdsl.ir.layouts import CONTIGUOUS
from chunkdsl.lower import all_to_all, collectives, norms, operators
from chunkdsl.lower.kernel_calls import lower_kernel_call
from chunkdsl.lower.layouts import dimension_and_place, find_layout, refuse_layouts
from chunkdsl.lower.nearest import Nearest
from chunkdsl.lower.operands import Operand
from chunkdsl.lower.operators import Enclosing
from chunkdsl.lower.tensors import BUILT_DTYPES, find_axis, find_dtype
from chunkdsl.syntax import nodes

if TYPE_CHECKING:
    from chunkdsl.lower.expressions import Expressions

USAGE = {
    "all_gather": "`all_gather(t)` or `all_gather(t, over = axis)`",
    "reduce_scatter": "`reduce_scatter(t, D)`, where D is the dimension to scatter, or `D @ zigzag(axis)`",
    "all_reduce": "`all_reduce(t)` or `all_reduce(t, over = axis)`",
    "all_to_all": "`all_to_all(t, D1 -> D2)`, from Shard(D1) to Shard(D2)",
    "gelu": "`gelu(t)`",
    "relu": "`relu(t)`",
    "silu": "`silu(t)`",
    "tanh": "`tanh(t)`",
    "swiglu": "`swiglu(a, b)`, which is silu(a) * b",
    "cast": "`cast(t, dtype)`",
    "rms_norm": "`rms_norm(t, g)` or `rms_norm(t, g, eps = 1e-5)`",
}
LATER = {
    "attention": "call your attention between ops of this file",
    "softmax": "compute it between ops of this file",
    "scaled_matmul": "use bf16 tensors and `@`",
    "dispatch": "route tokens outside the op",
    "grouped_matmul": "use one `@` for each expert: `x @ w[0].T`",
    "combine": "weigh and add outside the op",
}
_NEAR = Nearest((*USAGE, *LATER))


def lower_call(e: Expressions, call: nodes.Call) -> Operand | None:
    """The value of a call; None if anything in it was reported."""
    name = call.function.text
    if name in LATER:
        _look_at_names(e, call)
        return None
    if name in e.file.kernels:
        return lower_kernel_call(e, call, e.file.kernels[name])
    if name not in USAGE:
        _look_at_names(e, call)
        names = e.file.names
        if names.kind_of(name) in ("kernel", "plan") or name in names.lost:
            e.fail()  # refused where it is declared
        elif name in e.bound or names.kind_of(name):
            known = "ops do not call ops" if names.kind_of(name) == "op" else "a name of something else"
            e.fail(rules.unknown_function(name, call.function.span, (), known))
        else:
            e.fail(rules.unknown_function(name, call.function.span, _NEAR.of(name)))
        return None
    return _FUNCTIONS[name](e, call)


def _all_gather(e: Expressions, call: nodes.Call) -> Operand | None:
    args = _match(e, call, 1, ("over",))
    if args is None:
        return None
    t, axes = e.lower(call.args[0]), _over(e, call)
    if t is None or axes is None or not _is_tensor(e, call, t):
        return None
    # of several axes the inner one first
    return _along(e, call, t, axes[::-1], lambda t, axis: collectives.all_gather(call, t, axis, e.speech))


def _reduce_scatter(e: Expressions, call: nodes.Call) -> Operand | None:
    args = _match(e, call, 2, ("over",))
    if args is None:
        return None
    t, axes = e.lower(call.args[0], _enclosing(e, call)), _over(e, call)
    to = dimension_and_place(call.args[1])
    if to is None:
        span = call.args[1].span
        e.fail(rules.wrong_arguments("reduce_scatter", span, "takes a dimension's name", USAGE["reduce_scatter"]))
        return None
    name, axis, written = to
    if not e.file.dims.is_dim(name.name, name.span):
        e.fail()
        return None
    layout = CONTIGUOUS if written is None else find_layout(written)
    if isinstance(layout, Diagnostic):
        e.fail(layout)
        return None
    if axis is not None:
        placed = find_axis(axis.name, axis.span, e.file.names, e.file.mesh, e.file.report)
        if placed is None:
            e.fail()
            return None
        if axes and axes != (placed,):
            e.fail(rules.wrong_arguments("reduce_scatter", axis.span, "has another axis in `over`", "name it once"))
            return None
        axes = axes if axes is None else (placed,)
    if t is None or axes is None or not _is_tensor(e, call, t):
        return None

    def typed(t: Operand, axis: int | None):
        return collectives.reduce_scatter(call, t, name.name, name.span, axis, e.speech, layout)

    return _along(e, call, t, axes, typed)  # of several axes the outer one first


def _all_reduce(e: Expressions, call: nodes.Call) -> Operand | None:
    args = _match(e, call, 1, ("over",))
    if args is None:
        return None
    t, axes = e.lower(call.args[0], _enclosing(e, call)), _over(e, call)
    if t is None or axes is None or not _is_tensor(e, call, t):
        return None
    return _along(e, call, t, axes, lambda t, axis: collectives.all_reduce(call, t, axis, e.speech))


def _along(e: Expressions, call: nodes.Call, t: Operand, axes: tuple[int, ...], typed: Callable) -> Operand | None:
    """A collective over the axes in this order, each typed on what the one before leaves. Over two axes that move the
    same dimension it is one operation among the ranks of both."""
    first, kind, made = t, call.function.text, []
    for axis in axes or (None,):
        found = typed(t, axis)
        if isinstance(found, Diagnostic):
            e.fail(found)
            return None
        type, index, *dim = found
        made.append((index, *dim))
        attrs = {"axis": index} | dict(zip(("dim",), dim, strict=False))
        if len(made) == 2 and made[0][1:] == made[1][1:]:
            t, attrs = first, attrs | {"axis": min(axes), "inner": max(axes)}
        t = e.make(kind, (t,), type, call, dim[0] if dim else 0, **attrs)
        if t is None:
            return None
    return t


def _all_to_all(e: Expressions, call: nodes.Call) -> Operand | None:
    moves = [a for a in call.args if isinstance(a, nodes.MoveArg)]
    if len(moves) != 1 or call.args[1:2] != tuple(moves):
        why = "takes a tensor, then one `D1 -> D2`"
        e.fail(rules.wrong_arguments("all_to_all", call.span, why, USAGE["all_to_all"]))
        return None
    args = _match(e, replace(call, args=tuple(a for a in call.args if a is not moves[0])), 1, ("over",))
    if args is None:
        return None
    t, axes, names = e.lower(call.args[0]), _over(e, call), (moves[0].source, moves[0].target)
    if not all([e.file.dims.is_dim(n.text, n.span) for n in names]):
        e.fail()
        return None
    if t is None or axes is None or not _is_tensor(e, call, t):
        return None
    if len(axes) > 1:
        e.fail(rules.wrong_arguments("all_to_all", call.span, "moves the shards of one axis", "`over = axis`"))
        return None
    if refuse_layouts("an all_to_all", [t], call.span, e.fail, "gather it: all_gather(t) is in the global order"):
        return None
    found = all_to_all.all_to_all(call, t, moves[0], axes[0] if axes else None, e.speech)
    if isinstance(found, Diagnostic):
        e.fail(found)
        return None
    typed, index, source, target = found
    return e.make("all_to_all", (t,), typed, call, 0, axis=index, source=source, target=target)


def _nonlinear(e: Expressions, call: nodes.Call) -> Operand | None:
    args = _match(e, call, 1)
    t = e.lower(call.args[0]) if args else None
    if t is None or not _is_tensor(e, call, t):
        return None
    return e.make(call.function.text, (t,), operators.nonlinear(call.function.text, t, e.speech), call)


def _swiglu(e: Expressions, call: nodes.Call) -> Operand | None:
    args = _match(e, call, 2)
    if not args:
        return None
    a, b = e.lower(call.args[0]), e.lower(call.args[1])
    if a is None or b is None or not (_is_tensor(e, call, a) and _is_tensor(e, call, b)):
        return None
    return e.make("swiglu", (a, b), operators.swiglu(a, b, e.speech), call)


def _cast(e: Expressions, call: nodes.Call) -> Operand | None:
    args = _match(e, call, 2)
    if not args:
        return None
    t, word = e.lower(call.args[0]), call.args[1]
    if not isinstance(word, nodes.Ref):
        e.fail(rules.wrong_arguments("cast", word.span, "takes a dtype's name", USAGE["cast"]))
        return None
    dtype = find_dtype(word)
    if isinstance(dtype, Diagnostic):
        e.fail(dtype)
        return None
    if dtype not in BUILT_DTYPES:
        e.fail(not_built_yet(f"a cast to {dtype.value}", word.span, "cast to bf16, f16 or f32"))
        return None
    if t is None or not _is_tensor(e, call, t):
        return None
    e.warn_cast(t, dtype)
    return e.make("cast", (t,), operators.cast(t, dtype), call)


def _rms_norm(e: Expressions, call: nodes.Call) -> Operand | None:
    args = _match(e, call, 2, ("eps",))
    if not args:
        return None
    t, g = e.lower(call.args[0]), e.lower(call.args[1])
    eps = norms.epsilon(call)
    if eps is None:
        e.fail(rules.wrong_arguments("rms_norm", call.args[2].span, "takes a positive number", USAGE["rms_norm"]))
    if t is None or g is None or eps is None or not (_is_tensor(e, call, t) and _is_tensor(e, call, g)):
        return None
    return e.make("rms_norm", (t, g), norms.rms_norm(t, g, e.speech), call, eps=eps)


_FUNCTIONS: dict[str, Callable] = {
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_reduce": _all_reduce,
    "all_to_all": _all_to_all,
    **dict.fromkeys(operators.NONLINEAR, _nonlinear),
    "swiglu": _swiglu,
    "cast": _cast,
    "rms_norm": _rms_norm,
}


def _match(e: Expressions, call: nodes.Call, count: int, keywords: tuple[str, ...] = ()) -> tuple | None:
    """The arguments, if there are `count` positional ones first and only known keywords after them, each once."""
    name, seen = call.function.text, set()
    positional = 0
    for arg in call.args:
        if isinstance(arg, nodes.MoveArg):
            e.fail(rules.wrong_arguments(name, arg.span, "takes no `A -> B`", USAGE[name]))
            return None
        if isinstance(arg, nodes.KeywordArg):
            word = arg.name.text
            if word not in keywords or word in seen:
                why = f"has `{word}` twice" if word in seen else f"takes no `{word}`"
                e.fail(rules.wrong_arguments(name, arg.name.span, why, USAGE[name]))
                return None
            seen.add(word)
        elif seen:
            e.fail(rules.wrong_arguments(name, arg.span, "takes keywords last", USAGE[name]))
            return None
        else:
            positional += 1
    if positional != count:
        want = f"takes {count} argument{'s' * (count > 1)}, this has {positional}"
        e.fail(rules.wrong_arguments(name, call.span, want, USAGE[name]))
        return None
    return call.args


def _over(e: Expressions, call: nodes.Call) -> tuple[int, ...] | None:
    """Axes named by `over`, outer first; empty if it is left out, None if one is unknown."""
    for arg in call.args:
        if not isinstance(arg, nodes.KeywordArg):
            continue
        match arg.value:
            case nodes.Axes(names=names):
                words = [(n.text, n.span) for n in names]
            case nodes.Ref(name=word, span=span):
                words = [(word, span)]
            case _:
                e.fail(rules.wrong_arguments(call.function.text, arg.span, "takes axes for `over`", "`over = axis`"))
                return None
        found = [find_axis(w, s, e.file.names, e.file.mesh, e.file.report) for w, s in words]
        if None in found or len(set(found)) < len(found):
            if None not in found:
                e.fail(rules.wrong_arguments(call.function.text, arg.span, "has an axis twice", "each axis once"))
            e.fail()
            return None
        if found != sorted(found):
            outer, inner = (e.file.mesh.axes[i].name for i in sorted(found))
            e.fail(axis_rules.shards_out_of_order(outer, inner, arg.value.span, "written inner first",
                                                  f"write `over = ({outer}, {inner})`"))
            return None
        return tuple(found)
    return ()


def _is_tensor(e: Expressions, call: nodes.Call, t: Operand) -> bool:
    if t.is_const:
        name = call.function.text
        e.fail(rules.wrong_arguments(name, t.span, "takes a tensor, this is a number", USAGE[name]))
    return not t.is_const


def _enclosing(e: Expressions, call: nodes.Call) -> Enclosing:
    return Enclosing(call, call is e.statement)


def _look_at_names(e: Expressions, node: nodes.Node) -> None:
    """Report unknown names, and functions of a later version, below a call that cannot be typed."""
    match node:
        case nodes.Ref():
            e.lower(node)
        case nodes.Call():
            if node.function.text in LATER:
                e.fail(not_built_yet(f"`{node.function.text}`", node.function.span, LATER[node.function.text]))
            dims = node.args[1:] if node.function.text in ("reduce_scatter", "cast") else ()
            for arg in node.args:
                if not (isinstance(arg, nodes.KeywordArg | nodes.MoveArg) or arg in dims):
                    _look_at_names(e, arg)
        case nodes.Binary():
            _look_at_names(e, node.left)
            _look_at_names(e, node.right)
        case nodes.Negate():
            _look_at_names(e, node.operand)
        case nodes.Attr() | nodes.Pick():
            _look_at_names(e, node.base)
        case nodes.Group():
            _look_at_names(e, node.inner)
