"""Rules about `gradient` items."""

from __future__ import annotations

from chunkdsl.check.registry import Finding, rule
from chunkdsl.diagnostics import Label
from chunkdsl.source import Span


@rule("CD286", "gradient-not-derived")
def gradient_not_derived(what: str, span: Span, labels: tuple[Label, ...], instead: str) -> Finding:
    """A gradient is derived for products of matrices, also of those picked from a stack, collectives, pointwise
    functions, `rms_norm`, and vectors that are added or multiplied to every row.

    What else an op holds has no rule here, and a gradient that leaves something out would be wrong without a word.

    Fails:
        mesh tp[2]
        dim M = 8..64 step 8
        tensor x : bf16[M @ tp, 64]
        tensor c : bf16[M @ tp, 1]
        op f(x, c) -> y { y = x * c }
        gradient f -> dx, dc

    Mended:
        mesh tp[2]
        dim M = 8..64 step 8
        tensor x : bf16[M @ tp, 64]
        tensor c : bf16[64]
        op f(x, c) -> y { y = x * c }
        gradient f -> dx, dc
    """
    return Finding(f"the gradient of {what} is not derived", span, "no gradient through this", labels, help=instead)


@rule("CD287", "wrong-number-of-gradients")
def wrong_number_of_gradients(op: str, params: tuple[str, ...], found: int, span: Span, label: Label) -> Finding:
    """A `gradient` names one result for each parameter of its op, in their order.

    Fails:
        mesh tp[2]
        dim M = 8..64 step 8
        tensor x : bf16[M @ tp, 64]
        tensor w : bf16[64 @ tp, 64]
        op f(x, w) -> y { y = all_gather(x) @ w.T }
        gradient f -> dx

    Mended:
        mesh tp[2]
        dim M = 8..64 step 8
        tensor x : bf16[M @ tp, 64]
        tensor w : bf16[64 @ tp, 64]
        op f(x, w) -> y { y = all_gather(x) @ w.T }
        gradient f -> dx, dw
    """
    message = f"`{op}` has {len(params)} parameter{'s' * (len(params) != 1)}, its gradient {found}"
    names = ", ".join(f"d{p}" for p in params)
    return Finding(message, span, f"{found} here", (label,), help=f"one for each parameter: {names}")


@rule("CD291", "gradient-of-other-dtype")
def gradient_of_other_dtype(name: str, dtype: str, own: str, span: Span) -> Finding:
    """A gradient has the dtype of its tensor, or `as f32` what its product or sum was accumulated in.

    Rounding it to another half would lose bits that the tensor has. With `as f32` nothing is rounded on the way to an
    f32 `.grad`, in which gradients of many micro-batches add up.

    Fails:
        mesh tp[2]
        dim M = 8..64 step 8
        tensor x : bf16[M @ tp, 64]
        tensor w : bf16[64 @ tp, 64]
        op f(x, w) -> y { y = all_gather(x) @ w.T }
        gradient f -> dx, dw as f16

    Mended:
        mesh tp[2]
        dim M = 8..64 step 8
        tensor x : bf16[M @ tp, 64]
        tensor w : bf16[64 @ tp, 64]
        op f(x, w) -> y { y = all_gather(x) @ w.T }
        gradient f -> dx, dw as f32
    """
    return Finding(f"the gradient `{name}` of a {own} tensor cannot be {dtype}", span, "", help=f"`as f32`, or {own}")


@rule("CD288", "saved-value-not-needed")
def saved_value_not_needed(name: str, span: Span, needed: tuple[str, ...]) -> Finding:
    """What `saves` names is kept from the forward to the backward pass: parameters and statements that the backward
    pass reads. Anything else would take memory for nothing. What is not saved is computed, or gathered, again.

    Fails:
        mesh tp[2]
        dim M = 8..64 step 8
        tensor x : bf16[M @ tp, 64]
        tensor w : bf16[64 @ tp, 64]
        op f(x, w) -> y { y = all_gather(x) @ w.T }
        gradient f -> dx, dw saves y

    Mended:
        mesh tp[2]
        dim M = 8..64 step 8
        tensor x : bf16[M @ tp, 64]
        tensor w : bf16[64 @ tp, 64]
        op f(x, w) -> y { y = all_gather(x) @ w.T }
        gradient f -> dx, dw saves x
    """
    what = f"it reads {', '.join(needed)}" if needed else "it reads nothing"
    return Finding(f"the backward pass does not read `{name}`", span, "saved for nothing", help=what)


@rule("CD670", "gradient-of-update-in-place")
def gradient_of_update_in_place(name: str, span: Span, label: Label) -> Finding:
    """An op with `inout` parameters has no gradient.

    Autograd follows results. Of a tensor that a call writes over, the value before is what the backward pass may need,
    and what is done with the value behind it would give no gradient to the op. Return the new value as a result.

    Fails:
        mesh tp[2]
        dim M = 8..64 step 8
        tensor p : bf16[M, 64] sum tp
        tensor r : bf16[M, 64]
        op f(p, r inout) -> y {
            r = r + all_reduce(p)
            y = r * 2
        }
        gradient f -> dp, dr

    Mended:
        mesh tp[2]
        dim M = 8..64 step 8
        tensor p : bf16[M, 64] sum tp
        tensor r : bf16[M, 64]
        op f(p, r) -> s, y {
            s = r + all_reduce(p)
            y = s * 2
        }
        gradient f -> dp, dr
    """
    return Finding(f"the op updates `{name}` in place, so it has no gradient", span, "its gradient is asked for here",
                   (label,), help="return the new value as a result")  # fmt: skip
