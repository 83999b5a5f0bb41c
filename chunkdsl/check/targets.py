"""CD6: what the backend, the hardware or this version of the emitter cannot do."""

from __future__ import annotations

from collections.abc import Sequence

from chunkdsl.check.registry import Finding, rule
from chunkdsl.ir.meshes import World, world_text
from chunkdsl.source import Span


@rule("CD601", "transport-not-legal")
def transport_not_legal(collective: str, transport: str, why: str, legal: str, span: Span) -> Finding:
    """This combination of route, via, side and place does not exist for this collective.

    Copy engines neither wait nor add, so they serve `all_gather` and the `all_to_all` of a tensor alone, and addends
    behind `compute = library`, by `direct` and `swizzle`. A ring forwards
    what arrived, so it pushes, and it needs programs that wait. The language reference has the whole table.

    Fails:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[512, 512 @ tp]
        op f(x, w) -> y { y = all_gather(x) @ w with { route = ring, via = copy_engine } }

    Mended:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[512, 512 @ tp]
        op f(x, w) -> y { y = all_gather(x) @ w with { route = swizzle, via = copy_engine } }
    """
    return Finding(f"{collective} cannot travel with {transport}: {why}", span, "not a legal transport", help=legal)


@rule("CD602", "copy-engine-needs-one-buffer")
def copy_engine_buffers(span: Span) -> Finding:
    """Copy engines work on addresses that are fixed when a CUDA graph is captured.

    With two buffers the address changes from call to call by the epoch, which lives in device memory and which the
    host does not know during a replay. Use `buffers = 1`: the call then ends with a barrier.

    Fails:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[512, 512 @ tp]
        op f(x, w) -> y { y = all_gather(x) @ w with { via = copy_engine, buffers = 2 } }

    Mended:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[512, 512 @ tp]
        op f(x, w) -> y { y = all_gather(x) @ w with { via = copy_engine, buffers = 1 } }
    """
    return Finding(
        "a copy engine's addresses are fixed at graph capture, so it cannot alternate between buffers",
        span,
        "2 buffers",
        help="write buffers = 1, or via = ldst",
    )


@rule("CD603", "pattern-not-built")
def pattern_not_built(what: str, instead: str, span: Span) -> Finding:
    """The program is correct, but this version cannot emit a fused kernel for this shape of statement.

    Built: statements over matrices whose rows are gathered or reduced, or whose shards are dealt out anew, with up to
    two products that share their left operand, one reduction, and any pointwise epilogue.

    Fails:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M, 512 @ tp]
        tensor w : bf16[512, 512]
        op f(x, w) -> y { y = all_gather(x) @ w }

    Mended:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M @ tp, 512]
        tensor w : bf16[512, 512 @ tp]
        op f(x, w) -> y { y = all_gather(x) @ w }
    """
    return Finding(f"not built yet: {what}", span, "this version cannot fuse it", help=instead)


@rule("CD604", "reduce-order-excludes-ring")
def rank_order_ring(span: Span) -> Finding:
    """`reduce = rank_order` adds the addends of ranks 0, 1, 2 ... in that order; a ring starts at another rank for
    every shard.

    Fails:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M, 512 @ tp]
        tensor w : bf16[512 @ tp, 512]
        op f(x, w) -> y { y = reduce_scatter(x @ w, M) with { route = ring, reduce = rank_order } }

    Mended:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M, 512 @ tp]
        tensor w : bf16[512 @ tp, 512]
        op f(x, w) -> y { y = reduce_scatter(x @ w, M) with { route = ring, reduce = fixed } }
    """
    mend = "write reduce = fixed, or route = swizzle"
    return Finding("a ring cannot add in rank order", span, "rank_order", help=mend)


@rule("CD605", "dtype-not-built")
def dtype_not_built(dtype: str, span: Span) -> Finding:
    """Emitted kernels compute on bf16, f16 and f32.

    Fails:
        mesh tp[2]
        dim M = 1..4096
        tensor x : i32[M @ tp, 512]
        op f(x) -> y { y = all_gather(x) }

    Mended:
        mesh tp[2]
        dim M = 1..4096
        tensor x : f32[M @ tp, 512]
        op f(x) -> y { y = all_gather(x) }
    """
    return Finding(f"no kernel is emitted for {dtype}", span, dtype, help="use bf16, f16 or f32")


@rule("CD606", "world-size-not-served")
def world_size_not_served(op: str, worlds: Sequence[World], why: str, span: Span | None) -> Finding:
    """The hardware cannot run the kernels of this op on so many ranks, whatever the plan.

    TMA reads matrices whose rows are a multiple of 16 bytes; a dimension that is sharded unevenly may leave rows that
    are not. An error if the mesh declares the size or `--world` names it, else a note: the module refuses other sizes.
    `chunkdsl check --world 3` finds it, a check without `--world` proves nothing.

    Fails:
        mesh tp[3]
        dim M = 1..4096
        tensor x : bf16[M, 512 @ tp]
        tensor w : bf16[512 @ tp, 512]
        op f(x, w) -> y { y = reduce_scatter(x @ w, M) }

    Mended:
        mesh tp[2]
        dim M = 1..4096
        tensor x : bf16[M, 512 @ tp]
        tensor w : bf16[512 @ tp, 512]
        op f(x, w) -> y { y = reduce_scatter(x @ w, M) }
    """
    *head, last = map(world_text, worlds)
    sizes = f"{', '.join(head)} or {last}" if head else last
    return Finding(
        f"{op} cannot run fused on {sizes} rank{'s' * (worlds != [1])}",
        span,
        f"with {world_text(worlds[0])}: {why}",
        help="choose sizes whose shards have rows of a multiple of 16 bytes",
    )
