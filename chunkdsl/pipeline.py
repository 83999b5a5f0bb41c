"""The stages by name, in order, on one screen. Interpreter, simulator and compiler are imported only when asked for."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chunkdsl import files
from chunkdsl.crash import explain_crash
from chunkdsl.diagnostics import Report
from chunkdsl.ignores import apply_ignores
from chunkdsl.source import Source

if TYPE_CHECKING:
    from chunkdsl.cost.predict import Prediction
    from chunkdsl.ir.graph import Program
    from chunkdsl.ir.meshes import World
    from chunkdsl.plan.plan import Plan
    from chunkdsl.plan.schedule import OpSchedule, Schedule
    from chunkdsl.plan.summary import Summary
    from chunkdsl.syntax.nodes import File

LARGEST_PLAN = 1_000_000  # tasks
LARGEST_DRAWING = 50_000  # tasks
LARGEST_PREDICTED = 10_000  # tasks that `plan` plays out beside all else that it says
BUILT_FOR = range(1, 17)  # world sizes of one axis that every module is proven for, where the hardware serves them


@dataclass
class Checked:
    """What the stages made of one spec. Of one with errors there is no schedule, and later stages are None too."""

    report: Report
    file: File | None = None
    program: Program | None = None
    schedule: Schedule | None = None
    proven: tuple[World, ...] = ()
    module: str | None = None


@dataclass(frozen=True)
class PlannedOp:
    """One op's plan for one call. `note` says why no module serves this world size, if none does."""

    op: OpSchedule
    plan: Plan
    summary: Summary
    note: str


@dataclass
class Planned:
    checked: Checked
    ops: list[PlannedOp] = field(default_factory=list)


def check(paths: Iterable[str], worlds: Sequence[World] = ()) -> list[Report]:
    """The findings for every spec below `paths`, in order; with `worlds` also the proof for those world sizes.
    A path `-` is standard input.

    Never raises for what a spec holds: a failure of chunkdsl itself becomes a CD001 in that spec's report.
    """
    return [check_one(report, worlds) for report in files.read(paths, stdin=True)]


def check_one(report: Report, worlds: Sequence[World] = ()) -> Report:
    """The same report with every finding for its source, less those that comments in it silence."""
    if not report.failed:
        try:
            checked = check_report(report)
            if worlds and not report.failed:
                settle(checked)
                prove(checked, (), worlds)
            apply_ignores(report)
        except Exception as error:
            report.add(explain_crash(error))
    return report


def build(path: str, named: Collection[World] = (), only: bool = False) -> Checked:
    """The module of one spec, proven for the sizes that all modules have (`built_for`) but with `only`, the mesh's own
    and the `named` ones; None with errors."""
    from chunkdsl.check.options import path_not_for_a_module

    checked = read_one(path)
    if not checked.report.failed and (not path.isprintable() or set(path) & {'"', "\\"}):
        checked.report.add(path_not_for_a_module())
    if not checked.report.failed:
        from chunkdsl.ir.meshes import built_for

        usual = () if only else built_for(checked.schedule.mesh, BUILT_FOR)
        prove(checked, {*usual, checked.schedule.world}, named)
    if not checked.report.failed:
        render(checked, only)
    return checked


def plan(path: str, world: World | None = None, rank: int = 0, dims: Mapping[str, int] | None = None) -> Planned:
    """One call of every op of a spec, unrolled: by default for the mesh's own size and the largest run-time dims."""
    return plan_checked(read_one(path), world, rank, dims)


