"""CD0: what the options of a command ask of a spec. Their examples are commands, not specs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chunkdsl.check.registry import Finding, rule
from chunkdsl.diagnostics import Report
from chunkdsl.ir.types import DimRange


@rule("CD006", "stale-module")
def stale_module(path: str, what: str, command: str) -> Finding:
    """`build --check` compares the module on disk with what the spec builds now, and writes nothing.

    Use it where generated modules are committed: it fails when somebody changed a spec, or edited a module by hand.
    Another version of chunkdsl writes another module.

    Fails:
        chunkdsl build --check mlp.chunk        # build/mlp.py is missing

    Mended:
        chunkdsl build --check built.chunk      # build/built.py is what this spec builds
    """
    return Finding(f"{path} {what}", help=f"run `{command}`")


@rule("CD007", "unwritable-output")
def unwritable_output(path: str, why: str, help: str = "name another folder with -o") -> Finding:
    """The module could not be written. A module that was there before is still there, whole.

    A file that chunkdsl did not generate is not overwritten.

    Fails:
        chunkdsl build mlp.chunk -o good.chunk      # a file, not a folder

    Mended:
        chunkdsl build mlp.chunk -o build
    """
    return Finding(f"cannot write {path}: {why}", help=help)


@rule("CD008", "no-such-dim")
def no_such_dim(name: str, known: Sequence[str]) -> Finding:
    """`--dim NAME=VALUE` binds a dim that the spec declares with a range. Fixed dims are changed in the spec.

    Fails:
        chunkdsl plan mlp.chunk --dim N=16

    Mended:
        chunkdsl plan mlp.chunk --dim M=16
    """
    found = f"its run-time dims: {', '.join(known)}" if known else "it has none"
    return Finding(f"the spec has no run-time dim {name}", help=found)


@rule("CD009", "dim-option-out-of-range")
def dim_option_out_of_range(name: str, value: int, low: int, high: int, step: int) -> Finding:
    """A run-time dim takes the values of its declared range.

    Fails:
        chunkdsl plan mlp.chunk --dim M=1000000

    Mended:
        chunkdsl plan mlp.chunk --dim M=16
    """
    steps = f" step {step}" if step > 1 else ""
    return Finding(f"{name} = {value} is outside its range", help=f"the spec declares {name} = {low}..{high}{steps}")


@rule("CD010", "no-such-rank")
def no_such_rank(rank: int, world: int) -> Finding:
    """Ranks count from 0 to the world size minus 1.

    Fails:
        chunkdsl plan mlp.chunk --world 2 --rank 2

    Mended:
        chunkdsl plan mlp.chunk --world 2 --rank 1
    """
    return Finding(f"there is no rank {rank} among {world}", help=f"ranks are 0..{world - 1}; see --world")


@rule("CD011", "nothing-to-build")
def nothing_to_build() -> Finding:
    """A module holds the ops of a spec. This spec declares none.

    Fails:
        chunkdsl build good.chunk

    Mended:
        chunkdsl build mlp.chunk
    """
    return Finding("this spec has no op, so there is nothing to build", help="declare an op: op f(x, w) -> y { ... }")


@rule("CD012", "path-not-for-a-module")
def path_not_for_a_module() -> Finding:
    """The path of the spec, as given, is quoted in the module: in its comments, its messages and its docstring.

    Quotation marks, backslashes and control characters would end or change that text.

    Fails:
        chunkdsl build 'q"q.chunk'

    Mended:
        chunkdsl build mlp.chunk
    """
    return Finding(
        "a module cannot quote this path: it holds a quotation mark, a backslash or a control character",
        help="rename the file, or give the path with forward slashes",
    )


@rule("CD013", "plan-too-large")
def plan_too_large(op: str, tasks: int, limit: int) -> Finding:
    """A plan is written out task by task: every chunk of every shard on every rank. Beyond a million it is no reading.

    Fails:
        chunkdsl plan long.chunk --world 64             # a chunk for each of 1,048,576 rows

    Mended:
        chunkdsl plan long.chunk --world 4 --dim M=100
    """
    return Finding(
        f"the plan of {op} has about {tasks:,} tasks, more than {limit:,}",
        help="plan a smaller call with --dim, fewer ranks with --world, or write larger chunks",
    )


@rule("CD019", "no-such-plan")
def no_such_plan(name: str, near: Sequence[str], known: Sequence[str]) -> Finding:
    """`--route NAME` writes a route that the spec declares, with `plan` or with `use plan`.

    Fails:
        chunkdsl plan ring.chunk --route rung

    Mended:
        chunkdsl plan ring.chunk --route r
    """
    found = f"its plans: {', '.join(known)}" if known else "it has none"
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    return Finding(f"the spec has no plan {name}{meant}", help=found)


def bind_dims(ranges: Sequence[DimRange], given: Mapping[str, int], report: Report) -> dict[str, int]:
    """Every run-time dim with its value: as given, else the largest of its range. Reports what does not fit (CD0)."""
    known = {r.name: r for r in ranges}
    for name in given:
        if name not in known:
            report.add(no_such_dim(name, tuple(known)))
    bound = largest_dims(ranges)
    for name, value in given.items():
        r = known.get(name)
        if r and not r.holds(value):
            report.add(dim_option_out_of_range(name, value, r.low, r.high, r.step))
        elif r:
            bound[name] = value
    return bound


def largest_dims(ranges: Sequence[DimRange]) -> dict[str, int]:
    """Every run-time dim at the largest value of its range."""
    return {r.name: r.high // r.step * r.step for r in ranges}
