"""Findings as workflow commands of GitHub Actions, which shows them beside the lines of a pull request.

Format: https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from collections.abc import Iterable

from chunkdsl.diagnostics import Diagnostic, Report, Severity
from chunkdsl.source import Source

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_DATA = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = {**_DATA, ":": "%3A", ",": "%2C"}


def render(reports: Iterable[Report]) -> str:
    """A line for each finding, in order; "" without any."""
    return "".join(_command(d, r.source) for r in reports for d in r.diagnostics)


def _command(d: Diagnostic, source: Source) -> str:
    properties = {"title": f"{d.code} {d.name}", "file": source.path}
    if d.span is not None:
        line, column = source.position(d.span.start)
        last, end = source.position(d.span.end)
        properties |= {"line": str(line), "endLine": str(last)}
        if last == line:  # columns of a range over several lines are refused
            properties |= {"col": str(column), "endColumn": str(max(end, column + 1))}
    text = "; ".join(part for part in dict.fromkeys((d.message, d.label, d.help)) if part)
    listed = ",".join(f"{key}={_escape(value, _PROPERTY)}" for key, value in properties.items())
    return f"::{_COMMANDS[d.severity]} {listed}::{_escape(text, _DATA)}\n"


def _escape(text: str, marks: dict[str, str]) -> str:
    return "".join(marks.get(c, c) for c in text)
