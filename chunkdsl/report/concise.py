"""Findings on one line each: path:line:column: code[name] message."""

from __future__ import annotations

from collections.abc import Iterable

from chunkdsl.diagnostics import Report
from chunkdsl.report.text import show


def render(reports: Iterable[Report]) -> str:
    """All findings of all reports in order; "" without any."""
    lines = []
    for report in reports:
        for d in report.diagnostics:
            place = report.source.position(d.span.start) if d.span else (1, 1)
            where = f"{show(report.source.path)}:{place[0]}:{place[1]}"
            lines.append(f"{where}: {d.severity.value}: {d.code}[{d.name}] {show(d.message)}\n")
    return "".join(lines)
