"""Each docstring example of a CD2, CD32, CD34 or CD67 rule: the failing one gives that code, the mended one gives none.
CD326, CD344 and CD671 need an op: tests/lower/test_schedule.py."""

import pytest

import chunkdsl.check.axes
import chunkdsl.check.exchanges
import chunkdsl.check.names
import chunkdsl.check.placements
import chunkdsl.check.policies
import chunkdsl.check.shapes
import chunkdsl.check.unbuilt  # noqa: F401  (registers rules)
from chunkdsl.check import routes
from chunkdsl.check.registry import RULES
from chunkdsl.diagnostics import Report
from chunkdsl.lower.program import lower
from chunkdsl.source import Source
from chunkdsl.syntax.parse import parse

FAMILIES, OF_OPS = ("CD2", *routes.FAMILIES, "CD67"), ("CD326", "CD344", "CD671")
CODES = sorted(code for code in RULES if code.startswith(FAMILIES) and code not in OF_OPS)


def codes_of(text):
    source = Source("example.chunk", text)
    report = Report(source)
    lower(parse(source, report), source, report)
    return [d.code for d in report.diagnostics]


def test_there_are_rules():
    assert len(CODES) > 40


@pytest.mark.parametrize("code", CODES)
def test_example_fails(code):
    assert codes_of(RULES[code].fails) == [code]


@pytest.mark.parametrize("code", CODES)
def test_mended_example_is_clean(code):
    assert codes_of(RULES[code].mended) == []
