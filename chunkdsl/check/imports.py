"""CD02x: plan files that `use plan` brings in. Their examples are commands, not specs.

A finding stands at the file's name in the spec; the place in the file is in the message, with the text that is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from chunkdsl.check import routes
from chunkdsl.check.registry import Finding, rule
from chunkdsl.diagnostics import Diagnostic
from chunkdsl.source import Source, Span

if TYPE_CHECKING:
    from chunkdsl.plan.importers.fault import PlanFileError
    from chunkdsl.plan.trace_breaches import Breach

WIDEST = 96  # columns of a file's line that are shown


@rule("CD021", "unreadable-plan-file")
def unreadable(path: str, why: str, span: Span) -> Finding:
    """The file that `use plan` names could not be read. Its path is relative to the spec.

    Plan files are UTF-8 text of at most 4 MiB.

    Fails:
        chunkdsl check lost.chunk       # use plan "lost.json" as r : all_gather over tp

    Mended:
        chunkdsl check ring.chunk       # use plan "ring.json" as r : all_gather over tp
    """
    return Finding(f"cannot read the plan file {path}: {why}", span, "relative to the spec")


@rule("CD022", "malformed-plan-file")
def malformed(file: Source, error: PlanFileError, span: Span) -> Finding:
    """A plan file is a route of chunkdsl (JSON), an algorithm of MSCCL (XML) or an execution plan of MSCCL++ (JSON).

    This one is none of them, or not as its format says: a name, a type or a number is wrong, or the text is cut off.
    grammars/plan_formats.md describes the three. A document type declaration is refused in XML.

    Fails:
        chunkdsl check torn.chunk       # its plan file ends half-way

    Mended:
        chunkdsl check ring.chunk
    """
    return _finding(file, error, span)


@rule("CD023", "unsupported-plan-file")
def unsupported(file: Source, error: PlanFileError, span: Span) -> Finding:
    """The plan file uses something that its format has and a route of chunkdsl has not.

    Protocols that put flags into the data (LL, LL128), packets, port and switch channels, semaphores, pipelines,
    reductions other than sums; a rank that would hold two sums of one shard at once, or pass on more pieces of an
    all_to_all than there are ranks; steps with different chunks. A file is taken whole or not at all.

    Fails:
        chunkdsl check packets.chunk    # its plan file has protocol "LL"

    Mended:
        chunkdsl check ring.chunk
    """
    return _finding(file, error, span)


@rule("CD024", "broken-plan-file")
def broken(file: Source, error: PlanFileError, span: Span) -> Finding:
    """Carried out as it stands, the plan file fails: a deadlock, a race, a chunk that nobody sent or that is lost.

    Sends and receives are paired in order, signals with waits, and every chunk is followed to where it ends up.

    Fails:
        chunkdsl check stuck.chunk      # a rank receives what nobody sends

    Mended:
        chunkdsl check pairs.chunk
    """
    return _finding(file, error, span)


@rule("CD025", "plan-file-does-not-fit")
def misfit(file: Source, error: PlanFileError, span: Span) -> Finding:
    """A plan file serves one contract and one world size: the spec asks for another one.

    `use plan "FILE" as NAME : CONTRACT over AXIS`: the contract must be the file's, and the axis must have as many
    ranks. The module refuses other world sizes.

    Fails:
        chunkdsl check small.chunk      # the file is for 3 ranks, the mesh declares 4

    Mended:
        chunkdsl check ring.chunk
    """
    return _finding(file, error, span)


@rule("CD026", "plan-file-for-other-ranks")
def other_ranks(breach: Breach, source: Source) -> Finding:
    """A plan file lists the steps of its own ranks. For other world sizes there is no route in it.

    For sizes that `--world` names it is an error, for others a note, and the module refuses them.

    Fails:
        chunkdsl plan ring.chunk --route r --world 5        # the file is for 3 ranks

    Mended:
        chunkdsl plan ring.chunk --route r --world 3
    """
    help = "leave that size out of --world, or bring in a file that is for it"
    return Finding(breach.message, breach.span, breach.label, help=help)


routes.BY_CODE[other_ranks.code] = other_ranks

_BY_KIND: dict[str, Callable[[Source, PlanFileError, Span], Diagnostic]] = {
    "malformed": malformed, "unsupported": unsupported, "broken": broken, "misfit": misfit,
}  # fmt: skip


def explain_error(file: Source, error: PlanFileError, span: Span) -> Diagnostic:
    """The finding for an error in the file that the spec names at `span`."""
    return _BY_KIND[error.kind.value](file, error, span)


def explain_breach(file: Source, breach: Breach, spec: Source, span: Span) -> Diagnostic:
    """What the proof of a route found, where its steps have lines of the plan file."""
    place = f"{file.path}:{breach.line}" if breach.line else file.path
    lines = f"{breach.counterexample}\nlines are those of {file.path}"
    message = f"{place}: {breach.message}"
    here = replace(breach, message=message, counterexample=lines, span=span, label="from this file", line=0)
    return routes.explain_breach(replace(here, other_line=0), spec)


def _finding(file: Source, error: PlanFileError, span: Span) -> Finding:
    place, shown = file.path, ""
    if error.span is not None:
        line, column = file.position(min(error.span.start, len(file.text)))
        place = f"{file.path}:{line}:{column}"
        shown = _excerpt(file.line_text(line), column - 1, error.span.end - error.span.start)
    return Finding(f"{place}: {error.message}", span, "from this file", help=f"{shown}\n{error.help}".strip("\n"))


def _excerpt(text: str, column: int, width: int) -> str:
    """A line of the file and a line of carets; tabs become spaces, so that they fit."""
    cut = max(0, column - WIDEST // 2) if len(text) > WIDEST else 0
    shown = text[cut : cut + WIDEST].replace("\t", " ")
    left = column - cut
    return f"{shown}\n{'':{left}}{'^' * max(1, min(width, len(shown) - left))}"