def plan_checked(
    checked: Checked, world: World | None = None, rank: int = 0, dims: Mapping[str, int] | None = None,
    largest: int | None = None,
) -> Planned:  # fmt: skip
    """That of a spec which was read and checked before. `largest`: tasks above which a plan is refused."""
    largest = largest or LARGEST_PLAN
    from chunkdsl.check.meshes import fit_worlds
    from chunkdsl.check.options import bind_dims, largest_dims, no_such_rank, plan_too_large
    from chunkdsl.ir.meshes import bindings, outside, ranks_of, route_world, scope, subgroup

    planned = Planned(checked)
    report, made = planned.checked.report, planned.checked.schedule
    if report.failed:
        return planned
    sizes = bind_dims(made.ranges, dims or {}, report)
    (world,) = fit_worlds([world or made.world], made.mesh, report) or [made.world]
    if not 0 <= rank < ranks_of(world):
        report.add(no_such_rank(rank, ranks_of(world)))
    if not report.failed:
        from chunkdsl.check.routes import explain_breach
        from chunkdsl.check.worlds import route_breaches
        from chunkdsl.plan.summary import expected_tasks

        found = [b for op in made.ops for b in route_breaches(op, route_world(made.mesh, op.over, world))]
        report.extend(explain_breach(b, report.source) for b in found)
    if not report.failed:
        for op in made.ops:
            bound = sizes | outside(made.mesh, op.over, world, rank)
            if (tasks := expected_tasks(op, scope(made.mesh, op.over, world), bound)) > largest:
                report.add(plan_too_large(op.name, tasks, largest))
    if not report.failed:
        from chunkdsl.check.worlds import misfit
        from chunkdsl.plan.summary import summarise
        from chunkdsl.plan.unroll import unroll

        bounds = largest_dims(made.ranges) | bindings(made.mesh, world)
        for op in made.ops:
            members = subgroup(made.mesh, op.over, world, rank)
            bound = sizes | outside(made.mesh, op.over, world, rank)
            unrolled = unroll(made, op, len(members), [bound], bounds)
            summary = summarise(made, op, unrolled, members.index(rank), bound, bounds)
            planned.ops.append(PlannedOp(op, unrolled, summary, misfit(made, op, world)))
    return planned


def route(path: str, name: str, world: World | None = None) -> tuple[Report, str]:
    """A plan of a spec, carried out for a world size (by default that of the mesh), in the form that `use plan` reads;
    "" with errors. Ops play no part, and there may be none."""
    from chunkdsl.check.meshes import fit_worlds
    from chunkdsl.check.options import no_such_plan
    from chunkdsl.check.routes import explain_breach
    from chunkdsl.ir.meshes import declared, route_world
    from chunkdsl.lower.nearest import Nearest
    from chunkdsl.plan.importers import dump_route

    (report,) = files.read([path]) if not os.path.isdir(path) else (read_one(path).report,)
    checked = Checked(report)
    if not report.failed:
        parse(checked)
    if not report.failed:
        lower(checked)
    if report.failed:
        return report, ""
    routing = checked.program.plans.get(name)
    if routing is None:
        known = tuple(checked.program.plans)
        report.add(no_such_plan(name, Nearest(known).of(name), known))
        return report, ""
    mesh = checked.program.mesh
    worlds = fit_worlds([world or declared(mesh)], mesh, report)
    if not report.failed:
        ranks = route_world(mesh, routing.axes, worlds[0])
        report.extend(explain_breach(breach, report.source) for breach in routing.breaches(ranks))
    return report, "" if report.failed else dump_route(routing.trace(ranks).route)


def timeline(
    path: str, world: int | None = None, gpu: str | None = None, dims: Mapping[str, int] | None = None,
    captured: bool = True,
) -> tuple[Checked, list[Prediction]]:  # fmt: skip
    """One call of every op of a spec as the cost model predicts it: by default for the mesh's own size, the largest
    run-time dims and the GPU that goes with the mesh's link. `captured`: replayed from a CUDA graph."""
    checked = read_one(path)
    return checked, predict_checked(checked, world, gpu, dims, captured)


