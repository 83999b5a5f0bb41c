"""Rules about placements, the types of the language: Shard(d), Replicate, Partial on each mesh axis. CD201 to CD214.

The functions are given what was found; they decide nothing (`lower/placements.py` does). Which axis, how often and in
what order is in `axes.py`.
"""

from __future__ import annotations

from chunkdsl.check.registry import Finding, rule
from chunkdsl.diagnostics import Fix, Label, Severity
from chunkdsl.source import Span


@rule("CD201", "gather-needs-shard")
def gather_needs_shard(
    found: str, axis: str, span: Span, labels: tuple[Label, ...], hint: str, fixes: tuple[Fix, ...]
) -> Finding:
    """`all_gather(t)` makes a whole tensor of its shards: `t` must be Shard(d).

    A Replicate is whole on every rank already. A Partial is whole in shape, but each rank holds only an addend:
    `all_reduce` sums it.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M, 32]
        op f(x) -> y { y = all_gather(x) * 2 }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) * 2 }
    """
    return Finding("all_gather needs a Shard", span, f"this is {found}{axis}", labels, hint, fixes)


@rule("CD202", "scatter-needs-partial")
def scatter_needs_partial(
    found: str, axis: str, span: Span, labels: tuple[Label, ...], hint: str, fixes: tuple[Fix, ...]
) -> Finding:
    """`reduce_scatter(t, D)` sums the addends of a Partial and leaves each rank a shard of the sum.

    Of anything else it would add whole tensors once per rank, or shards of different places.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = reduce_scatter(x, M) * 2 }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M, 32] sum tp
        op f(x) -> y { y = reduce_scatter(x, M) * 2 }
    """
    return Finding("reduce_scatter needs a Partial", span, f"this is {found}{axis}", labels, hint, fixes)


@rule("CD203", "contracted-dim-sharded-on-one-side")
def contracted_dim_sharded_on_one_side(
    dim: str, axis: str, span: Span, other: Label, labels: tuple[Label, ...], hint: str, fixes: tuple[Fix, ...]
) -> Finding:
    """In `a @ b` the contracted dimension is sharded on one side and not on the other.

    Each rank would multiply a part of the columns of `a` with all rows of `b`: the local shapes do not even fit.
    Sharded alike on both sides the product is a Partial, which `reduce_scatter` or `all_reduce` sums; else gather
    the sharded side.

    Fails:
        mesh tp[4]
        dim M = 1..64
        dim K = 256
        dim N = 128
        tensor x : bf16[M, K @ tp]
        tensor w : bf16[N, K]
        op f(x, w) -> y { y = x @ w.T }

    Mended:
        mesh tp[4]
        dim M = 1..64
        dim K = 256
        dim N = 128
        tensor x : bf16[M, K @ tp]
        tensor w : bf16[N, K @ tp]
        op f(x, w) -> y { y = all_reduce(x @ w.T) }
    """
    return Finding(
        f"the contracted dimension {dim} is sharded on one side only", span,
        f"Shard over {axis} here: each rank has a part of {dim}", (other, *labels), hint, fixes,
    )


@rule("CD204", "contracted-dim-sharded-over-two-axes")
def contracted_dim_sharded_over_two_axes(
    dim: str, axis: str, span: Span, other: Label, labels: tuple[Label, ...], hint: str
) -> Finding:
    """In `a @ b` the contracted dimension is sharded over one mesh axis on the left and over another on the right.

    Fails:
        mesh dp[2], tp[4]
        dim M = 1..64
        dim K = 256
        tensor x : bf16[M, K @ dp]
        tensor w : bf16[K @ tp, 128]
        op f(x, w) -> y { y = x @ w }

    Mended:
        mesh dp[2], tp[4]
        dim M = 1..64
        dim K = 256
        tensor x : bf16[M, K @ tp]
        tensor w : bf16[K @ tp, 128]
        op f(x, w) -> y { y = all_reduce(x @ w) }
    """
    return Finding(f"the contracted dimension {dim} is sharded over different axes", span, f"over {axis} here",
                   (other, *labels), hint)


