"""What the Python API raises: findings, as the command line prints them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chunkdsl.crash import explain_crash
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


@contextmanager
def findings() -> Iterator[None]:
    """Whatever goes wrong inside is a ChunkError: a failure of chunkdsl itself becomes a CD001."""
    try:
        yield
    except ChunkError:
        raise
    except Exception as error:
        raise refuse(explain_crash(error)) from None
