"""What the arguments of a call are: results, gathered arguments, and how many rows all ranks have together.

From what some programs load and store, and from sizes: a gathered argument has a shard's rows where the result or a
number has those of all ranks. Where that does not tell, CD661 says what `compile` needs to be told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from chunkdsl.api.call import Call
from chunkdsl.api.errors import ChunkError, refuse
from chunkdsl.api.kernel import unfit
from chunkdsl.api.schedule import ChunkSchedule
from chunkdsl.check.api import role_not_clear
from chunkdsl.ir.types import shard_rows
from chunkdsl.kernels.fault import KernelFault
from chunkdsl.kernels.kinds import kinds
from chunkdsl.kernels.source import KernelSource
from chunkdsl.record import record


@record
class Hints:
    """What `compile` was told: names of parameters; `summed` a size's."""

    gathered: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    summed: str = ""
    shapes: tuple[tuple[str, tuple[str | int, ...]], ...] = ()


@record
class Roles:
    """`rows`: of all ranks, along dimension 0 of the `gathered` arguments, or of the result of a reduction."""

    gathered: tuple[str, ...]
    results: tuple[str, ...]
    rows: int

    def seen(self, call: Call, collective: str) -> dict[str, tuple[int, ...]]:
        """Shapes of tensors as the kernel sees them."""
        whole = self.results if collective == "reduce_scatter" else self.gathered
        return {n: (self.rows, *shape[1:]) if n in whole else shape for n, shape in call.shapes.items()}


def find_roles(
    source: KernelSource, call: Call, schedule: ChunkSchedule, rank: int, hints: Hints, known: Mapping[str, set[str]]
) -> list[Roles]:
    """One or more, between which sizes do not decide. `known`: what the kernel does to each tensor (`kinds`).
    ChunkError (CD661, CD650)."""
    for name in (*hints.gathered, *hints.results):
        if name not in call.shapes:
            raise unclear(f"`{name}` is no tensor of this call", tuple(call.shapes), "name a tensor parameter")
    for name, shape in hints.shapes:
        if len(shape) != len(call.shapes.get(name, ())):
            known = ", ".join(f"`{n}` has {len(s)} dimensions" for n, s in call.shapes.items())
            raise unclear(f"shapes of `{name}` are not those of this call", (), known)
    results = hints.results or tuple(n for n, k in known.items() if k & {"store", "atomic"})
    inputs = [n for n in call.shapes if n not in results]
    world = schedule.world_size
    if schedule.collective_type == "all_gather":
        return gathered_roles(call, inputs, results, world, rank, hints)
    if hints.gathered:
        raise unclear(f"gathered = {', '.join(hints.gathered)} with {schedule.collective_type}", (),
                      'a ChunkSchedule of "all_gather" gathers; a spec can do both in one op')
    mine = call.shapes[results[0]][0]
    if schedule.collective_type == "all_reduce":
        return [Roles((), results, mine)]
    fitting = sizes_with(call, [call.shapes[n][0] for n in inputs], mine, world, rank)
    if len(fitting) != 1:
        raise unclear(f"how many rows of `{results[0]}` are reduced: a rank keeps {mine}", tuple(map(str, fitting)),
                      "pass the rows of all ranks as an argument's, and this rank's shard of the result")
    return [Roles((), results, fitting[0])]


def gathered_roles(
    call: Call, inputs: Sequence[str], results: tuple[str, ...], world: int, rank: int, hints: Hints
) -> list[Roles]:
    above = [call.shapes[r][0] for r in results]
    found = {}
    for name in hints.gathered or inputs:
        mine = call.shapes[name][0]
        totals = sizes_with(call, above, mine, world, rank)
        if not totals and hints.gathered:
            totals = [mine * world]
        if totals:
            found[name] = totals[0]
    if not hints.gathered:
        if not found:
            raise several_roles(call, [], results, world)
        return [Roles((name,), results, rows) for name, rows in found.items()]
    if len(set(found.values())) != 1:
        listed = ", ".join(f"`{n}`: {found[n]}" for n in hints.gathered)
        raise unclear(f"gathered arguments have different numbers of rows ({listed})", (), "gather along one size")
    return [Roles(hints.gathered, results, found[hints.gathered[0]])]


def several_roles(call: Call, candidates: Sequence[str], results: Sequence[str], world: int) -> ChunkError:
    """No argument, or one of several, may be the gathered one."""
    inputs = [n for n in call.shapes if n not in results]
    shapes = ", ".join(f"`{n}` {list(call.shapes[n])}" for n in (*inputs, *results))
    return unclear(f"which argument is gathered over {world} rank{'s' * (world > 1)}, with {shapes}", candidates,
                   'say it: compile(..., gathered="NAME"), or several in a tuple')


def sizes_with(call: Call, first: Sequence[int], mine: int, world: int, rank: int) -> list[int]:
    """Numbers of rows of which a rank's shard is `mine`: those of `first`, else those among the call's integers."""

    def fits(n: int) -> bool:
        return n >= 1 and shard_rows(n, world, rank) == mine

    return sorted({n for n in first if fits(n)}) or sorted({n for n in call.integers.values() if fits(n)})


def what_it_does(source: KernelSource, call: Call, world: int) -> dict[str, set[str]]:
    """`kinds` of a call. ChunkError (CD650) where the kernel does not run."""
    import torch

    dtypes = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
    tensors = {n: (t.shape, dtypes[t.dtype], t.block) for n, t in call.tensors}
    source = replace(source, pinned=call.constants)
    try:
        return kinds(source, tensors, {**dict(call.numbers), **dict(call.constants)}, (*call.grid, 1, 1)[:3],
                     world)  # fmt: skip
    except KernelFault as fault:
        raise unfit(source, fault) from None


def unclear(what: str, candidates: Sequence[str], mend: str) -> ChunkError:
    return refuse(role_not_clear(f"it is not clear {what}" if what.startswith(("which", "how")) else what,
                                 candidates, mend), "call")  # fmt: skip
