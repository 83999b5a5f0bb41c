"""CD0: what the options of `chunkdsl timeline` ask. Their examples are commands, not specs."""

from __future__ import annotations

from collections.abc import Sequence

from chunkdsl.check.registry import Finding, rule
from chunkdsl.source import Span


@rule("CD016", "no-such-gpu")
def no_such_gpu(name: str, near: Sequence[str], known: Sequence[str]) -> Finding:
    """The cost model knows the GPUs of chunkdsl/cost/data/gpus.toml. Figures for others would be guesses.

    Fails:
        chunkdsl timeline mlp.chunk --gpu h20

    Mended:
        chunkdsl timeline mlp.chunk --gpu h200
    """
    hint = f"did you mean {' or '.join(near)}?" if near else f"it knows {', '.join(known)}"
    return Finding(f"the cost model does not know the GPU {name!r}", help=hint)


@rule("CD018", "switch-not-predicted")
def switch_not_predicted(op: str, span: Span | None) -> Finding:
    """A small all-reduce that the NVLink switch adds up (`via = multimem`) has not been run, so nothing is known about
    its time. The cost model predicts the other forms, from what was measured (tests/bench/MODEL.md).

    Fails:
        chunkdsl timeline switched.chunk     # with { via = multimem }

    Mended:
        chunkdsl timeline specs/decode_all_reduce.chunk
    """
    message = f"the cost model does not predict the switch, which {op} goes through"
    return Finding(message, span, help="write via = ldst")


@rule("CD017", "no-such-drawing")
def no_such_drawing(path: str, kinds: Sequence[str]) -> Finding:
    """The ending of the file's name says what to draw: a page, an image, or events for Perfetto.

    Fails:
        chunkdsl timeline mlp.chunk -o mlp.png

    Mended:
        chunkdsl timeline mlp.chunk -o mlp.svg
    """
    return Finding(f"cannot draw {path}", help=f"end its name with {', '.join(kinds[:-1])} or {kinds[-1]}")
