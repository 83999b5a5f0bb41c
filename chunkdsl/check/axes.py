"""Rules about mesh axes in placements: each once in a tensor, outer before inner, no doubt which. CD215 to CD218."""

from __future__ import annotations

from chunkdsl.check.registry import Finding, rule
from chunkdsl.diagnostics import Label
from chunkdsl.source import Span


@rule("CD215", "shards-out-of-order")
def shards_out_of_order(outer: str, inner: str, span: Span, why: str, hint: str) -> Finding:
    """Of two axes that shard one dimension, the outer one cuts first; anything else would leave strided shards.

    Gather the inner axis before the outer one, scatter over the outer axis first, and write axes outer first.

    Fails:
        mesh node[2], gpu[4]
        dim M = 1..64
        tensor x : bf16[M @ (node, gpu), 32]
        op f(x) -> y { y = all_gather(x, over = node) }

    Mended:
        mesh node[2], gpu[4]
        dim M = 1..64
        tensor x : bf16[M @ (node, gpu), 32]
        op f(x) -> y { y = all_gather(x, over = gpu) }
    """
    return Finding(f"{outer} is the outer axis and {inner} the inner one", span, why, (), hint)


@rule("CD216", "axis-used-twice")
def axis_used_twice(axis: str, span: Span, first: Span) -> Finding:
    """A mesh axis shards, or sums, a tensor once.

    Fails:
        mesh tp[4]
        dim M = 1..64
        dim K = 256
        tensor x : bf16[M @ tp, K @ tp]
        op f(x) -> y { y = all_gather(x) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        dim K = 256
        tensor x : bf16[M @ tp, K]
        op f(x) -> y { y = all_gather(x) }
    """
    return Finding(f"axis {axis} is used twice in one tensor", span, "the second time", (Label(first, "the first"),),
                   "on each axis a tensor is exactly one of Shard(d), Replicate, Partial")


@rule("CD217", "axis-shards-and-sums")
def axis_shards_and_sums(axis: str, span: Span, first: Span) -> Finding:
    """On one mesh axis a tensor is Shard(d) or Partial, not both.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor p : bf16[M @ tp, 32] sum tp
        op f(p) -> y { y = all_reduce(p) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor p : bf16[M, 32] sum tp
        op f(p) -> y { y = all_reduce(p) }
    """
    return Finding(f"axis {axis} both shards and sums one tensor", span, f"Partial over {axis}",
                   (Label(first, f"Shard over {axis}"),), "leave one of them out")


@rule("CD218", "axis-not-clear")
def axis_not_clear(function: str, axes: tuple[str, ...], span: Span) -> Finding:
    """A collective leaves out `over`, and more than one mesh axis fits.

    Fails:
        mesh dp[2], tp[4]
        dim M = 1..64
        dim K = 256
        tensor x : bf16[M @ dp, K @ tp]
        op f(x) -> y { y = all_gather(x) }

    Mended:
        mesh dp[2], tp[4]
        dim M = 1..64
        dim K = 256
        tensor x : bf16[M @ dp, K @ tp]
        op f(x) -> y { y = all_gather(x, over = tp) }
    """
    return Finding(f"{function} could be over {' or '.join(axes)}", span, "more than one axis fits", (),
                   f"say which: `over = {axes[-1]}`")
