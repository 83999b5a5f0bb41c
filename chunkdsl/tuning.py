"""`chunkdsl tune`, from a spec to its file of results: reads and checks, searches until all is measured or time is out,
keeps what is known after every setting. Times come from a clock (tune/clock.py) that the caller brings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, TextIO

import chunkdsl
from chunkdsl import pipeline
from chunkdsl.diagnostics import Report

if TYPE_CHECKING:
    from chunkdsl.ir.meshes import World
    from chunkdsl.plan.schedule import Schedule
    from chunkdsl.tune.clock import Clock
    from chunkdsl.tune.evidence import Sizes, Tuned
    from chunkdsl.tune.space import Space

FEWEST_SIZES = 3  # from the largest down, each a quarter of the one before


@dataclass(frozen=True)
class Options:
    """`shapes`: sizes by run-time dim; `seconds`: after which no setting is begun; `plot`: path of the drawing, ""
    for the one beside the spec."""

    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    seconds: float = 600.0
    fresh: bool = False
    plot: str = ""


def rehearse(path: str, world: World | None, options: Options, out: TextIO) -> tuple[Report, str]:
    """The same with the cost model for a clock, on as many ranks as asked for, by default those of the mesh."""
    from chunkdsl.tune.clock import Predicted

    return tune(path, world, Predicted, options, out)


def tune(
    path: str, world: World | None, clock_of: Callable[[Schedule, World, str], Clock], options: Options, out: TextIO,
    now: Callable[[], float] = time.monotonic,
) -> tuple[Report, str]:  # fmt: skip
    """The findings about the spec, and what was found out about its ops, as text; "" with errors. `clock_of` gets the
    schedule by the rules, the ranks and the GPU that the mesh's link goes with."""
    from chunkdsl.replace import replace_file
    from chunkdsl.report import tuning_page, tuning_text
    from chunkdsl.tune.evidence import dump
    from chunkdsl.tune.progress import Progress
    from chunkdsl.tune.search import progress, search
    from chunkdsl.tune.settle import tuned_path

    checked = pipeline.read_one(path, settled=False)
    report, file = checked.report, tuned_path(path)
    plot = options.plot or file.removesuffix(".json") + ".html"
    made, world, found, calls = _prepare(checked, world, options, plot)
    if report.failed:
        return report, ""
    clock = clock_of(made, world, found[0].trials.gpu)
    tuned = _begun(file, made, clock, options, report)
    if report.failed:
        return report, ""
    done = progress(found, tuned, world, calls)
    shown = Progress(sum(s.count for s in found), done, options.seconds, now, out)
    try:
        for more in search(found, tuned, world, calls, clock.measure, shown.may_go_on):
            tuned = more
            replace_file(file, dump(tuned).encode())
        shown.end(progress(found, tuned, world, calls))
        page = tuning_page.render(plot, found, tuned, world, f"chunkdsl {chunkdsl.__version__} from {path}")
        replace_file(plot, page.encode())
    except (OSError, ValueError) as error:  # ValueError: a NUL in a path
        from chunkdsl.check.options import unwritable_output

        why = getattr(error, "strerror", None) or str(error)
        report.add(unwritable_output(file, why, "results are kept beside the spec: make its folder writable"))
        return report, ""
    return report, tuning_text.render(found, tuned, world, calls) + f"{file}\n{plot}\n"


def _prepare(
    checked: pipeline.Checked, world: World | None, options: Options, plot: str
) -> tuple[Schedule | None, World, list[Space], tuple[Sizes, ...]]:
    """The schedule by the rules, the ranks, what may be tried, and the sizes of the calls; with what does not fit
    reported."""
    from chunkdsl.check.meshes import fit_worlds
    from chunkdsl.check.timelines import no_such_drawing
    from chunkdsl.check.tuning import cannot_tune_here
    from chunkdsl.ir.meshes import world_text
    from chunkdsl.report.tuning_page import KINDS
    from chunkdsl.tune.space import spaces

    report, made = checked.report, checked.schedule
    if not plot.endswith(KINDS):
        report.add(no_such_drawing(plot, KINDS))
    if report.failed:
        return None, 0, [], ()
    (world,) = fit_worlds([world or made.world], made.mesh, report) or [made.world]
    calls = calls_of(made, options.shapes, report)
    if not report.failed:
        _refuse_unserved(checked, world)
    if report.failed:
        return None, 0, [], ()
    made, found = spaces(checked.program, world)
    if not found:
        why = f"no op of {checked.report.source.path} has more than one rank of {world_text(world)}"
        report.add(cannot_tune_here(why, "tune on two ranks or more"))
    return made, world, found, calls


def _refuse_unserved(checked: pipeline.Checked, world: World) -> None:
    from chunkdsl.check.plans import line_span
    from chunkdsl.check.routes import explain_breach
    from chunkdsl.check.targets import world_size_not_served
    from chunkdsl.check.worlds import misfit, route_breaches
    from chunkdsl.ir.meshes import route_world

    made, report = checked.schedule, checked.report
    for op in made.ops:
        breaches = route_breaches(op, route_world(made.mesh, op.over, world))
        report.extend(explain_breach(b, report.source) for b in breaches)
        if not breaches and (why := misfit(made, op, world)):
            report.add(world_size_not_served(op.name, [world], why, line_span(report.source, op.line)))


def calls_of(made: Schedule, shapes: Mapping[str, Sequence[int]], report: Report) -> tuple[Sizes, ...]:
    """Bindings of all run-time dims, ascending: of every dim the sizes that were asked for. What was not asked for goes
    through the largest size of its range, a quarter and a sixteenth of it, all such dims together."""
    from chunkdsl.check.options import bind_dims, largest_dims

    for values in product(*shapes.values()):
        bind_dims(made.ranges, dict(zip(shapes, values, strict=True)), report)
    if report.failed:
        return ()
    free = [r for r in made.ranges if r.name not in shapes]
    scaled = []
    for i in range(FEWEST_SIZES if free else 1):
        top = largest_dims(free)
        scaled.append({r.name: max(-(-r.low // r.step) * r.step, top[r.name] // 4**i // r.step * r.step) for r in free})
    found = set()
    for part in scaled:
        for values in product(*shapes.values()):
            bound = part | dict(zip(shapes, values, strict=True))
            found.add(tuple((r.name, bound[r.name]) for r in made.ranges))
    return tuple(sorted(found))


def _begun(file: str, made: Schedule, clock: Clock, options: Options, report: Report) -> Tuned:
    """The results that are there and go on, else none. Those of another text of the spec have no use any more."""
    from chunkdsl.check.tuning import tuned_elsewhere
    from chunkdsl.tune.evidence import Origin, Tuned
    from chunkdsl.tune.settle import read_tuned

    versions = tuple(sorted({"chunkdsl": chunkdsl.__version__, **clock.versions}.items()))
    origin = Origin(made.digest, clock.gpu, versions, clock.rehearsal)
    old = None if options.fresh else read_tuned(file, report)
    if old is None or old.origin.digest != made.digest:
        return Tuned(origin)
    if old.origin != origin:
        report.add(tuned_elsewhere(file, _said(old.origin), _said(origin)))
    return old


def _said(origin) -> str:
    return f"{origin.gpu} ({', '.join(f'{name} {version}' for name, version in origin.versions)})"
