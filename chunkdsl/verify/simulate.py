"""One op's module on simulated ranks: several calls in a row, compared with `exact`, float64 and the plan."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import torch

from chunkdsl.ir.graph import Op
from chunkdsl.ir.meshes import World, bindings, outside, ranks_of, subgroups, world_text
from chunkdsl.plan.join import join_plans
from chunkdsl.plan.plan import Plan
from chunkdsl.plan.schedule import OpSchedule, Schedule
from chunkdsl.plan.unroll import unroll
from chunkdsl.sim.conformance import compare
from chunkdsl.sim.faults import SimulationFault
from chunkdsl.sim.world import World as Simulated
from chunkdsl.verify.fallback import compare_fallback
from chunkdsl.verify.inputs import Inputs, draw, join
from chunkdsl.verify.kernels import whole_kernels
from chunkdsl.verify.reference import evaluate, is_linear

TOLERANCE = {"bf16": 2e-2, "f16": 4e-3, "f32": 2e-5}  # relative error in norm; a statement rounds once, a wire again


@dataclass(frozen=True)
class Row:
    """One line of the table. When it failed, `detail` says how and `again` is the command that shows it alone."""

    op: str
    check: str
    where: str
    passed: bool
    detail: str = ""
    seconds: float = 0.0
    again: str = ""
    ran: bool = True  # False: this check was left out, and `detail` says why


def call_sizes(schedule: Schedule, world: World) -> list[dict[str, int]]:
    """Several calls in a row, within the ranges: ragged, no or one row, fewer rows than ranks, ragged again. Small
    all-reduces do not share out rows: of those there are four calls, so that the first of three slots is used again."""
    small = all(op.exchange for op in schedule.ops)
    wanted = (
        lambda high: high - 3,
        lambda high: 0,  # or the least
        lambda high: 1,
        lambda high: 2 if small else max(1, ranks_of(world) - 1),
        lambda high: high // 2 + 1,
    )
    calls = []
    for pick in wanted:
        dims = {}
        for r in schedule.ranges:
            least = -(-max(r.low, 0) // r.step) * r.step
            value = min(r.high, pick(r.high))
            dims[r.name] = max(least, value // r.step * r.step, r.step if value else 0)
        if dims not in calls:
            calls.append(dims)
    return calls


def gated(op: OpSchedule, dims: dict[str, int], captured: bool = False) -> bool:
    """Whether the spec sends a call of this size the unfused way; calls that a CUDA graph captures may have a gate of
    their own."""
    gate = op.gate.of(captured).fuse_from
    return gate.count is None or (gate.dim is not None and dims[gate.dim] < gate.count)


def run_op(
    module, title: str, schedule: Schedule, op: OpSchedule, typed: Op, world: World, seed: int, calls, *,
    pointers: bool, fallback: bool = False,
) -> list[Row]:
    """Rows for one op, world size and seed. `pointers`: the variant without TMA; `fallback`: the fallback is run too.
    Small integers on even seeds where the op is linear."""
    integers = seed % 2 == 0 and is_linear(typed)
    if op.gate.eager:
        calls = [dims for dims in calls for _ in range(2)]
    inputs = [draw(typed, op, dims, world, 1000 * seed + i, integers) for i, dims in enumerate(calls)]
    if op.gate.eager:
        inputs = [replace(x, captured=i % 2 == 1) for i, x in enumerate(inputs)]
    resident = None if seed % 2 == 0 else 2
    variant = "pointer loads" if pointers else "TMA"
    where = f"{world_text(world)} ranks, seed {seed}, {variant}"
    started = time.perf_counter()

    def host(machine):
        if pointers:
            machine.target = "sm_80"
        instance = getattr(module, title)(machine=machine, mesh=world if isinstance(world, tuple) else None)
        callable_ = getattr(instance, op.name)
        if callable_.why_not is not None:
            raise RuntimeError(f"{op.name} does not run fused: {callable_.why_not}")
        # All fused calls first: `exact` is a meeting of all ranks, and between two of them no rank gets a call ahead.
        fused = []
        for x in inputs:
            unfused = gated(op, x.dims, x.captured)
            with said_captured(callable_.machine, x), at_once(callable_.machine) if unfused else nullcontext():
                fused.append(whole_result(callable_, op, x, machine.rank))
        instance.check()
        exact = [whole_result(callable_.exact, op, x, machine.rank) for x in inputs]
        instance.check()
        with at_once(callable_.machine):
            plain = [whole_result(callable_.fallback, op, x, machine.rank) for x in inputs if fallback]
        instance.close()
        return list(zip(fused, exact, strict=True)), plain

    hold = bool(op.exchange and op.exchange.assume)
    sim = Simulated(ranks_of(world), seed=seed, resident=resident, log=True, hold=hold)
    try:
        results = sim.run(host)
    except SimulationFault as fault:
        return [Row(op.name, "simulation", where, False, str(fault), time.perf_counter() - started)]
    except Exception as raised:  # by the module's own wrapper
        detail = "\n".join([f"{type(raised).__name__}: {raised}", *getattr(raised, "__notes__", ())])
        return [Row(op.name, "simulation", where, False, detail, time.perf_counter() - started)]
    spent = time.perf_counter() - started
    rows = [Row(op.name, "simulation", where, True, f"{len(calls)} calls", spent)]
    fused = [x.dims for x in inputs if not gated(op, x.dims, x.captured)]
    if fused:
        bounds = {r.name: r.high for r in schedule.ranges}
        differences = compare(sim.log, whole_plan(schedule, op, world, fused, bounds), op)
        rows.append(Row(op.name, "conformance", where, not differences, few(differences)))
    kernels = whole_kernels(op, module)
    rows += compare_results(op, typed, inputs, [got for got, _ in results], world, where, integers, kernels)
    if fallback:
        limit = 0.0 if integers else tolerance(op)
        plain = [p for _, p in results]
        kind = "float64 on small integers, equal" if integers else f"float64 within {limit:g}"
        for name, wrong, worst in compare_fallback(op, typed, inputs, plain, world, limit, error, kernels):
            detail = few(wrong) or f"error {worst:.2e}"
            rows.append(Row(op.name, f"{name} of the fallback = {kind}", where, not wrong, detail))
    return rows


def whole_plan(schedule: Schedule, op: OpSchedule, world: World, calls, bounds) -> Plan:
    """The plan of all ranks of the mesh: those of its subgroups, each with its own bindings."""
    mesh, parts = schedule.mesh, []
    for members in subgroups(mesh, op.over, world):
        bound = outside(mesh, op.over, world, members[0])
        plan = unroll(schedule, op, len(members), [c | bound for c in calls], bounds | bindings(mesh, world))
        parts.append((plan, members))
    return parts[0][0] if len(parts) == 1 else join_plans(parts, ranks_of(world))


def whole_result(call, op: OpSchedule, x: Inputs, rank: int) -> tuple[torch.Tensor, ...]:
    """Results of a call, then what it left in the parameters that it updates in place (copies of the inputs)."""
    names = [p.name for p in op.parameters]
    tensors = [t.clone() if n in op.updates else t for n, t in zip(names, x.shards[rank], strict=True)]
    return (*as_tuple(call(*tensors, **x.dims)), *(tensors[names.index(n)] for n in op.updates))


@contextmanager
def at_once(machine) -> Iterator[None]:
    """Launches of this simulated machine end before they return. A fallback is torch's own operations, which run when
    they are called, around users' kernels, which are queued."""
    queue = machine.launch

    def launch(*given, **named):
        queue(*given, **named)
        machine.synchronize()

    machine.launch = launch
    try:
        yield
    finally:
        machine.launch = queue


