"""Whatever the text, the parser says what is wrong at a place inside it, and never raises."""

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from chunkdsl.diagnostics import Report
from chunkdsl.report import json, text
from chunkdsl.source import Source
from chunkdsl.syntax.parse import parse

SPECS = [p.read_text() for p in sorted((Path(__file__).parent.parent / "cases" / "language").glob("*.chunk"))]
PIECES = [
    *"(){}[]:=,.@+-*/%;\"'#\n\t x0_\0\u00e9\u2192\u3000\U0001f600",
    "->",
    "..",
    "with ",
    "over ",
    " 4 MB",
    "1.",
    "\nop ",
]


def findings(source):
    report = Report(Source("x.chunk", source))
    file = parse(report.source, report)
    spans = [d.span for d in report.diagnostics] + [x.span for d in report.diagnostics for x in d.labels]
    spans += [e.span for d in report.diagnostics for f in d.fixes for e in f.edits] + [i.span for i in file.items]
    assert all(span.end <= len(source) for span in spans)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text.render([report]))  # nothing moves the reader's cursor
    json.render([report])
    return report.diagnostics


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(SPECS), st.data())
def test_a_damaged_spec(spec, data):
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(spec)))
        removed = data.draw(st.integers(0, 12))
        spec = spec[:at] + data.draw(st.sampled_from(["", *PIECES])) + spec[at + removed :]
    findings(spec)


@settings(max_examples=50, deadline=None)
@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_any_text_at_all(source):
    if source.strip(" \t\r\n") and "#" not in source:
        assert findings(source)
    else:
        findings(source)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(SPECS), st.integers(0, 2000))
def test_a_spec_that_is_cut_off(spec, at):
    findings(spec[:at])
