"""Rules about policies: keys, values, and whether a key has something to apply to. CD260 to CD267."""

from __future__ import annotations

from chunkdsl.check.names import did_you_mean, replace_by
from chunkdsl.check.registry import Finding, rule
from chunkdsl.diagnostics import Label
from chunkdsl.source import Span


@rule("CD260", "unknown-policy")
def unknown_policy(name: str, span: Span, near: tuple[str, ...]) -> Finding:
    """`with NAME` names no declared policy and none of `overlap`, `decode`, `unfused`, which come with the language.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) with fast }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        policy fast { route = swizzle }
        op f(x) -> y { y = all_gather(x) with fast }
    """
    return Finding(f"`{name}` is not a policy", span, "", (), did_you_mean(near), replace_by(span, near))


@rule("CD261", "unknown-policy-key")
def unknown_policy_key(name: str, span: Span, near: tuple[str, ...], keys: tuple[str, ...]) -> Finding:
    """A policy has a closed set of keys; a misspelt one would silently leave the choice to the compiler.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) with { rout = swizzle } }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) with { route = swizzle } }
    """
    return Finding(f"a policy has no key `{name}`", span, "", (), did_you_mean(near) or f"keys are {' '.join(keys)}",
                   replace_by(span, near))


@rule("CD262", "policy-value-of-wrong-kind")
def policy_value_of_wrong_kind(key: str, span: Span, wanted: str, near: tuple[str, ...] = ()) -> Finding:
    """A policy value is not of the kind that its key takes, or not one of its words.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) with { route = sideways } }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) with { route = swizzle } }
    """
    hint = did_you_mean(near)
    return Finding(f"`{key}` takes {wanted}", span, "this is something else", (), hint, replace_by(span, near))


@rule("CD263", "policy-value-out-of-range")
def policy_value_out_of_range(key: str, span: Span, wanted: str) -> Finding:
    """A number in a policy is outside what its key allows.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M, 32]
        tensor w : bf16[32, 128 @ tp]
        op f(x, w) -> y { y = x @ w with { tile = 100x128x64 } }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M, 32]
        tensor w : bf16[32, 128 @ tp]
        op f(x, w) -> y { y = x @ w with { tile = 64x128x64 } }
    """
    return Finding(f"`{key}` is out of range", span, f"must be {wanted}")


@rule("CD264", "policy-key-twice")
def policy_key_twice(key: str, span: Span, first: Span) -> Finding:
    """A key stands twice between one pair of braces.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) with { route = ring, route = swizzle } }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) with { route = swizzle } }
    """
    return Finding(f"`{key}` is there twice", span, "the second one", (Label(first, "the first one"),), "drop one")


@rule("CD265", "policy-key-fits-nothing")
def policy_key_fits_nothing(key: str, span: Span, needs: str, where: str, labels: tuple[Label, ...]) -> Finding:
    """A key of a policy has nothing to apply to in the statement or parenthesis that the policy closes.

    `tile`, `stages`, `warps` and `compute` apply to matmuls; `reduce` and `wire` to reduce_scatter and all_reduce;
    `algorithm` to all_reduce; `fuse`, `fuse_from`, `eager_from` and `fallback` to matmuls and collectives; the rest to
    collectives.
    Of a collective along a plan `via` and `chunk` apply to the steps that do not say their own.

    Fails:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M, 32]
        tensor w : bf16[32, 128 @ tp]
        op f(x, w) -> y { y = x @ w with { route = swizzle } }

    Mended:
        mesh tp[4]
        dim M = 1..64
        tensor x : bf16[M @ tp, 32]
        tensor w : bf16[32, 128 @ tp]
        op f(x, w) -> y { y = all_gather(x) @ w with { route = swizzle } }
    """
    return Finding(f"`{key}` fits nothing here", span, f"{where} has no {needs}", labels, "drop the key")


@rule("CD266", "chunk-along-other-dim")
def chunk_along_other_dim(name: str, span: Span, moved: tuple[str, ...], labels: tuple[Label, ...]) -> Finding:
    """`chunk = n along D`: D must be the dimension that the collective gathers or scatters (the rows, for all_reduce).

    Fails:
        mesh tp[4]
        dim M = 1..64
        dim K = 32
        tensor x : bf16[M @ tp, K]
        op f(x) -> y { y = all_gather(x) with { chunk = 16 along K } }

    Mended:
        mesh tp[4]
        dim M = 1..64
        dim K = 32
        tensor x : bf16[M @ tp, K]
        op f(x) -> y { y = all_gather(x) with { chunk = 16 along M } }
    """
    known = " and ".join(moved) if moved else "a dimension without a name"
    return Finding(f"nothing here moves along `{name}`", span, f"the collectives here move along {known}", labels,
                   f"write `along {moved[0]}`" if moved else "declare a `dim` for it, or give the chunk in bytes")


@rule("CD267", "gate-along-other-dim")
def gate_along_other_dim(name: str, span: Span, dims: tuple[str, ...], labels: tuple[Label, ...]) -> Finding:
    """`fuse_from = n along D`, `eager_from = n along D`: D must be a dimension of the values in the statement that it
    gates.

    Fails:
        mesh tp[4]
        dim M = 1..64
        dim Q = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) with { fuse_from = 16 along Q } }

    Mended:
        mesh tp[4]
        dim M = 1..64
        dim Q = 1..64
        tensor x : bf16[M @ tp, 32]
        op f(x) -> y { y = all_gather(x) with { fuse_from = 16 along M } }
    """
    return Finding(f"no value here has a dimension `{name}`", span, "the gate compares its global size", labels,
                   f"dimensions here are {', '.join(dims)}" if dims else "")
