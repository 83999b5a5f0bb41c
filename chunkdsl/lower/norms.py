"""The type of `rms_norm(t, g, eps = 1e-5)`: that of `t`, whose rows are whole on each rank; `g` scales the columns."""

from __future__ import annotations

from chunkdsl.check import exchanges as rules
from chunkdsl.diagnostics import Diagnostic
from chunkdsl.ir.dump import shape_text
from chunkdsl.ir.types import Replicate
from chunkdsl.lower import operators
from chunkdsl.lower.operands import Operand, Speech
from chunkdsl.lower.operators import Typed
from chunkdsl.syntax import nodes

EPS = 1e-5


def rms_norm(t: Operand, g: Operand, speech: Speech) -> Typed | Diagnostic:
    typed = operators.nonlinear("rms_norm", t, speech)
    if isinstance(typed, Diagnostic):
        return typed
    labels = (*t.labels(), *g.labels())
    if t.type.rank == 0:
        return rules.normalised_dim_not_whole("a scalar has no rows", t.span, labels)
    if t.type.axis_sharding(t.type.rank - 1) is not None:
        return rules.normalised_dim_not_whole("its rows are sharded", t.span, labels)
    if g.type.shape != t.type.shape[-1:]:
        has, wants = shape_text(g.type.shape, g.dims), shape_text(t.type.shape[-1:], t.dims[-1:])
        return rules.normalised_dim_not_whole(f"the scale has shape [{has}], the rows want [{wants}]", g.span, labels)
    if any(p != Replicate() for p in g.type.placements):
        return rules.normalised_dim_not_whole("the scale is not whole on each rank", g.span, labels)
    both = operators.elementwise("*", t, g, speech)  # one dtype for both
    return both if isinstance(both, Diagnostic) else typed


def epsilon(call: nodes.Call) -> float | None:
    """The value of `eps`, 1e-5 if it is left out; None if it is no positive number."""
    for arg in call.args:
        if isinstance(arg, nodes.KeywordArg):
            value = arg.value.value if isinstance(arg.value, nodes.Literal) else None
            return float(value) if value is not None and 0 < value < 1 else None
    return EPS
