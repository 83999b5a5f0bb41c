"""Rules about meshes of two axes beyond types: what an op may mix, what `--world` may say. CD014, CD607 to CD609."""

from __future__ import annotations

from collections.abc import Iterable

from chunkdsl.check.registry import Finding, rule
from chunkdsl.diagnostics import Label, Report
from chunkdsl.ir.meshes import World, world_text
from chunkdsl.ir.types import Mesh
from chunkdsl.source import Span


def fit_worlds(worlds: Iterable[World], mesh: Mesh, report: Report) -> list[World]:
    """World sizes of `--world` as sizes of this mesh. Reports those that it cannot have (CD014) and leaves them out."""
    found: list[World] = []
    for world in worlds:
        many, each = len(mesh.axes) > 1, isinstance(world, tuple)
        if many and not each:
            outer, inner = mesh.axes
            if world % outer.size:
                why = f"{outer.name} has {outer.size} ranks, and {world} is not a multiple of it"
                instead = f"say how many each axis has: --world {outer.size}x{inner.size}"
                report.add(world_does_not_fit_mesh(str(world), why, instead))
            else:
                found.append((outer.size, world // outer.size))
        elif each and not many:
            name = mesh.axes[0].name if mesh.axes else ""
            why = f"it has one axis, {name}" if name else "there is none"
            report.add(world_does_not_fit_mesh(world_text(world), why, f"--world {world[0] * world[1]}"))
        else:
            found.append(world)
    return found


@rule("CD014", "world-does-not-fit-mesh")
def world_does_not_fit_mesh(world: str, why: str, instead: str) -> Finding:
    """`--world` says how many ranks there are. On a mesh of two axes it says how many each axis has, outer first.

    A plain number counts all ranks: the outer axis keeps the size that the mesh declares and the inner one gets the
    rest, which must come out even. On a mesh of one axis a product has no meaning.

    Fails:
        chunkdsl plan mlp.chunk --world 2x4

    Mended:
        chunkdsl plan mlp.chunk --world 8
    """
    return Finding(f"--world {world} does not fit the mesh: {why}", help=instead)


@rule("CD607", "axes-mixed-in-one-op")
def axes_mixed_in_one_op(first: str, second: str, span: Span, other: Span) -> Finding:
    """The collectives of one op run over one axis, or all of them over both axes together.

    A call of an op is one sequence of epochs and one barrier among one set of ranks. Collectives over different sets
    belong to ops of their own, which the caller issues one after the other.

    Fails:
        mesh dp[2], tp[4]
        dim M = 1..64
        dim K = 256
        tensor x : bf16[M @ tp, K]
        tensor w : bf16[128 @ tp, K]
        tensor v : bf16[256 @ dp, 128 @ tp]
        tensor u : bf16[64, 256 @ dp]
        op f(x, w, v, u) -> z {
            y = all_reduce(all_gather(x) @ w.T @ v.T, over = tp)
            z = all_reduce(y @ u.T, over = dp)
        }

    Mended:
        mesh dp[2], tp[4]
        dim M = 1..64
        dim K = 256
        tensor x : bf16[M @ tp, K]
        tensor w : bf16[128 @ tp, K]
        tensor v : bf16[256 @ dp, 128 @ tp]
        op f(x, w, v) -> y {
            y = all_reduce(all_gather(x) @ w.T @ v.T, over = tp)
        }
    """
    return Finding(
        f"this op has collectives over {first} and over {second}", span, f"over {second}",
        (Label(other, f"over {first}"),), "write an op for each, or gather and scatter over the same axes",
    )


@rule("CD609", "hierarchy-needs-two-axes")
def hierarchy_needs_two_axes(kind: str, axis: str, span: Span) -> Finding:
    """`route = hierarchical(outer, inner)` is for a collective over both axes of a mesh together.

    `outer` is the route between the ranks of equal inner index, `inner` that along the inner axis: direct, swizzle or
    ring each.

    Fails:
        mesh node[2], gpu[4]
        dim M = 1..64
        tensor x : bf16[M @ gpu, 32]
        op f(x) -> y { y = all_gather(x) with { route = hierarchical(swizzle, direct) } }

    Mended:
        mesh node[2], gpu[4]
        dim M = 1..64
        tensor x : bf16[M @ (node, gpu), 32]
        op f(x) -> y {
            y = all_gather(x, over = (node, gpu)) with { route = hierarchical(swizzle, direct) }
        }
    """
    return Finding(f"{kind} over {axis} alone has one tier", span, "two tiers", help="write route = direct or swizzle")


@rule("CD608", "sharded-behind-the-op")
def sharded_behind_the_op(dim: str, outer: str, inner: str, span: Span, labels: tuple[Label, ...]) -> Finding:
    """A dimension is sharded over two axes, outer first, and the collectives of the op run over the outer one.

    Ranks of an outer axis then hold strided parts of what the inner axis cuts. Gather and scatter over the inner axis,
    or over both together; or pass the tensor sharded over one of them.

    Fails:
        mesh node[2], gpu[4]
        dim M = 1..64
        dim K = 256
        tensor x : bf16[M @ (node, gpu), 32]
        tensor w : bf16[32, 256]
        tensor p : bf16[M, 256] sum node
        op f(x, w, p) -> y, z {
            y = x @ w
            z = all_reduce(p) * 2
        }

    Mended:
        mesh node[2], gpu[4]
        dim M = 1..64
        dim K = 256
        tensor x : bf16[M @ gpu, 32]
        tensor w : bf16[32, 256]
        tensor p : bf16[M, 256] sum node
        op f(x, w, p) -> y, z {
            y = x @ w
            z = all_reduce(p) * 2
        }
    """
    return Finding(
        f"{dim} is sharded over {outer} and then over {inner}, but this op communicates over {outer} alone", span,
        f"Shard over ({outer}, {inner})", labels, f"gather it over {inner} first, or communicate over both axes",
    )
