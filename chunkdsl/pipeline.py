"""The stages by name, in order, on one screen. Interpreter, simulator and compiler are imported only when asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chunkdsl import files
from chunkdsl.crash import explain_crash
from chunkdsl.diagnostics import Report
from chunkdsl.source import Source

if TYPE_CHECKING:
    from chunkdsl.ir.graph import Program
    from chunkdsl.plan.schedule import Schedule
    from chunkdsl.syntax.nodes import File


@dataclass
class Checked:
    """What the stages made of one spec. A stage that reports an error is the last: later ones are None."""

    report: Report
    file: File | None = None
    program: Program | None = None
    schedule: Schedule | None = None


def check(paths: Iterable[str], worlds: Sequence[int] = ()) -> list[Report]:
    """The findings for every spec below `paths`, in order; with `worlds` also the proof for those world sizes.

    Never raises for what a spec holds: a failure of chunkdsl itself becomes a CD001 in that spec's report.
    """
    reports = list(files.read(paths))
    for report in reports:
        if not report.failed:
            try:
                checked = check_report(report)
                if worlds and not report.failed:
                    prove(checked, worlds)
            except Exception as error:
                report.add(explain_crash(error))
    return reports


def check_source(source: Source) -> Checked:
    """Every stage that needs no world size, on one text."""
    return check_report(Report(source))


def check_report(report: Report) -> Checked:
    """Parse, lower, schedule; stops after the first stage with an error, as later ones would repeat it."""
    checked = Checked(report)
    parse(checked)
    if not report.failed:
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


def prove(checked: Checked, worlds: Sequence[int]) -> None:
    """Schedule to plans, one for each world size, and their proof (CD3, CD4)."""
    from chunkdsl.check.prove_worlds import prove_worlds

    prove_worlds(checked.program, checked.schedule, worlds, checked.report)
