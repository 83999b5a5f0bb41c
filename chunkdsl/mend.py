"""Applies the fixes of findings to a text until none is left that may be applied. Decides nothing about files."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chunkdsl.diagnostics import Diagnostic, Edit, Report
from chunkdsl.source import Source

ROUNDS = 20  # a mended mistake may uncover the next stage's; a fix that brings its own mistake back ends here


def mend(report: Report, check: Callable[[Source], Report], unsafe: bool = False) -> tuple[Report, int]:
    """The report of the mended text and how many fixes it took; the same report and 0 if there is nothing to apply.

    `check` gives the report of a text. `unsafe`: also fixes that are a guess. A round of fixes after which the text has
    more findings in an earlier stage than before is not kept.
    """
    applied = 0
    for _ in range(ROUNDS):
        text, count = apply_fixes(report.source.text, report.diagnostics, unsafe)
        if not count:
            break
        mended = check(Source(report.source.path, text))
        if _syntax(mended) > _syntax(report) or mended.diagnostics == report.diagnostics:
            break
        report, applied = mended, applied + count
    return report, applied


def apply_fixes(text: str, diagnostics: Iterable[Diagnostic], unsafe: bool) -> tuple[str, int]:
    """The text with the first fix of each finding that may be applied, leaving out those that overlap earlier ones."""
    edits: list[Edit] = []
    count = 0
    for d in diagnostics:
        fix = next((f for f in d.fixes if f.safe or unsafe), None)
        if fix is not None and not any(_touch(a, b) for a in fix.edits for b in edits):
            edits += fix.edits
            count += 1
    return edited(text, edits), count


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text after edits that do not overlap."""
    for edit in sorted(edits, key=lambda e: e.span.start, reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text


def _touch(a: Edit, b: Edit) -> bool:
    return a.span.start <= b.span.end and b.span.start <= a.span.end


def _syntax(report: Report) -> int:
    return sum(d.code.startswith("CD1") for d in report.diagnostics)
