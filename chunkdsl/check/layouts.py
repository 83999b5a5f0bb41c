"""Rules about layouts of shards other than contiguous ones: zigzag and cyclic. CD620 to CD625.

What a layout is, and which element lies where, is in `ir/layouts.py`.
"""

from __future__ import annotations

from chunkdsl.check.registry import Finding, rule
from chunkdsl.diagnostics import Fix, Label
from chunkdsl.source import Span


@rule("CD620", "layouts-differ")
def layouts_differ(
    found: str, axis: str, span: Span, other: Label, labels: tuple[Label, ...], hint: str, fixes: tuple[Fix, ...]
) -> Finding:
    """Two operands are sharded along the same dimension over the same axis, but their shards hold different elements.

    Rank 0 has the first and the last block of a zigzag dimension, and the first rows of a contiguous one: element by
    element they do not belong together, even where the local shapes fit. Both need one layout. A reduce_scatter takes
    it with the dimension, `reduce_scatter(t, M @ zigzag(tp))`; a tensor has it in its declaration; a gathered value
    has none.

    Fails:
        mesh tp[4]
        dim M = 1..64
        dim F = 128
        tensor a : bf16[M, F @ tp]
        tensor w : bf16[32, F @ tp]
        tensor r : bf16[M @ zigzag(tp), 32]
        op f(a, w, r) -> y { y = reduce_scatter(a @ w.T, M) + r }

    Mended:
        mesh tp[4]
        dim M = 1..64
        dim F = 128
        tensor a : bf16[M, F @ tp]
        tensor w : bf16[32, F @ tp]
        tensor r : bf16[M @ zigzag(tp), 32]
        op f(a, w, r) -> y { y = reduce_scatter(a @ w.T, M @ zigzag(tp)) + r }
    """
    return Finding(f"operands are sharded in different layouts over {axis}", span, f"this is {found}",
                   (other, *labels), hint, fixes)


@rule("CD621", "layout-argument")
def layout_argument(layout: str, why: str, span: Span, instead: str, fixes: tuple[Fix, ...]) -> Finding:
    """`zigzag(axis)` takes an axis alone, `cyclic(axis, n)` also the size of its blocks, which is at least 16.

    A zigzag dimension is cut into two blocks for each rank, whatever its size. The blocks of a cyclic one are dealt to
    the ranks in turn. Smaller ones than 16 would make a run of their own of almost every row: tiles would read and
    write rows that lie apart, and a proof would follow each of them.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ cyclic(tp), 32]
        op f(x) -> y { y = x * 2 }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ cyclic(tp, 16), 32]
        op f(x) -> y { y = x * 2 }
    """
    return Finding(f"`{layout}` {why}", span, "here", help=instead, fixes=fixes)


@rule("CD622", "layout-on-two-axes")
def layout_on_two_axes(what: str, span: Span, label: str, instead: str, fixes: tuple[Fix, ...] = ()) -> Finding:
    """A dimension with a layout is cut by one mesh axis, and ops that use it communicate over that axis.

    On a mesh of two axes a tensor may have a zigzag or cyclic dimension, and the other axis may cut another one. What
    is not built: a layout of both axes together; a dimension that the two axes cut one after the other, one of them in
    a layout; and an op over the other axis, whose ranks would hold rows of uneven sizes that no axis of its own has
    cut. Such an op takes contiguous shards, or the whole.

    Fails:
        mesh dp[2], tp[4]
        dim M = 1..64
        dim F = 128
        tensor x : bf16[M @ zigzag(dp), F @ tp]
        tensor w : bf16[32, F @ tp]
        op f(x, w) -> y { y = all_reduce(x @ w.T) }

    Mended:
        mesh dp[2], tp[4]
        dim M = 1..64
        dim F = 128
        tensor x : bf16[M @ dp, F @ tp]
        tensor w : bf16[32, F @ tp]
        op f(x, w) -> y { y = all_reduce(x @ w.T) }
    """
    return Finding(what, span, label, help=instead, fixes=fixes)


@rule("CD623", "layout-not-built-here")
def layout_not_built_here(what: str, layout: str, span: Span, labels: tuple[Label, ...], instead: str) -> Finding:
    """A construct that this version builds for contiguous shards alone: all_to_all, and sharded arguments of users'
    kernels.

    The blocks of an all_to_all are boxes of rows and columns, and a strided shard is no box. A user's kernel may go by
    the number of a row, and in a zigzag or cyclic shard rows that follow one another are not neighbours. A gathered
    value is in the global order, and everything takes it.

    Fails:
        mesh tp[4]
        dim M = 1..64
        dim H = 256
        tensor x : bf16[M @ zigzag(tp), H]
        op f(x) -> y { y = all_to_all(x, M -> H) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        dim H = 256
        tensor x : bf16[M @ zigzag(tp), H]
        op f(x) -> y { y = all_gather(x) * 2 }
    """
    return Finding(f"{what} of the layout {layout}", span, "built for contiguous shards alone", labels, instead)


@rule("CD624", "layout-rows-by-pointers")
def layout_rows_by_pointers(collective: str, layout: str, span: Span | None) -> Finding:
    """Tiles that send rows of a whole matrix into a zigzag or cyclic placement read and send them by pointers: `ldst`.

    The rows of such a shard lie apart in the matrix that is multiplied. A TMA descriptor describes a box, so these
    tiles load row by row, and their launch has no TMA: with `via = tma` it would not do what it says. A gather is not
    concerned: its chunks are contiguous in the shard and travel by copy engine, TMA or loads and stores.

    Fails:
        mesh tp[4]
        dim M = 1..64
        dim F = 128
        tensor a : bf16[M, F @ tp]
        tensor w : bf16[32, F @ tp]
        op f(a, w) -> y { y = reduce_scatter(a @ w.T, M @ zigzag(tp)) with { via = tma } }

    Mended:
        mesh tp[4]
        dim M = 1..64
        dim F = 128
        tensor a : bf16[M, F @ tp]
        tensor w : bf16[32, F @ tp]
        op f(a, w) -> y { y = reduce_scatter(a @ w.T, M @ zigzag(tp)) with { via = ldst } }
    """
    return Finding(f"{collective} by TMA into the layout {layout}", span, "its rows lie apart",
                   help="write via = ldst, or leave `via` out")


@rule("CD625", "layouts-meet-in-a-product")
def layouts_meet_in_a_product(gathered: str, scattered: str, span: Span, other: Span) -> Finding:
    """One product gathers its rows in one layout and reduces them in another.

    Tiles of a product go through the shards in which its rows arrive, and signal those in which its sums leave. They
    are one sequence, so both collectives need one layout (an all_reduce has a contiguous one). Bound to a name, the
    product has rows in the global order, and the reduction may cut them as it likes.

    Fails:
        mesh tp[4]
        dim M = 1..64
        dim F = 128
        tensor x : bf16[M @ zigzag(tp), F]
        tensor w : bf16[32, F]
        tensor s : bf16[32] sum tp
        op f(x, w, s) -> y { y = reduce_scatter((all_gather(x) @ w.T) * s, M) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        dim F = 128
        tensor x : bf16[M @ zigzag(tp), F]
        tensor w : bf16[32, F]
        tensor s : bf16[32] sum tp
        op f(x, w, s) -> y { y = reduce_scatter((all_gather(x) @ w.T) * s, M @ zigzag(tp)) }
    """
    return Finding(f"rows arrive in the layout {gathered} and leave in the layout {scattered}", span,
                   f"leaves as {scattered}", (Label(other, f"arrives as {gathered}"),),
                   help="give both one layout, or bind the product to a name first")