def predict_checked(
    checked: Checked, world: int | None = None, gpu: str | None = None, dims: Mapping[str, int] | None = None,
    captured: bool = True,
) -> list[Prediction]:  # fmt: skip
    """The predictions for a spec which was read and checked before; none, with findings, where there can be none."""
    from chunkdsl.check.meshes import fit_worlds
    from chunkdsl.check.options import bind_dims, plan_too_large
    from chunkdsl.check.plans import line_span
    from chunkdsl.check.routes import explain_breach
    from chunkdsl.check.targets import world_size_not_served
    from chunkdsl.check.timelines import no_such_gpu, switch_not_predicted
    from chunkdsl.check.worlds import misfit, route_breaches
    from chunkdsl.cost.constants import gpu_names
    from chunkdsl.cost.machines import machine_for
    from chunkdsl.cost.predict import predict
    from chunkdsl.ir.meshes import bindings, route_world, scope
    from chunkdsl.lower.nearest import Nearest
    from chunkdsl.plan.summary import expected_tasks
    from chunkdsl.plan.unroll import unroll

    report, made = checked.report, checked.schedule
    if gpu is not None and gpu not in gpu_names():
        report.add(no_such_gpu(gpu, Nearest(gpu_names()).of(gpu), gpu_names()))
    if report.failed:
        return []
    sizes = bind_dims(made.ranges, dims or {}, report)
    (world,) = fit_worlds([world or made.world], made.mesh, report) or [made.world]
    first = bindings(made.mesh, world)  # of two axes the first subgroup, which has most to do
    if not report.failed:
        found = [b for op in made.ops for b in route_breaches(op, route_world(made.mesh, op.over, world))]
        report.extend(explain_breach(b, report.source) for b in found)
    if not report.failed:
        for op in made.ops:
            if (tasks := expected_tasks(op, scope(made.mesh, op.over, world), sizes | first)) > LARGEST_DRAWING:
                report.add(plan_too_large(op.name, tasks, LARGEST_DRAWING))
            if why := misfit(made, op, world):
                report.add(world_size_not_served(op.name, [world], why, line_span(report.source, op.line)))
            if op.exchange and op.exchange.via == "multimem":
                report.add(switch_not_predicted(op.name, line_span(report.source, op.line)))
    if report.failed:
        return []
    predictions = []
    for op in made.ops:
        unrolled = unroll(made, op, scope(made.mesh, op.over, world), [sizes | first])
        predictions.append(predict(op, unrolled, machine_for(made, op, sizes | first, gpu, captured)))
    return predictions


def predict_planned(planned: Planned) -> dict[str, Prediction | str]:
    """What the cost model says of planned calls, by op, on the GPU that goes with the mesh's link; of those that it
    does not know, or that are too large to be played out beside all else, why it says nothing."""
    from chunkdsl.cost.machines import machine_for
    from chunkdsl.cost.predict import predict

    made, found = planned.checked.schedule, {}
    for p in planned.ops:
        tasks = len(p.plan.tasks)
        if p.op.exchange and p.op.exchange.via == "multimem":
            found[p.op.name] = "what the switch does is not modelled"
        elif tasks > LARGEST_PREDICTED:
            most = f"`plan` plays out up to {LARGEST_PREDICTED:,}, `chunkdsl timeline` up to {LARGEST_DRAWING:,}"
            found[p.op.name] = f"this call has {tasks:,} tasks; {most}, and smaller sizes have fewer (--dim)"
        else:
            found[p.op.name] = predict(p.op, p.plan, machine_for(made, p.op, dict(p.plan.calls[0])))
    return found


def read_one(path: str, settled: bool = True) -> Checked:
    """Every stage that needs no world size, on one spec that shall have a product: a folder fails, and so does a spec
    without ops. `settled`: also what is left `auto`."""
    from chunkdsl.check import files as rules
    from chunkdsl.check.options import nothing_to_build

    report = Report(Source(path, ""))
    if os.path.isdir(path):
        report.add(rules.unreadable_path("it is a folder; name one spec"))
    else:
        (report,) = files.read([path])
    if report.failed:
        return Checked(report)
    checked = check_report(report)
    if not report.failed and not checked.schedule.ops:
        report.add(nothing_to_build())
    if settled and not report.failed:
        settle(checked)
    return checked


