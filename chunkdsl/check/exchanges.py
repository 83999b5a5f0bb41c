"""Small all-reduces: forms and epilogues (CD64x), norms and parameters that are updated in place (CD28x)."""

from __future__ import annotations

from chunkdsl.check.registry import Finding, rule
from chunkdsl.diagnostics import Label, Severity
from chunkdsl.source import Span


@rule("CD640", "validity-needs-small-all-reduce")
def validity_without_exchange(key: str, why: str, span: Span) -> Finding:
    """`validity`, `assume` and `retry` say how the words of a small all-reduce are known to be valid.

    A small all-reduce is an op around `all_reduce` of a parameter, whose other statements are pointwise or `rms_norm`,
    with no transport of its own (`chunk`, `route`, `side`, `place`, `order`, `via = tma`). Tiles of a product signal
    chunk by chunk, so none of these keys means anything there.

    Fails:
        mesh tp[8]
        dim M = 1..4096
        tensor x : bf16[M, 1024 @ tp]
        tensor w : bf16[1024 @ tp, 1024]
        op f(x, w) -> y { y = all_reduce(x @ w) with { validity = word } }

    Mended:
        mesh tp[8]
        dim T = 1..64
        tensor p : bf16[T, 1024] sum tp
        op f(p) -> y { y = all_reduce(p) with { validity = word } }
    """
    return Finding(f"`{key}` is for a small all-reduce, and this is none: {why}", span, "", (),
                   "leave it out, or make the all-reduce of a parameter an op of its own")


@rule("CD641", "speculation-without-assumption")
def speculation_not_assumed(span: Span) -> Finding:
    """`validity = speculative` reads the payload first and the producer's flag second. That is not sound: the reader
    may read the old payload, then the producer writes payload and flag, then the reader reads the new flag, and the
    stale payload passes for valid. Nothing in the memory model forbids it; it does not happen only as long as a
    program, once it has started to read, is not held up for as long as a producer needs for its stores.

    Say so with `assume = run_to_completion`, or use a form that needs no assumption: `word` has data and epoch in one
    atomic word, `flag` acquires before it reads.

    Fails:
        mesh tp[8]
        dim T = 1..64
        tensor p : bf16[T, 1024] sum tp
        op f(p) -> y { y = all_reduce(p) with { validity = speculative } }

    Mended:
        mesh tp[8]
        dim T = 1..64
        tensor p : bf16[T, 1024] sum tp
        op f(p) -> y { y = all_reduce(p) with { validity = word } }
    """
    message = "a speculative read is not validated by a flag that is read after it: "
    message += "read old payload, producer writes payload and flag, read new flag: the stale payload passes"
    return Finding(message, span, "unsound without an assumption", (),
                   "write validity = word or validity = flag, or add assume = run_to_completion")


@rule("CD642", "assumption-without-speculation")
def assumption_unused(key: str, validity: str, span: Span) -> Finding:
    """`assume` and `retry` are about `validity = speculative`; the sound forms assume nothing and never read twice.

    Fails:
        mesh tp[8]
        dim T = 1..64
        tensor p : bf16[T, 1024] sum tp
        op f(p) -> y { y = all_reduce(p) with { validity = word, retry = 4 } }

    Mended:
        mesh tp[8]
        dim T = 1..64
        tensor p : bf16[T, 1024] sum tp
        op f(p) -> y { y = all_reduce(p) with { validity = word } }
    """
    return Finding(f"`{key}` means nothing with validity = {validity}", span, "", (), f"leave `{key}` out")


@rule("CD643", "exchange-not-legal")
def exchange_not_legal(what: str, why: str, instead: str, span: Span) -> Finding:
    """This combination of `algorithm`, `validity`, `buffers` and epilogue does not exist for a small all-reduce.

    Three buffers are for words with an empty mark, one of which is emptied while one is filled and one is read. Two
    rounds (`two_shot`) send on what the first has read, so a speculative read would reach all ranks.
    The switch (`via = multimem`) adds up vectors of 16 bytes. Its kernel goes through these in what follows, too:
    matrices and rows of the payload's dtype, and norms of rows of up to 64 KiB, which it holds in registers. Anything
    else is an op of its own behind it.

    Fails:
        mesh tp[8]
        dim T = 1..64
        tensor p : bf16[T, 1024] sum tp
        op f(p) -> y { y = all_reduce(p) with { validity = flag, buffers = 3 } }

    Mended:
        mesh tp[8]
        dim T = 1..64
        tensor p : bf16[T, 1024] sum tp
        op f(p) -> y { y = all_reduce(p) with { validity = flag, buffers = 2 } }
    """
    return Finding(f"a small all-reduce cannot have {what}: {why}", span, "", (), instead)


