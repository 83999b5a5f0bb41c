"""`chunkdsl tune`, from a spec to its file of results: reads and checks, searches until all is measured or time is out,
keeps what is known after every setting. Times come from a clock (tune/clock.py) that the caller brings. The same in
three parts, for GPUs on a machine without chunkdsl's dependencies, is in kits.py.
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
    from chunkdsl.tune.evidence import Origin, Sizes, Tuned
    from chunkdsl.tune.search import Candidates
    from chunkdsl.tune.space import Space

FEWEST_SIZES = 3  # from the largest down, each a quarter of the one before


@dataclass(frozen=True)
class Options:
    """`shapes`: sizes by run-time dim, or by `OP.DIM` for one op alone; `ops`: names of those to tune, none for all;
    `seconds`: in which all shall be done; `plot`: path of the drawing, "" for the one beside the spec; `most`:
    ranks that there can be, 0 for any number."""

    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    ops: Sequence[str] = ()
    seconds: float = 600.0
    fresh: bool = False
    plot: str = ""
    most: int = 0


@dataclass(frozen=True)
class Prepared:
    """A spec that can be tuned: the schedule by the rules on so many ranks, and what may be tried for its ops."""

    report: Report
    made: Schedule
    world: World
    found: list[Space]


def rehearse(path: str, world: World | None, options: Options, out: TextIO) -> tuple[Report, str]:
    """The same with the cost model for a clock, on as many ranks as asked for, by default those of the mesh."""
    from chunkdsl.tune.clock import Predicted

    def clock_of(ready: Prepared) -> Clock:
        return Predicted(ready.made, ready.world, ready.found[0].trials.gpu)

    return tune(path, world, clock_of, options, out)


def tune(
    path: str, world: World | None, clock_of: Callable[[Prepared], Clock], options: Options, out: TextIO,
    now: Callable[[], float] = time.monotonic,
) -> tuple[Report, str]:  # fmt: skip
    """The findings about the spec, and what was found out about its ops, as text; "" with errors."""
    from chunkdsl.tune.settle import tuned_path

    file = tuned_path(path)
    plot = options.plot or file.removesuffix(".json") + ".html"
    ready = prepare(path, world, options, plot)
    report = ready.report
    if report.failed:
        return report, ""
    clock = clock_of(ready)
    origin = origin_of(ready.made.digest, clock)
    tuned = begin(file, origin, options.fresh, report)
    if not report.failed:
        tuned = run(file, tuned, ready.found, ready.world, clock, options.seconds, out, now, report)
    if not report.failed:
        draw(plot, ready.found, tuned, ready.world, path, report)
    return report, "" if report.failed else told(ready.found, tuned, ready.world) + f"{file}\n{plot}\n"


def run(
    file: str, tuned: Tuned, found: Sequence[Candidates], world: World, clock: Clock, seconds: float, out: TextIO,
    now: Callable[[], float], report: Report,
) -> Tuned:  # fmt: skip
    """Measures what is left, as long as there is time, and keeps what is known after every setting. A file that cannot
    be written is reported."""
    from chunkdsl.replace import replace_file
    from chunkdsl.tune.evidence import dump
    from chunkdsl.tune.progress import Progress
    from chunkdsl.tune.search import progress, search

    shown = Progress(sum(s.count for s in found), progress(found, tuned, world), seconds, now, out)
    try:
        for more in search(found, tuned, world, clock.measure, shown.may_go_on):
            tuned = more
            replace_file(file, dump(tuned).encode())
        shown.end(progress(found, tuned, world))
    except (OSError, ValueError) as error:  # ValueError: a NUL in a path
        cannot_write(file, error, report)
    return tuned


def draw(plot: str, found: Sequence[Candidates], tuned: Tuned, world: World, spec: str, report: Report) -> None:
    """The plot of what was tried. A file that cannot be written is reported."""
    from chunkdsl.replace import replace_file
    from chunkdsl.report import tuning_page

    try:
        page = tuning_page.render(plot, found, tuned, world, f"chunkdsl {chunkdsl.__version__} from {spec}")
        replace_file(plot, page.encode())
    except (OSError, ValueError) as error:
        cannot_write(plot, error, report)


def told(found: Sequence[Candidates], tuned: Tuned, world: World) -> str:
    """What was found, for a person."""
    from chunkdsl.report import tuning_text

    return tuning_text.render(found, tuned, world)


def cannot_write(path: str, error: Exception, report: Report) -> None:
    """Reports it."""
    from chunkdsl.check.options import unwritable_output

    why = getattr(error, "strerror", None) or str(error)
    report.add(unwritable_output(path, why, "results are kept beside the spec: make its folder writable"))


def prepare(path: str, world: World | None, options: Options, plot: str = "") -> Prepared:
    """A spec with what may be tried for it on so many ranks; with what does not fit reported, and nothing found."""
    from chunkdsl.check.meshes import fit_worlds
    from chunkdsl.check.timelines import no_such_drawing
    from chunkdsl.check.tuning import cannot_tune_here
    from chunkdsl.ir.meshes import ranks_of, world_text
    from chunkdsl.report.tuning_page import KINDS
    from chunkdsl.tune.space import spaces

    checked = pipeline.read_one(path, settled=False)
    report, made = checked.report, checked.schedule
    if plot and not plot.endswith(KINDS):
        report.add(no_such_drawing(plot, KINDS))
    if report.failed:
        return Prepared(report, made, 0, [])
    if world is None:
        world = options.most if 0 < options.most < ranks_of(made.world) else made.world
    (world,) = fit_worlds([world], made.mesh, report) or [made.world]
    calls = {op.name: calls_of(made, _shapes_of(op.name, options.shapes), report) for op in made.ops}
    _refuse_unknown([op.name for op in made.ops], options, report)
    if not report.failed:
        _refuse_unserved(checked, world)
    if report.failed:
        return Prepared(report, made, world, [])
    made, found = spaces(checked.program, world, calls)
    found = [s for s in found if s.name in (options.ops or [s.name])]
    if not found:
        why = f"no op of {checked.report.source.path} has more than one rank of {world_text(world)}"
        report.add(cannot_tune_here(why, "tune on two ranks or more"))
    return Prepared(report, made, world, found)


def _shapes_of(op: str, shapes: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """Sizes by run-time dim for an op: its own go before those for all."""
    every = {name: sizes for name, sizes in shapes.items() if "." not in name}
    own = (name.partition(".") for name in shapes)
    return every | {dim: shapes[f"{of}.{dim}"] for of, dot, dim in own if dot and of == op}


def _refuse_unknown(names: Sequence[str], options: Options, report: Report) -> None:
    from chunkdsl.check.tuning import no_such_op

    for name in dict.fromkeys([*options.ops, *(s.partition(".")[0] for s in options.shapes if "." in s)]):
        if name not in names:
            report.add(no_such_op(name, names))


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


def origin_of(digest: str, clock: Clock) -> Origin:
    """Where a clock's results come from."""
    from chunkdsl.tune.evidence import Origin

    versions = tuple(sorted({"chunkdsl": chunkdsl.__version__, **clock.versions}.items()))
    return Origin(digest, clock.gpu, versions, clock.rehearsal)


def begin(file: str, origin: Origin, fresh: bool, report: Report) -> Tuned:
    """The results that are there and go on, else none. Those of another text of the spec have no use any more; those of
    another GPU are reported."""
    from chunkdsl.check.tuning import tuned_elsewhere
    from chunkdsl.tune.evidence import Tuned
    from chunkdsl.tune.settle import read_tuned

    old = None if fresh else read_tuned(file, report)
    if old is None or old.origin.digest != origin.digest:
        return Tuned(origin)
    if old.origin != origin:
        report.add(tuned_elsewhere(file, origin_text(old.origin), origin_text(origin)))
    return old


def origin_text(origin: Origin) -> str:
    """For a person."""
    return f"{origin.gpu} ({', '.join(f'{name} {version}' for name, version in origin.versions)})"