def check_source(source: Source) -> Checked:
    """Every stage that needs no world size, on one text."""
    return check_report(Report(source))


def check_report(report: Report) -> Checked:
    """Parse, lower, schedule. Items that parse are lowered beside those that do not: a mistake costs one item. What has
    errors is not scheduled."""
    checked = Checked(report)
    parse(checked)
    lower(checked)
    if not report.failed:
        schedule(checked)
    return checked


def parse(checked: Checked) -> None:
    """Text to syntax tree (CD1)."""
    from chunkdsl.syntax.parse import parse

    checked.file = parse(checked.report.source, checked.report)


def lower(checked: Checked) -> None:
    """Syntax tree to typed program (CD2)."""
    from chunkdsl.lower.program import lower

    checked.program = lower(checked.file, checked.report.source, checked.report)


def schedule(checked: Checked) -> None:
    """Typed program to schedule (CD5, CD6)."""
    from chunkdsl.lower.schedule import schedule_program

    checked.schedule = schedule_program(checked.program, checked.report)


def settle(checked: Checked) -> None:
    """What is left `auto`, from what was measured (`tune`), else from the cost model: the schedule again, with what is
    clearly faster than the rules say. It adds no findings but those about a file of measurements: only what schedules
    without any is chosen."""
    from chunkdsl.cost.choose import choose
    from chunkdsl.lower.schedule import schedule_program
    from chunkdsl.tune.settle import settle_tuned, tuned_path

    made, report = checked.schedule, checked.report
    if found := settle_tuned(checked.program, made, choose(checked.program, made), tuned_path(made.path), report):
        checked.schedule = schedule_program(checked.program, Report(report.source), found)


def prove(checked: Checked, worlds: Iterable[World], named: Collection[World] = ()) -> None:
    """Schedule to plans, one for each world size, and their proof (CD3, CD4, CD606).

    What fails is an error for the size that the mesh declares and for the `named` ones, a note for the others.
    """
    from chunkdsl.check.meshes import fit_worlds
    from chunkdsl.check.proofs import explain_verdicts, proven_sizes
    from chunkdsl.check.routes import explain_breach
    from chunkdsl.check.worlds import prove_worlds
    from chunkdsl.ir.meshes import in_order, route_world

    made, source = checked.schedule, checked.report.source
    named = fit_worlds(named, made.mesh, checked.report)
    if checked.report.failed:
        return
    verdicts = prove_worlds(made, in_order([*worlds, *named]))
    checked.report.extend(explain_verdicts(verdicts, made, source, {made.world, *named}))
    checked.proven = proven_sizes(verdicts)
    taken = {r.message for v in verdicts for r in v.refutations}
    for routing in checked.program.plans.values():  # also of plans that no op takes
        over = routing.axes if len(made.mesh.axes) > 1 else ()
        sizes = in_order(route_world(made.mesh, over, world) for world in named)
        found = (b for size in sizes for b in routing.breaches(size) if b.message not in taken)
        checked.report.extend(explain_breach(b, source) for b in found)


def render(checked: Checked, only: bool = False) -> None:
    """Schedule to the text of a module, which says how to build it again for the same world sizes."""
    from chunkdsl.ir.meshes import built_for, worlds_text
    from chunkdsl.render.module import render_module

    made = checked.schedule
    usual = {made.world, *(() if only else built_for(made.mesh, BUILT_FOR))}
    more = [w for w in checked.proven if w not in usual]
    command = ["chunkdsl", "build", made.path, *(["--world", worlds_text(more)] if more else [])]
    command += ["--only"] if only else []
    checked.module = render_module(made, checked.proven, shlex.join(command))