@contextmanager
def said_captured(machine, x: Inputs) -> Iterator[None]:
    """This simulated machine says that a graph is being captured, if this call shall be one of those."""
    said = machine.capturing
    machine.capturing = lambda: x.captured
    try:
        yield
    finally:
        machine.capturing = said


def as_tuple(value) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def compare_results(
    op: OpSchedule, typed: Op, inputs: list[Inputs], results, world: World, where: str, integers: bool,
    kernels=None,
) -> list[Row]:
    """Two rows for each result: bits against `exact`, then against float64. `results[rank][call]`: (fused, exact).
    Below the gate a call promises the bits of `exact` only where the spec says so."""
    rows = []
    for i, result in enumerate([r.name for r in op.results] + list(op.updates)):
        limit = 0.0 if integers else tolerance(op)
        different, wrong, worst = [], [], 0.0
        for call, x in enumerate(inputs):
            named = f"call {call} ({', '.join(f'{k} = {v}' for k, v in x.dims.items())})"
            fused = [results[r][call][0][i] for r in range(ranks_of(world))]
            exact = [results[r][call][1][i] for r in range(ranks_of(world))]
            if not gated(op, x.dims, x.captured) or op.gate.fallback == "exact":
                ranks = [r for r in range(ranks_of(world)) if not same_bits(fused[r], exact[r])]
                different += [f"{named}, rank {r}: {differs(fused[r], exact[r])}" for r in ranks]
            whole, reference = join(fused, typed, i, world, op), evaluate(typed, x.whole, kernels)[result]
            gap = error(whole, reference)
            worst = max(worst, gap)
            if not gap <= limit:
                wrong.append(f"{named}: error {gap:.2e}, allowed {limit:g}; {farthest(whole, reference)}")
        rows.append(Row(op.name, f"{result} = exact, bit by bit", where, not different, few(different)))
        kind = "float64 on small integers, equal" if integers else f"float64 within {limit:g}"
        rows.append(Row(op.name, f"{result} = {kind}", where, not wrong, few(wrong) or f"error {worst:.2e}"))
    return rows


