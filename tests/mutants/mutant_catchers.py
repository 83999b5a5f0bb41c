"""Everything that may catch a fault, tried on a base with the fault in it (or with none: then nothing may speak).

proof        check.worlds refutes the schedule
lint         aot lints over the compiled kernel
simulator    a simulated run ends with a fault
timeout      a rank stays silent: others must stop, publish nothing, and say where
conformance  the run's log differs from the plan
exact        bits differ from the unfused pipeline
float64      values differ from the reference
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from mutant_bases import build_base
from mutant_faults import Fault, plant_schedule, render_text, words

from chunkdsl.check.worlds import prove_op
from chunkdsl.plan.unroll import unroll
from chunkdsl.render.module import class_name
from chunkdsl.sim.conformance import compare
from chunkdsl.sim.faults import SimulationFault
from chunkdsl.sim.log import Log, Signal, Wait
from chunkdsl.sim.world import World
from chunkdsl.verify.inputs import draw
from chunkdsl.verify.reference import is_linear
from chunkdsl.verify.simulate import as_tuple, compare_results
from chunkdsl.verify.verify import load


@dataclass(frozen=True)
class Run:
    """One simulated run: sizes of consecutive calls without a meeting in between, and what the `World` is told."""

    world: int = 3
    calls: tuple[int, ...] = (37, 2, 40)
    seed: int = 1
    resident: int | None = None
    sms: int = 4
    policy: str = "random"
    slow: int | None = None
    races: bool = True
    pointers: bool = False
    integers: bool = True
    silent: int | None = None  # this rank makes no call


CATCHERS = ("proof", "lint", "simulator", "timeout", "conformance", "exact", "float64")
Caught = list[tuple[str, str]]  # catcher, what it says


def catch(base: str, fault: Fault | None, run: Run, catchers: tuple[str, ...]) -> Caught:
    """What each of `catchers` says, in the order above."""
    made = build_base(base)
    schedule = plant_schedule(fault, made.schedule)
    caught: Caught = []
    if "proof" in catchers:
        for world in sorted({2, run.world}):
            caught += [
                ("proof", f"{r.code} {words(r.message)}")
                for r in prove_op(schedule, schedule.ops[0], world).refutations[:1]
            ]
    if not set(catchers) - {"proof"}:
        return caught
    module = load_module(f"{base}_{fault.name if fault else 'sound'}", render_text(fault, schedule, (2, 3, 4)))
    if "lint" in catchers:
        caught += lint_module(module, schedule)
    if run.silent is not None:
        caught += silence(module, made, schedule, run)
    elif set(catchers) - {"proof", "lint"}:
        caught += simulate(module, made, schedule, run)
    return caught


@cache
def folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="mutants-")


def load_module(name: str, text: str):
    safe = "".join(c if c.isalnum() else "_" for c in name)
    return load(text, Path(folder().name), safe)


def simulate(module, made, schedule, run: Run) -> Caught:
    (op,), (typed,) = schedule.ops, made.program.ops
    integers = run.integers and is_linear(typed)
    inputs = [draw(typed, op, {"M": m}, run.world, 100 * run.seed + i, integers) for i, m in enumerate(run.calls)]

    def host(machine):
        if run.pointers:
            machine.target = "sm_80"
        instance = getattr(module, class_name(schedule.path))(machine=machine)
        # No meeting between the calls: a fast rank is a call ahead, as on a GPU.
        fused = [as_tuple(instance.f(*x.shards[machine.rank], **x.dims)) for x in inputs]
        instance.check()
        exact = [as_tuple(instance.f.exact(*x.shards[machine.rank], **x.dims)) for x in inputs]
        instance.close()
        return list(zip(fused, exact, strict=True))

    world = new_world(run)
    try:
        results = world.run(host)
    except SimulationFault as fault:
        return [("simulator", f"{type(fault).__name__}: {words(str(fault))}")]
    except RuntimeError as error:
        if "is dead" not in str(error):
            raise
        return [("timeout", words(str(error)))]
    bounds = {r.name: r.high for r in schedule.ranges}
    plan = unroll(schedule, op, run.world, [{"M": m} for m in run.calls], bounds)
    caught = [("conformance", words(d)) for d in compare(world.log, plan, op)[:1]]
    for row in compare_results(op, typed, inputs, results, run.world, "", integers):
        if not row.passed:
            caught.append(("exact" if "exact" in row.check else "float64", f"{row.check}: {row.detail}"))
    return caught


def new_world(run: Run, **more) -> World:
    keys = ("seed", "resident", "sms", "policy", "slow", "races")
    return World(run.world, log=True, max_steps=400_000, **{k: getattr(run, k) for k in keys}, **more)


def silence(module, made, schedule, run: Run) -> Caught:
    """One rank builds the instance and makes no call; the others' waits run out."""
    (op,), (typed,) = schedule.ops, made.program.ops
    x = draw(typed, op, {"M": run.calls[0]}, run.world, run.seed, True)

    def host(machine):
        instance = getattr(module, class_name(schedule.path))(machine=machine)
        said = ""
        if machine.rank != run.silent:
            instance.f(*x.shards[machine.rank], **x.dims)
            try:
                instance.check()
            except RuntimeError as error:
                said = str(error)
        machine.barrier()
        return said

    world = new_world(run, expire=True)
    try:
        said = world.run(host)
    except SimulationFault as fault:
        return [("simulator", f"{type(fault).__name__}: {words(str(fault))}")]
    flags = {f.name for f in op.flags} | {f"{op.name}_closed"}
    caught = [("timeout", text) for text in published_in_vain(world.log, flags)[:1]]
    others = [s for rank, s in enumerate(said) if rank != run.silent]
    if not all("is dead" in s for s in others) or not any(f"{schedule.path}:" in s for s in others):
        caught.append(("timeout", f"check() says {others}"))
    return caught


def published_in_vain(log: Log, flags: set[str]) -> list[str]:
    """Signals of a program whose wait ran out, and of kernels that its rank starts after that one."""
    first: dict[int, int] = {}  # rank -> launch
    found = []
    for trail in log.trails:
        o, last = trail.origin, {}
        for e in trail.events:
            if isinstance(e, Wait) and e.at.buffer in flags:
                last[e.at, e.index] = e.value
            elif isinstance(e, Signal) and e.at.buffer in flags:
                if any(value < o.call for value in last.values()) or first.get(o.rank, o.launch) < o.launch:
                    found.append(f"{o.label} of rank {o.rank} signals {e.at.buffer} after a wait that ran out")
        if any(value < o.call for value in last.values()):
            first[o.rank] = min(o.launch, first.get(o.rank, o.launch))
    return found


def lint_module(module, schedule) -> Caught:
    """Lints over the fused kernel of the first launch, compiled for sm_80 and sm_90."""
    from chunkdsl.aot.lints import lint
    from chunkdsl.aot.pool import compile_all
    from chunkdsl.aot.record import RecordingMachine

    text, name = Path(module.__file__).read_text(), schedule.ops[0].launches[0].name
    caught = []
    for target in ("sm_80", "sm_90"):
        machine = RecordingMachine(rank=0, world=3, target=target)
        getattr(module, class_name(schedule.path))(machine=machine)
        uses = [u for u in machine.uses if u.name == name and u.constants[u.kernel.arg_names.index("FUSED"),]]
        assert uses
        for _, compiled in compile_all(uses, [target], processes=1):
            caught += [("lint", f"{target} {f.lint}: {f.message}") for f in lint(compiled, target, text)]
    return caught


def quiet_torch() -> None:
    torch.set_num_threads(1)
