"""CD36: products that the library computes, `compute = library`, and what cannot be around them."""

from __future__ import annotations

from chunkdsl.check.registry import Finding, rule
from chunkdsl.diagnostics import Label
from chunkdsl.source import Span

GENERATED = "write compute = generated"


@rule("CD360", "library-product-has-no-tile")
def library_has_no_tile(key: str, span: Span, product: Span) -> Finding:
    """`tile`, `stages` and `warps` shape the emitted kernel; the library chooses its own kernel for every call.

    Fails:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[512, 512 @ tp]
        op f(x, w) -> y { y = all_gather(x) @ w with { compute = library, tile = 128x128x64 } }

    Mended:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[512, 512 @ tp]
        op f(x, w) -> y { y = all_gather(x) @ w with { compute = library } }
    """
    what = f"`{key}` says nothing about a product that the library computes"
    label = Label(product, "compute = library")
    return Finding(what, span, "the library chooses its own kernel", (label,), help=f"leave it out, or {GENERATED}")


@rule("CD361", "library-product-out-of-reach")
def library_out_of_reach(what: str, span: Span, instead: str = GENERATED) -> Finding:
    """The library multiplies matrices that are there: it neither waits, nor sends, nor walks shards in its loop.

    So its calls stand in the stream, one for each chunk of rows: behind a wait for a chunk that a copy engine brings,
    or before a copy engine that carries on what a call has left. Built are that, and products of what lies on this
    rank, over one mesh axis and of contiguous shards. What comes or goes otherwise is for the emitted kernel: by
    programs, along a ring or a plan, to all ranks at once, gathered as the right operand, and `a.T @ b`.

    Fails:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[512, 512 @ tp]
        op f(x, w) -> y { y = all_gather(x) @ w with { compute = library, via = ldst } }

    Mended:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[512, 512 @ tp]
        op f(x, w) -> y { y = all_gather(x) @ w with { compute = library, via = copy_engine } }
    """
    return Finding(f"the library cannot compute {what}", span, "compute = library", help=instead)


@rule("CD362", "library-addends-are-the-product")
def library_addends(what: str, span: Span, instead: str) -> Finding:
    """What a reduction adds up is sent as the library leaves it: the product itself, rounded to its own dtype.

    A pointwise rest below the collective would be a pass of its own between a chunk's product and its transfer, and
    another `wire` a cast. Above the collective, on the sum, anything may follow.

    Fails:
        mesh tp[2]
        dim M = 1..4096
        tensor h : bf16[M, 512 @ tp]
        tensor w : bf16[512 @ tp, 512]
        op f(h, w) -> y { y = reduce_scatter(2 * (h @ w), M) with { compute = library } }

    Mended:
        mesh tp[2]
        dim M = 1..4096
        tensor h : bf16[M, 512 @ tp]
        tensor w : bf16[512 @ tp, 512]
        op f(h, w) -> y { y = 2 * reduce_scatter(h @ w, M) with { compute = library } }
    """
    return Finding(f"the addends are {what}", span, "more than the library's product", help=instead)
