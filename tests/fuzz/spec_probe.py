"""What must hold for any bytes at all: every tool answers, and answers that belong together agree."""

from chunkdsl.diagnostics import Report
from chunkdsl.editor.names import Index
from chunkdsl.editor.relint import lint
from chunkdsl.editor.segments import segments
from chunkdsl.files import decode
from chunkdsl.mend import mend
from chunkdsl.pipeline import check_one
from chunkdsl.report import concise, github, json, sarif, text
from chunkdsl.source import Source
from chunkdsl.syntax.format import format_source


def probe(data: bytes) -> Report:
    """Runs everything on bytes as `check`, `fmt` and an editor would. The report of `check`."""
    report = decode("x.chunk", data)
    if report.failed:
        return report
    source = report.source
    check_one(report)
    assert not any(d.code == "CD001" for d in report.diagnostics), [d.message for d in report.diagnostics]
    for output in (concise, github, json, sarif, text):
        output.render([report])
    again = Report(source)
    formatted = format_source(source, again)
    if formatted is not None:
        after = Report(Source("x.chunk", formatted))
        assert format_source(after.source, after) == formatted
    mend(report, lambda mended: check_one(Report(mended)), unsafe=True)
    edited = lint("x.chunk", source.text)
    assert edited.report().diagnostics == report.diagnostics
    index = Index(segments(source.text))
    for offset in range(0, len(source.text), max(1, len(source.text) // 20)):
        index.references(offset)
    return report
