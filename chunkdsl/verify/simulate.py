"""One op's module on simulated ranks: several calls in a row, compared with `exact`, with float64, and with the plan."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from chunkdsl.ir.graph import Op
from chunkdsl.plan.schedule import OpSchedule, Schedule
from chunkdsl.plan.unroll import unroll
from chunkdsl.sim.conformance import compare
from chunkdsl.sim.faults import SimulationFault
from chunkdsl.sim.world import World
from chunkdsl.verify.inputs import Inputs, draw, join
from chunkdsl.verify.reference import evaluate, is_linear

TOLERANCE = {"bf16": 2e-2, "f16": 4e-3, "f32": 2e-5}  # relative error in norm; a statement rounds once, a wire again


@dataclass(frozen=True)
class Row:
    """One line of the table. `detail` is a sentence when it failed."""

    op: str
    check: str
    where: str
    passed: bool
    detail: str = ""
    seconds: float = 0.0


def call_sizes(schedule: Schedule, world: int) -> list[dict[str, int]]:
    """Several calls in a row: ragged, one row, fewer rows than ranks, another ragged size. Within the ranges."""
    wanted = [lambda high: high - 3, lambda high: 1, lambda high: max(1, world - 1), lambda high: high // 2 + 1]
    calls = []
    for pick in wanted:
        dims = {}
        for r in schedule.ranges:
            least = -(-max(r.low, 0) // r.step) * r.step
            dims[r.name] = max(least, min(r.high, pick(r.high)) // r.step * r.step)
        if dims not in calls:
            calls.append(dims)
    return calls


def run_op(
    module, title: str, schedule: Schedule, op: OpSchedule, typed: Op, world: int, seed: int, calls, *, pointers: bool
) -> list[Row]:
    """Rows for one op, world size and seed. `pointers`: the variant without TMA. Small integers on even seeds where
    the op is linear."""
    integers = seed % 2 == 0 and is_linear(typed)
    inputs = [draw(typed, op, dims, world, 1000 * seed + i, integers) for i, dims in enumerate(calls)]
    resident = None if seed % 2 == 0 else 2
    variant = "pointer loads" if pointers else "TMA"
    where = f"{world} ranks, seed {seed}, {variant}"
    started = time.perf_counter()

    def host(machine):
        if pointers:
            machine.target = "sm_80"
        instance = getattr(module, title)(machine=machine)
        callable_ = getattr(instance, op.name)
        if callable_.why_not is not None:
            raise RuntimeError(f"{op.name} does not run fused: {callable_.why_not}")
        got = []
        for x in inputs:
            fused = as_tuple(callable_(*x.shards[machine.rank], **x.dims))
            instance.check()
            exact = as_tuple(callable_.exact(*x.shards[machine.rank], **x.dims))
            instance.check()
            got.append((fused, exact))
        instance.close()
        return got

    sim = World(world, seed=seed, resident=resident, log=True)
    try:
        results = sim.run(host)
    except SimulationFault as fault:
        return [Row(op.name, "simulation", where, False, str(fault), time.perf_counter() - started)]
    spent = time.perf_counter() - started
    rows = [Row(op.name, "simulation", where, True, f"{len(calls)} calls", spent)]
    bounds = {r.name: r.high for r in schedule.ranges}
    differences = compare(sim.log, unroll(schedule, op, world, calls, bounds), op)
    rows.append(Row(op.name, "conformance", where, not differences, "; ".join(differences[:3])))
    rows += compare_results(op, typed, inputs, results, world, where, integers)
    return rows


def as_tuple(value) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def compare_results(op: OpSchedule, typed: Op, inputs: list[Inputs], results, world: int, where: str, integers: bool) -> list[Row]:
    rows = []
    for i, result in enumerate(op.results):
        different, worst, nans = [], 0.0, []
        for call, x in enumerate(inputs):
            fused = [results[r][call][0][i] for r in range(world)]
            exact = [results[r][call][1][i] for r in range(world)]
            different += [f"call {call} on rank {r}" for r in range(world) if not same_bits(fused[r], exact[r])]
            reference = evaluate(typed, {}, x.whole)[result.name]
            whole = join(fused, typed, i)
            nans += [f"call {call}"] if not torch.isfinite(whole).all() else []
            worst = max(worst, error(whole, reference))
        rows.append(Row(op.name, f"{result.name} = exact, bit by bit", where, not different, ", ".join(different[:4])))
        limit = 0.0 if integers else TOLERANCE[result.dtype]
        kind = "float64 on small integers, equal" if integers else f"float64 within {limit:g}"
        detail = f"unwritten or not finite: {', '.join(nans)}" if nans else f"error {worst:.2e}"
        rows.append(Row(op.name, f"{result.name} = {kind}", where, not nans and worst <= limit, detail))
    return rows


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def error(value: torch.Tensor, reference: torch.Tensor) -> float:
    """Relative error in norm; infinite for another shape."""
    if value.shape != reference.shape:
        return float("inf")
    scale = reference.norm().item()
    gap = (value - reference).norm().item()
    return gap if scale == 0 else gap / scale