@rule("CD205", "rows-and-columns-on-one-axis")
def rows_and_columns_on_one_axis(
    axis: str, span: Span, other: Label, labels: tuple[Label, ...], hint: str, fixes: tuple[Fix, ...]
) -> Finding:
    """In `a @ b` the rows of `a` and the columns of `b` are sharded over the same mesh axis.

    Rank r would compute block (r, r) of the product only. Usually the activation has to be gathered first.

    Fails:
        mesh tp[4]
        dim M = 1..64
        dim N = 128
        tensor x : bf16[M @ tp, 32]
        tensor w : bf16[N @ tp, 32]
        op f(x, w) -> y { y = x @ w.T }

    Mended:
        mesh tp[4]
        dim M = 1..64
        dim N = 128
        tensor x : bf16[M @ tp, 32]
        tensor w : bf16[N @ tp, 32]
        op f(x, w) -> y { y = all_gather(x) @ w.T }
    """
    return Finding(f"rows and columns are both sharded over {axis}", span, f"the rows: Shard(0) over {axis}",
                   (other, *labels), hint, fixes)


@rule("CD206", "partial-plus-whole")
def partial_plus_whole(
    found: str, axis: str, span: Span, other: Label, labels: tuple[Label, ...], hint: str, fixes: tuple[Fix, ...]
) -> Finding:
    """A Partial is added to something that is not Partial: it would be added once per rank.

    Each rank holds an addend of the sum; adding a bias to each addend adds it world-size times. Add it after the
    reduction.

    Fails:
        mesh tp[4]
        dim M = 1..64
        dim K = 256
        tensor x : bf16[M, K @ tp]
        tensor w : bf16[K @ tp, 128]
        tensor b : bf16[128]
        op f(x, w, b) -> y { y = reduce_scatter(x @ w + b, M) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        dim K = 256
        tensor x : bf16[M, K @ tp]
        tensor w : bf16[K @ tp, 128]
        tensor b : bf16[128]
        op f(x, w, b) -> y { y = reduce_scatter(x @ w, M) + b }
    """
    return Finding(f"a Partial and a {found} cannot be added: it would be added once per rank", span,
                   f"{found} over {axis}; add it after the reduction", (other, *labels), hint, fixes)


@rule("CD207", "product-of-partials")
def product_of_partials(
    axis: str, span: Span, other: Label, labels: tuple[Label, ...], hint: str, fixes: tuple[Fix, ...]
) -> Finding:
    """Two Partials are multiplied: the product of two sums is not the sum of the products.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor p : bf16[M, 32] sum tp
        tensor q : bf16[M, 32] sum tp
        op f(p, q) -> y { y = all_reduce(p * q) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor p : bf16[M, 32] sum tp
        tensor q : bf16[M, 32] sum tp
        op f(p, q) -> y { y = all_reduce(p * all_reduce(q)) }
    """
    return Finding("two Partials cannot be multiplied", span, f"Partial over {axis}", (other, *labels), hint, fixes)


@rule("CD208", "division-by-partial")
def division_by_partial(
    axis: str, span: Span, labels: tuple[Label, ...], hint: str, fixes: tuple[Fix, ...]
) -> Finding:
    """Something is divided by a Partial: a / (b + c) is not a / b + a / c.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M, 32]
        tensor p : bf16[M, 1] sum tp
        op f(x, p) -> y { y = x / p }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M, 32]
        tensor p : bf16[M, 1] sum tp
        op f(x, p) -> y { y = x / all_reduce(p) }
    """
    return Finding("a Partial cannot be a divisor", span, f"Partial over {axis}: each rank holds an addend", labels,
                   hint, fixes)


@rule("CD209", "nonlinearity-of-partial")
def nonlinearity_of_partial(
    function: str, axis: str, span: Span, labels: tuple[Label, ...], hint: str, fixes: tuple[Fix, ...]
) -> Finding:
    """A nonlinear function of a Partial: gelu(a + b) is not gelu(a) + gelu(b). Reduce first.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor p : bf16[M, 32] sum tp
        op f(p) -> y { y = all_reduce(gelu(p)) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor p : bf16[M, 32] sum tp
        op f(p) -> y { y = gelu(all_reduce(p)) }
    """
    return Finding(f"{function} of a Partial", span, f"Partial over {axis}: each rank holds an addend", labels, hint,
                   fixes)