def few(findings: list[str], most: int = 3) -> str:
    """The first findings, one a line."""
    more = [f"and {len(findings) - most} more"] if len(findings) > most else []
    return "\n".join([*findings[:most], *more])


def differs(value: torch.Tensor, wanted: torch.Tensor) -> str:
    """How many elements differ, and the first of them."""
    if value.shape != wanted.shape:
        return f"shape {tuple(value.shape)}, not {tuple(wanted.shape)}"
    unequal = ~((value == wanted) | (value.isnan() & wanted.isnan()))
    if not unequal.any():
        return "signs of zero or payloads of nan"
    at = tuple(unequal.nonzero()[0].tolist())
    first = f"[{', '.join(map(str, at))}] is {value[at].item():g}, not {wanted[at].item():g}"
    return f"{int(unequal.sum())} of {unequal.numel()} elements, the first {first}"


def farthest(value: torch.Tensor, wanted: torch.Tensor) -> str:
    """The element with the largest difference."""
    if value.shape != wanted.shape:
        return differs(value, wanted)
    gaps = (value - wanted).abs().nan_to_num(nan=float("inf"))
    at = tuple(int(i) for i in torch.unravel_index(gaps.argmax(), gaps.shape))
    return f"farthest [{', '.join(map(str, at))}]: {value[at].item():g}, not {wanted[at].item():g}"


def tolerance(op: OpSchedule) -> float:
    """By the coarsest dtype on the way: of what comes in, is kept, travels or goes out."""
    kept = [*op.parameters, *op.buffers, *op.results]
    return max(TOLERANCE.get(x.dtype, 0.0) for x in kept)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def error(value: torch.Tensor, reference: torch.Tensor) -> float:
    """Relative error in norm; infinite for another shape and for what is not finite (never written, mostly)."""
    if value.shape != reference.shape or not torch.isfinite(value).all():
        return float("inf")
    scale = reference.norm().item()
    gap = (value - reference).norm().item()
    return gap if scale == 0 else gap / scale
