import json as stdlib_json

from chunkdsl.diagnostics import Diagnostic, Edit, Fix, Label, Report, Severity
from chunkdsl.report import json
from chunkdsl.source import Source, Span


def test_nothing_is_an_empty_array():
    assert json.render([]) == json.render([Report(Source("a", ""))]) == "[]\n"


def test_a_finding_has_every_key_and_counts_code_points():
    report = Report(Source("specs/a.chunk", "dim\n\U0001f600 M = 4"))
    fix = Fix("t", (Edit(Span(6, 7), "N"),), safe=True)
    label = Label(Span(0, 3), "here")
    report.add(Diagnostic("CD203", "r", Severity.NOTE, "m\u00e9", Span(6, 7), "l", (label,), "h", (fix,)))
    text = json.render([report])
    assert text.isascii()
    here = {"start": {"line": 2, "column": 3, "offset": 6}, "end": {"line": 2, "column": 4, "offset": 7}}
    first = {"start": {"line": 1, "column": 1, "offset": 0}, "end": {"line": 1, "column": 4, "offset": 3}}
    assert stdlib_json.loads(text) == [
        {
            "code": "CD203",
            "name": "r",
            "severity": "note",
            "message": "m\u00e9",
            "path": "specs/a.chunk",
            "span": here,
            "label": "l",
            "labels": [{"span": first, "message": "here"}],
            "help": "h",
            "fixes": [{"title": "t", "safe": True, "edits": [{"span": here, "text": "N"}]}],
        }
    ]


def test_a_finding_about_the_whole_file_has_a_null_span():
    report = Report(Source("a", ""))
    report.add(Diagnostic("CD002", "r", Severity.ERROR, "m"))
    assert stdlib_json.loads(json.render([report, report]))[1]["span"] is None
