"""Rules about `all_to_all(t, D1 -> D2)`, which turns Shard(D1) into Shard(D2). CD294 to CD297.

The functions are given what was found; they decide nothing (`lower/all_to_all.py` does).
"""

from __future__ import annotations

from chunkdsl.check.registry import Finding, rule
from chunkdsl.diagnostics import Fix, Label
from chunkdsl.source import Span


@rule("CD294", "all-to-all-needs-shard")
def all_to_all_needs_shard(
    found: str, axis: str, span: Span, labels: tuple[Label, ...], hint: str, fixes: tuple[Fix, ...]
) -> Finding:
    """`all_to_all(t, D1 -> D2)` deals the shards of `t` out again: each rank gives every other one a part of its own.

    A Partial has no shards: each rank holds an addend of every element, and `reduce_scatter(t, D2)` makes Shard(D2) of
    it. Of a Replicate every rank has all already.

    Fails:
        mesh tp[4]
        dim M = 1..64
        dim H = 256
        tensor p : bf16[M, H] sum tp
        op f(p) -> y { y = all_to_all(p, H -> M) }

    Mended:
        mesh tp[4]
        dim M = 1..64
        dim H = 256
        tensor p : bf16[M, H @ tp]
        op f(p) -> y { y = all_to_all(p, H -> M) }
    """
    return Finding("all_to_all needs a Shard", span, f"this is {found}{axis}", labels, hint, fixes)


@rule("CD295", "all-to-all-of-one-dimension")
def all_to_all_of_one_dimension(name: str, span: Span, fix: Fix) -> Finding:
    """`all_to_all(t, D -> D)` would leave every element where it is.

    Fails:
        mesh tp[4]
        dim M = 1..64
        dim H = 256
        tensor x : bf16[M, H @ tp]
        op f(x) -> y { y = all_to_all(x, H -> H) * 2 }

    Mended:
        mesh tp[4]
        dim M = 1..64
        dim H = 256
        tensor x : bf16[M, H @ tp]
        op f(x) -> y { y = all_to_all(x, H -> M) * 2 }
    """
    return Finding(f"all_to_all from {name} to {name} moves nothing", span, "the same dimension twice", (),
                   "name the dimension that is sharded, then the one that shall be", (fix,))


@rule("CD296", "all-to-all-from-other-dimension")
def all_to_all_from_other_dimension(
    name: str, found: str, axis: str, span: Span, labels: tuple[Label, ...], hint: str, fixes: tuple[Fix, ...]
) -> Finding:
    """The first dimension of `D1 -> D2` must be the one along which the operand is sharded.

    Fails:
        mesh tp[4]
        dim M = 1..64
        dim H = 256
        tensor x : bf16[M @ tp, H]
        op f(x) -> y { y = all_to_all(x, H -> M) * 2 }

    Mended:
        mesh tp[4]
        dim M = 1..64
        dim H = 256
        tensor x : bf16[M @ tp, H]
        op f(x) -> y { y = all_to_all(x, M -> H) * 2 }
    """
    return Finding(f"the operand is not sharded along {name}", span, f"it is {found}{axis}", labels, hint, fixes)


@rule("CD297", "all-to-all-onto-sharded-dimension")
def all_to_all_onto_sharded(name: str, axis: str, span: Span, labels: tuple[Label, ...]) -> Finding:
    """The second dimension of `D1 -> D2` is sharded over an inner mesh axis already.

    The outer axis cuts first, everywhere. Cutting by it what an inner axis has cut would leave strided shards: gather
    the dimension first, or move the shards of the inner axis. Onto a dimension that an outer axis has cut the inner
    one may be moved.

    Fails:
        mesh dp[2], tp[4]
        dim M = 1..64
        dim H = 256
        tensor x : bf16[M @ tp, H @ dp]
        op f(x) -> y { y = all_to_all(x, H -> M, over = dp) * 2 }

    Mended:
        mesh dp[2], tp[4]
        dim M = 1..64
        dim H = 256
        tensor x : bf16[M @ dp, H @ tp]
        op f(x) -> y { y = all_to_all(x, H -> M, over = tp) * 2 }
    """
    return Finding(f"{name} is sharded over {axis} already, and that is an inner axis", span, f"over {axis}", labels,
                   f"gather it over {axis} first")
