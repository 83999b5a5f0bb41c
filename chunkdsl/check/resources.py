"""CD5: shared memory, registers, SMs, buffers, slots, offsets."""

from __future__ import annotations

from chunkdsl.check.registry import Finding, rule
from chunkdsl.source import Span


@rule("CD501", "accumulator-too-large")
def accumulator_too_large(tile: str, accumulators: int, span: Span) -> Finding:
    """The f32 accumulators of a tile must fit half of a multiprocessor's register file (65,536 registers).

    A tile of 128x256 takes 32,768 of them; two products need two accumulators, so `swiglu` wants 128x128.

    Fails:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[2, 512 @ tp, 512]
        op f(x, w) -> y {
            g = all_gather(x)
            y = swiglu(g @ w[0].T, g @ w[1].T) with { tile = 128x256x64 }
        }

    Mended:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[2, 512 @ tp, 512]
        op f(x, w) -> y {
            g = all_gather(x)
            y = swiglu(g @ w[0].T, g @ w[1].T) with { tile = 128x128x64 }
        }
    """
    n = f"{accumulators} accumulators of " if accumulators > 1 else "an accumulator of "
    return Finding(f"{n}{tile} do not fit the register file", span, tile, help="use a smaller tile")


@rule("CD502", "shared-memory-too-large")
def shared_memory_too_large(tile: str, need: int, limit: int, target: str, span: Span) -> Finding:
    """One stage of the software pipeline must fit the shared memory of every target that the module is for.

    Fails:
        mesh tp[2]
        dim M = 1..4096
        tensor x : f32[M @ tp, 512]
        tensor w : f32[512, 512 @ tp]
        op f(x, w) -> y { y = all_gather(x) @ w with { tile = 128x256x256 } }

    Mended:
        mesh tp[2]
        dim M = 1..4096
        tensor x : f32[M @ tp, 512]
        tensor w : f32[512, 512 @ tp]
        op f(x, w) -> y { y = all_gather(x) @ w with { tile = 128x128x32 } }
    """
    return Finding(
        f"one stage of a {tile} tile takes {need:,} bytes of shared memory; {target} has {limit:,}",
        span,
        tile,
        help="use a smaller third number",
    )


@rule("CD503", "too-many-programs")
def too_many_programs(programs: int, limit: int, span: Span) -> Finding:
    """Communication programs take multiprocessors from the tiles; at least one must be left.

    Fails:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[512, 512 @ tp]
        op f(x, w) -> y { y = all_gather(x) @ w with { via = ldst, place = own_sms(200) } }

    Mended:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[512, 512 @ tp]
        op f(x, w) -> y { y = all_gather(x) @ w with { via = ldst, place = own_sms(16) } }
    """
    return Finding(
        f"own_sms({programs}) leaves no multiprocessor for tiles (the smallest target has {limit})",
        span,
        f"{programs} programs",
        help="8 to 32 fill a link",
    )


@rule("CD504", "too-many-flags")
def too_many_flags(words: int, limit: int, what: str, span: Span | None) -> Finding:
    """Every (rank, chunk) pair has a flag word; a chunk of a few rows at the largest shape makes too many.

    Fails:
        mesh tp[16]
        dim M = 1..16777216
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[512, 512 @ tp]
        op f(x, w) -> y { y = all_gather(x) @ w with { chunk = 1 along M } }

    Mended:
        mesh tp[16]
        dim M = 1..16777216
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[512, 512 @ tp]
        op f(x, w) -> y { y = all_gather(x) @ w with { chunk = 8192 along M } }
    """
    return Finding(
        f"{what} needs {words:,} flag words, more than {limit:,}", span, "chunks too small", help="use larger chunks"
    )