@rule("CD644", "switch-adds-in-its-own-order", Severity.WARNING)
def switch_adds_in_its_own_order(dtype: str, algorithm: str, span: Span) -> Finding:
    """With `via = multimem` every rank has the switch add up the whole payload, each on its own. No document says in
    which order a switch adds, so the sums of two ranks, or of two runs, may differ in their last bits; those of
    `exact`, in rank order, may differ from both. Ranks that decide something by such values may decide differently.
    With `algorithm = two_shot` each sum is made once and stored at all ranks: they agree, but two runs may not.

    Fails:
        mesh tp[8]
        dim T = 1..64
        tensor p : bf16[T, 1024] sum tp
        op f(p) -> y { y = all_reduce(p) with { via = multimem } }

    Mended:
        mesh tp[8]
        dim T = 1..64
        tensor p : bf16[T, 1024] sum tp
        op f(p) -> y { y = all_reduce(p) with { via = ldst, validity = word } }
    """
    where = "on all ranks" if algorithm == "one_shot" else "in every run, nor those of `exact`"
    return Finding(f"sums of {dtype} in the switch are not documented to have equal bits {where}", span, "", (),
                   "leave `via` out where ranks must agree in every bit; tests/gpu/check_multimem.py probes a machine")


@rule("CD280", "inout-not-assigned")
def inout_not_assigned(name: str, span: Span) -> Finding:
    """A parameter that is declared `inout` is bound anew by some statement, whose value it holds after the call.

    Fails:
        mesh tp[8]
        dim T = 1..64
        tensor p   : bf16[T, 1024] sum tp
        tensor res : bf16[T, 1024]
        op f(p, res inout) -> y { y = all_reduce(p) + res with decode }

    Mended:
        mesh tp[8]
        dim T = 1..64
        tensor p   : bf16[T, 1024] sum tp
        tensor res : bf16[T, 1024]
        op f(p, res) -> y { y = all_reduce(p) + res with decode }
    """
    return Finding(f"`{name}` is declared inout and no statement gives it a value", span, "", (), "drop `inout`")


@rule("CD281", "inout-of-other-type")
def inout_of_other_type(name: str, found: str, wanted: str, span: Span, declared: Span) -> Finding:
    """What a statement stores into an `inout` parameter has the parameter's shape, dtype and placement.

    Fails:
        mesh tp[8]
        dim T = 1..64
        tensor p   : bf16[T, 1024] sum tp
        tensor res : f32[T, 1024]
        op f(p, res inout) -> y {
            res = all_reduce(p) with decode
            y = cast(res, bf16)
        }

    Mended:
        mesh tp[8]
        dim T = 1..64
        tensor p   : bf16[T, 1024] sum tp
        tensor res : bf16[T, 1024]
        op f(p, res inout) -> y {
            res = all_reduce(p) with decode
            y = res * 2
        }
    """
    return Finding(f"`{name}` is {wanted} and this is {found}", span, found, (Label(declared, f"declared {wanted}"),),
                   "cast the value, or make it a result of its own")


@rule("CD282", "normalised-dim-not-whole")
def normalised_dim_not_whole(what: str, span: Span, labels: tuple[Label, ...]) -> Finding:
    """`rms_norm(t, g)` divides each row of `t` by its root mean square and scales it by `g`, so the last dimension must
    be whole on each rank, and `g` one vector of its length.

    Fails:
        mesh tp[8]
        dim T = 1..64
        tensor p : bf16[T, 1024] sum tp
        tensor g : bf16[512]
        op f(p, g) -> y {
            s = all_reduce(p) with decode
            y = rms_norm(s, g)
        }

    Mended:
        mesh tp[8]
        dim T = 1..64
        tensor p : bf16[T, 1024] sum tp
        tensor g : bf16[1024]
        op f(p, g) -> y {
            s = all_reduce(p) with decode
            y = rms_norm(s, g)
        }
    """
    return Finding(f"`rms_norm` cannot normalise this: {what}", span, "", labels)
