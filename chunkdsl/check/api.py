"""Rules of the Python API (CD660 to CD663): what `chunkdsl.compile` and a call of what it returns are given.

Their examples are Python, run with a matrix product `matmul` and tensors `a`, `b` and `c` at hand."""

from __future__ import annotations

from collections.abc import Sequence

from chunkdsl.check.registry import Finding, rule


@rule("CD660", "compile-arguments")
def compile_arguments(what: str, wanted: str) -> Finding:
    """`chunkdsl.compile` takes a `@triton.jit` function from a file, and either a spec or a `ChunkSchedule`.

    Fails:
        ChunkSchedule(collective_type="broadcast", world_size=2)

    Mended:
        ChunkSchedule(collective_type="all_gather", world_size=2)
    """
    return Finding(what, help=wanted)


@rule("CD661", "role-not-clear")
def role_not_clear(what: str, candidates: Sequence[str], mend: str) -> Finding:
    """What each argument is follows from a call: results are stored to, a gathered argument has a shard's rows while
    the result or a size has those of all ranks, a sum runs over the one size that the result does not have. Where
    that leaves none or several, `compile` is told: `gathered="a_ptr"`, `results="c_ptr"`, `summed="K"`.

    Fails:
        schedule = ChunkSchedule(collective_type="all_gather", world_size=1)
        compile(matmul, schedule=schedule)[grid].build(a, b, c, 64, 32, 32, BM=32, BN=32, BK=32)

    Mended:
        schedule = ChunkSchedule(collective_type="all_gather", world_size=1)
        compile(matmul, schedule=schedule, gathered="a_ptr")[grid].build(a, b, c, 64, 32, 32, BM=32, BN=32, BK=32)
    """
    found = f" (could be {', '.join(f'`{c}`' for c in candidates)})" if candidates else ""
    return Finding(what + found, help=mend)


@rule("CD662", "kernel-call-argument")
def kernel_call_argument(what: str, mend: str) -> Finding:
    """A call passes what the kernel takes: this rank's contiguous tensors of bf16, f16 or f32, with the result's
    memory among them, and numbers.

    Fails:
        schedule = ChunkSchedule(collective_type="all_gather", world_size=1)
        compile(matmul, schedule=schedule, gathered="a_ptr")[grid].build(a, b, c, 64, 32, 32, BM=32, BN=32)

    Mended:
        schedule = ChunkSchedule(collective_type="all_gather", world_size=1)
        compile(matmul, schedule=schedule, gathered="a_ptr")[grid].build(a, b, c, 64, 32, 32, BM=32, BN=32, BK=32)
    """
    return Finding(what, help=mend)


@rule("CD663", "call-not-understood")
def call_not_understood(what: str, mend: str) -> Finding:
    """Which size each number of a call is, and what the grid is of them, is found by running the kernel's index
    arithmetic at other sizes: every element of the result is stored once, and nothing outside an argument is touched.
    Where no reading does that, `compile` is told the shapes in the kernel's own names, `shapes={"a_ptr": ("M", "K")}`,
    or a spec says everything.

    Fails:
        schedule = ChunkSchedule(collective_type="all_gather", world_size=1)
        compile(matmul, schedule=schedule, gathered="a_ptr")[(1,)].build(a, b, c, 64, 32, 32, BM=32, BN=32, BK=32)

    Mended:
        schedule = ChunkSchedule(collective_type="all_gather", world_size=1)
        compile(matmul, schedule=schedule, gathered="a_ptr")[(2,)].build(a, b, c, 64, 32, 32, BM=32, BN=32, BK=32)
    """
    return Finding(what, help=mend)