@rule("CD210", "reduce-needs-partial")
def reduce_needs_partial(
    found: str, axis: str, span: Span, labels: tuple[Label, ...], hint: str, fixes: tuple[Fix, ...]
) -> Finding:
    """`all_reduce(t)` sums the addends of a Partial; `t` is not one.

    A Replicate is the whole value already and would come out world-size times too large; a Shard has nothing to add
    up with the other ranks' shards: `all_gather` makes it whole.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_reduce(x) * 2 }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) * 2 }
    """
    return Finding("all_reduce needs a Partial", span, f"this is {found}{axis}", labels, hint, fixes)


@rule("CD211", "operands-sharded-unlike")
def operands_sharded_unlike(
    axis: str, left: str, right: str, span: Span, other: Label, labels: tuple[Label, ...], hint: str,
    fixes: tuple[Fix, ...],
) -> Finding:
    """Elementwise operands must be sharded alike on every dimension that both have.

    A dimension that one of them lacks, or has with size 1, is broadcast and does not matter; a size-1 dimension must
    not be sharded itself, as most ranks would hold nothing of it.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        tensor r : bf16[M, 32]
        op f(x, r) -> y { y = x + r }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        tensor r : bf16[M @ tp, 32]
        op f(x, r) -> y { y = x + r }
    """
    return Finding(f"the operands are not sharded alike over {axis}: {left} and {right}", span, f"{left} here",
                   (other, *labels), hint, fixes)


@rule("CD212", "partial-times-shard")
def partial_times_shard(
    axis: str, span: Span, other: Label, labels: tuple[Label, ...], hint: str, fixes: tuple[Fix, ...]
) -> Finding:
    """A Partial is multiplied with, or divided by, a tensor that is sharded over the same axis.

    Each addend must be multiplied with the whole factor, of which each rank has a part only.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor p : bf16[M, 32] sum tp
        tensor s : bf16[M @ tp, 1]
        op f(p, s) -> y { y = reduce_scatter(p * s, M) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor p : bf16[M, 32] sum tp
        tensor s : bf16[M @ tp, 1]
        op f(p, s) -> y { y = reduce_scatter(p, M) * s }
    """
    return Finding(f"a Partial and a Shard over {axis} cannot be multiplied", span, f"Partial over {axis}",
                   (other, *labels), hint, fixes)


@rule("CD213", "pick-of-sharded-dim")
def pick_of_sharded_dim(
    axis: str, span: Span, labels: tuple[Label, ...], hint: str, fixes: tuple[Fix, ...]
) -> Finding:
    """`t[i]` picks from the leading dimension, which must not be sharded: only one rank would have slice i.

    Fails:
        mesh tp[4]
        dim E = 8
        tensor w : bf16[E @ tp, 128, 32]
        op f(w) -> y { y = w[0] * 2 }

    Mended:
        mesh tp[4]
        dim E = 8
        tensor w : bf16[E @ tp, 128, 32]
        op f(w) -> y { y = all_gather(w)[0] * 2 }
    """
    return Finding("the leading dimension is sharded", span, f"Shard(0) over {axis}: one rank alone has this slice",
                   labels, hint, fixes)


@rule("CD214", "cast-of-partial", Severity.WARNING)
def cast_of_partial(dtype: str, axis: str, span: Span, labels: tuple[Label, ...]) -> Finding:
    """`cast` of a Partial rounds each addend, not the sum. Cast after the reduction, or choose `wire` in a policy.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor p : f32[M, 32] sum tp
        op f(p) -> y { y = all_reduce(cast(p, bf16)) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor p : f32[M, 32] sum tp
        op f(p) -> y { y = cast(all_reduce(p), bf16) }
    """
    return Finding(f"cast to {dtype} rounds each addend of a Partial", span, f"Partial over {axis}", labels,
                   "cast the sum: put the reduction inside the cast")
