"""What the Python API raises: findings, as the command line prints them."""

from __future__ import annotations

from chunkdsl.diagnostics import Diagnostic, Report
from chunkdsl.source import Source


class ChunkError(Exception):
    """`diagnostics` are the findings; the message is their text. `source`: the spec that was made of a call, where the
    findings are about one."""

    def __init__(self, report: Report) -> None:
        from chunkdsl.report.text import render

        super().__init__("\n" + render([report]).rstrip())
        self.diagnostics: tuple[Diagnostic, ...] = report.diagnostics
        self.source: Source = report.source


def refuse(diagnostic: Diagnostic, where: str = "chunkdsl.compile") -> ChunkError:
    """The error of one finding about a call. Not raised here, so that the reader sees where it ends."""
    report = Report(Source(where, ""))
    report.add(diagnostic)
    return ChunkError(report)
