"""Runs tests/cases/*.chunk through the stages of `check`; comments in the files announce the findings.

A file holds several cases, parted by lines that start with `# ---`. In a case, `# error: CD203` at the end of a line
(or `# warning: CD2xx`, `# note: CD2xx, CD2yy`) says that the findings of that line are exactly these; a line without
such a comment has none. A finding without a place counts as one of line 1.
"""

import re
from pathlib import Path

import pytest

from chunkdsl.diagnostics import Report
from chunkdsl.pipeline import check_source
from chunkdsl.source import Source

FILES = sorted((Path(__file__).parent / "cases").glob("*.chunk"))
PARTING = re.compile(r"^# ---.*$", re.MULTILINE)
EXPECTED = re.compile(r"#\s*(error|warning|note): (CD\d+(?:, CD\d+)*)\s*$")


def split(text):
    """The cases of a file with the line on which each starts (0-based)."""
    parts, starts = PARTING.split(text), [0] + [text.count("\n", 0, m.end()) for m in PARTING.finditer(text)]
    return [(start, part) for start, part in zip(starts, parts, strict=True) if part.strip()]


def expected(case):
    found = [(i, m) for i, line in enumerate(case.split("\n"), 1) if (m := EXPECTED.search(line))]
    return sorted((i, m[1], code) for i, m in found for code in m[2].split(", "))


def actual(report: Report):
    lines = [(report.source.line_of(d.span.start) if d.span else 1, d) for d in report.diagnostics]
    return sorted((line, d.severity.value, d.code) for line, d in lines)


CASES = [(p, start, case) for p in FILES for start, case in split(p.read_text())]


@pytest.mark.parametrize("path, start, case", CASES, ids=[f"{p.stem}:{start + 1}" for p, start, _ in CASES])
def test_a_case_has_the_findings_it_announces(path, start, case):
    report = check_source(Source(path.name, case)).report
    assert actual(report) == expected(case), "\n".join(d.message for d in report.diagnostics)


def test_the_runner_tells_right_from_wrong():
    text = "dim M = 4\n# --- next\ndim step = 4  # error: CD108\n"
    (_, right), (start, wrong) = split(text)
    assert (start, expected(right), expected(wrong)) == (1, [], [(2, "error", "CD108")])
    assert actual(check_source(Source("x", wrong)).report) == expected(wrong)
    assert actual(check_source(Source("x", wrong.replace("step", "M"))).report) != expected(wrong)
