"""Rules about sizes, shapes and dtypes. CD220 to CD232. The functions are given what was found; they decide nothing."""

from __future__ import annotations

from chunkdsl.check.registry import Finding, rule
from chunkdsl.diagnostics import Fix, Label
from chunkdsl.source import Span


@rule("CD220", "contracted-sizes-differ")
def contracted_sizes_differ(
    left: str, right: str, span: Span, label: str, labels: tuple[Label, ...], fixes: tuple[Fix, ...], hint: str
) -> Finding:
    """`a @ b` contracts the columns of `a` with the rows of `b`: the two sizes must be the same.

    nn.Linear stores its weight as [out, in]: write `x @ w.T`. Run-time sizes are the same when they are the same
    expression over the declared dims.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        tensor w : bf16[128, 32]
        op f(x, w) -> y { y = x @ w }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        tensor w : bf16[128, 32]
        op f(x, w) -> y { y = x @ w.T }
    """
    return Finding(f"contracted sizes differ: {left} on the left, {right} on the right", span, label, labels, hint,
                   fixes)


@rule("CD221", "shapes-do-not-broadcast")
def shapes_do_not_broadcast(left: str, right: str, span: Span, labels: tuple[Label, ...], why: str) -> Finding:
    """Elementwise operands are aligned at their last dimensions; each pair must be equal, or one of them 1 or absent.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M, 32]
        tensor b : bf16[M]
        op f(x, b) -> y { y = x + b }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M, 32]
        tensor b : bf16[M, 1]
        op f(x, b) -> y { y = x + b }
    """
    return Finding(f"shapes [{left}] and [{right}] do not fit together", span, why, labels,
                   "trailing dimensions are aligned: a bias is [N], a column [M, 1]")


@rule("CD222", "not-a-matrix")
def not_a_matrix(what: str, shape: str, span: Span, hint: str) -> Finding:
    """`@` and `.T` take matrices: tensors of two dimensions.

    Of a packed weight [2, F, H], pick one matrix first: `w13[0].T`.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M, 32]
        tensor w13 : bf16[2, 128 @ tp, 32]
        op f(x, w13) -> y { y = x @ w13.T }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M, 32]
        tensor w13 : bf16[2, 128 @ tp, 32]
        op f(x, w13) -> y { y = x @ w13[0].T }
    """
    return Finding(f"{what} takes a matrix", span, f"this has shape [{shape}]", (), hint)


@rule("CD223", "index-out-of-range")
def index_out_of_range(index: int, size: str, span: Span, labels: tuple[Label, ...]) -> Finding:
    """`t[i]` picks one slice of the leading dimension; `i` must be below its size, for every size it can have.

    Fails:
        mesh tp[4]
        tensor w13 : bf16[2, 128 @ tp, 32]
        op f(w13) -> y { y = w13[2] * 2 }

    Mended:
        mesh tp[4]
        tensor w13 : bf16[2, 128 @ tp, 32]
        op f(w13) -> y { y = w13[1] * 2 }
    """
    return Finding(f"index {index} is out of range", span, f"the leading dimension has size {size}", labels,
                   "indices start at 0")


@rule("CD224", "dtypes-differ")
def dtypes_differ(
    left: str, right: str, span: Span, label: str, labels: tuple[Label, ...], fixes: tuple[Fix, ...]
) -> Finding:
    """The operands of an operation have one dtype; only numbers and f32 scalars (`f32[]`) go with any.

    A statement is evaluated in f32 and rounded once, to its operands' dtype: with two dtypes there would be no telling
    which. `cast(t, dtype)` says it.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        tensor b : f32[32]
        op f(x, b) -> y { y = x + b }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        tensor b : f32[32]
        op f(x, b) -> y { y = x + cast(b, bf16) }
    """
    return Finding(f"operands of two dtypes, {left} and {right}", span, label, labels,
                   "cast one of them: `cast(t, dtype)`", fixes)


@rule("CD225", "empty-range")
def empty_range(name: str, span: Span, why: str) -> Finding:
    """No value satisfies a dim's range. `low..high step n` holds the multiples of n from low to high, both included.

    Fails:
        mesh tp[4]
        dim M = 1..100 step 128

    Mended:
        mesh tp[4]
        dim M = 1..128 step 128
    """
    return Finding(f"the range of `{name}` holds no value", span, why)


@rule("CD226", "size-out-of-range")
def size_out_of_range(what: str, span: Span, why: str) -> Finding:
    """A fixed size must be at least 1 and a computed one never negative; neither may pass 2^62 elements.

    A computed size is judged over the whole range of the dims in it. A number in an op must be one that f32 holds.

    Fails:
        mesh tp[4]
        dim M = 1..4096
        dim R = M - 128

    Mended:
        mesh tp[4]
        dim M = 128..4096
        dim R = M - 128
    """
    return Finding(f"{what} is out of range", span, why)


@rule("CD227", "dimension-twice-in-tensor")
def dimension_twice_in_tensor(name: str, other: str, span: Span, first: Span, fixes: tuple[Fix, ...]) -> Finding:
    """A dimension name occurs once in a tensor, so that a name is enough to say which dimension is meant.

    Fails:
        mesh tp[4]
        dim H = 64
        tensor w : bf16[H @ tp, H]
        op f(w) -> y { y = all_gather(w) }

    Mended:
        mesh tp[4]
        dim H = 64
        dim H2 = H
        tensor w : bf16[H @ tp, H2]
        op f(w) -> y { y = all_gather(w) }
    """
    return Finding(f"dimension `{name}` is there twice in one tensor", span, "the second one",
                   (Label(first, "the first one"),), f"declare `dim {other} = {name}` and write `{other}` here", fixes)


@rule("CD228", "division-by-zero")
def division_by_zero(span: Span, why: str) -> Finding:
    """A size or a number is divided by something that is, or can be, zero.

    Fails:
        mesh tp[4]
        dim H = 64 / 0

    Mended:
        mesh tp[4]
        dim H = 64 / 2
    """
    return Finding("division by zero", span, why)


@rule("CD229", "dimension-not-in-tensor")
def dimension_not_in_tensor(
    name: str, type_text: str, span: Span, labels: tuple[Label, ...], why: str, hint: str
) -> Finding:
    """The dimension that `reduce_scatter(t, D)` scatters must be one of `t`, and only one of them.

    A product's dimensions are the rows of the left and the columns of the right operand.

    Fails:
        mesh tp[4]
        dim M = 1..64
        dim K = 256
        dim N = 128
        tensor h : bf16[M, K @ tp]
        tensor w : bf16[N, K @ tp]
        op f(h, w) -> y { y = reduce_scatter(h @ w.T, K) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        dim K = 256
        dim N = 128
        tensor h : bf16[M, K @ tp]
        tensor w : bf16[N, K @ tp]
        op f(h, w) -> y { y = reduce_scatter(h @ w.T, M) }
    """
    return Finding(f"`{name}` {why}", span, f"the operand is {type_text}", labels, hint)


@rule("CD230", "size-too-complex")
def size_too_complex(span: Span) -> Finding:
    """A computed size that multiplies, divides or nests more than any tensor needs (8 factors, 32 terms, 4 divisions).

    Fails:
        mesh tp[4]
        dim M = 1..2
        dim M4 = M * M * M * M
        dim M16 = M4 * M4 * M4 * M4

    Mended:
        mesh tp[4]
        dim M = 1..2
        dim M4 = M * M * M * M
    """
    return Finding("this size is too complex", span, "", (), "declare a dim of its own for a part of it")
