"""The fallback of an op, run beside its fused calls on the same inputs, against float64: library operations and whole
collectives, which no plan describes and no proof covers. Not checked: its bits, which it does not promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from chunkdsl.ir.graph import Op
from chunkdsl.ir.meshes import World, ranks_of
from chunkdsl.plan.schedule import OpSchedule
from chunkdsl.verify.inputs import TORCH, Inputs, join
from chunkdsl.verify.reference import evaluate

Calls = Sequence[Sequence[tuple[torch.Tensor, ...]]]  # [rank][call]: what it returned


def compare_fallback(
    op: OpSchedule, typed: Op, inputs: Sequence[Inputs], made: Calls, world: World, limit: float,
    error: Callable[[torch.Tensor, torch.Tensor], float], kernels: Mapping[str, Callable] | None = None,
) -> list[tuple[str, list[str], float]]:
    """(result, what is wrong with it, largest error) of each result. `made`: what the fallback of every rank returned
    for `inputs`; `limit`: the relative error that is allowed, 0 on small integers."""
    found = []
    declared = [*op.results, *(next(p for p in op.parameters if p.name == name) for name in op.updates)]
    for i, result in enumerate(declared):
        wrong, worst = [], 0.0
        for call, x in enumerate(inputs):
            named = f"call {call} ({', '.join(f'{k} = {v}' for k, v in x.dims.items())})"
            values = [made[rank][call][i] for rank in range(ranks_of(world))]
            gap = error(join(values, typed, i, world, op), evaluate(typed, x.whole, kernels)[result.name])
            worst = max(worst, gap)
            if not gap <= limit:
                wrong.append(f"{named}: error {gap:.2e}, allowed {limit:g}")
            wrong += [
                f"{named}, rank {rank}: {v.dtype}, declared as {result.dtype}"
                for rank, v in enumerate(values) if v.dtype != TORCH[result.dtype]
            ]  # fmt: skip
        found.append((result.name, wrong, worst))
    return found
