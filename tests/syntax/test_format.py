"""The layout: what it looks like, that it is stable, and that it keeps every token, comment and tree."""

import re
from pathlib import Path
from random import Random

import pytest
from generated_trees import SPACES, exprs, plain, uses, write
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkdsl.diagnostics import Report
from chunkdsl.source import Source
from chunkdsl.syntax import format as formatter
from chunkdsl.syntax.format import format_source
from chunkdsl.syntax.parse import parse
from chunkdsl.syntax.tokens import tokens_of

ROOT = Path(__file__).parent.parent.parent
SHIPPED = sorted((ROOT / "specs").glob("*.chunk"))
LANGUAGE = sorted((ROOT / "tests" / "cases" / "language").glob("*.chunk"))
CASES = sorted((ROOT / "tests" / "cases").glob("*.chunk"))


def formatted(text):
    report = Report(Source("x.chunk", text))
    result = format_source(report.source, report)
    assert result is not None, [d.message for d in report.diagnostics]
    return result


def tree(text):
    report = Report(Source("x.chunk", text))
    file = parse(report.source, report)
    assert not report.failed
    return plain(file)


def comments(text):
    found = []
    for token in tokens_of(text):
        found += [c.text for c in token.before]
        found += [token.after.text, *token.after.more] if token.after else []
    return found


def holds(text):
    """The properties of a layout; the layout."""
    result = formatted(text)
    assert tree(result) == tree(text)
    assert comments(result) == comments(text)
    assert formatted(result) == result
    assert not re.search(r"[ \t]\r?$", result, re.MULTILINE)
    return result


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.name)
def test_a_shipped_spec_is_formatted(path):
    text = path.read_text(encoding="utf-8")
    assert holds(text) == text


@pytest.mark.parametrize("path", LANGUAGE, ids=lambda p: p.name)
def test_every_construct_of_the_language(path):
    holds(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.name)
def test_every_case_that_parses(path):
    for case in path.read_text(encoding="utf-8").split("\n# ---"):
        report = Report(Source("x.chunk", case))
        parse(report.source, report)
        if not report.failed:
            holds(case)


# (written, laid out)
LAYOUTS = {
    "blanks": (
        "mesh   tp [ 8 ]over  nvlink\ndim M=1 .. 64   step 8",
        "mesh tp[8] over nvlink\ndim M = 1..64 step 8\n",
    ),
    "declarations share a column": (
        "dim M = 4\ndim HEAD=8\ntensor x:bf16[M@tp,H]\n# between\ntensor long : bf16[ M ] sum tp\n\ntensor a : f32[]\n",
        "dim M    = 4\ndim HEAD = 8\ntensor x    : bf16[M @ tp, H]\n# between\ntensor long : bf16[M] sum tp\n\n"
        "tensor a : f32[]\n",
    ),
    "comments share a column": (
        "dim M = 4 # a\n  # above\ndim N = 8   # b\n            # goes on\n\n\n# own\n",
        f"dim M = 4{'':36}# a\n# above\ndim N = 8{'':36}# b\n{'':45}# goes on\n\n# own\n",
    ),
    "a long line moves the comments of its block": (
        f"tensor {'x' * 40} : bf16[M] # a\ndim M = 4 # b\n\ndim N = 4 # c\n",
        f"tensor {'x' * 40} : bf16[M]  # a\ndim M = 4{'':50}# b\n\ndim N = 4{'':36}# c\n",
    ),
    "a comment parts `}` and `else`": (
        "plan p(t) : all_gather over tp {\n if tp == 1 {\n send t[0] to 0\n}\n # why\n else { send t[0] to 1 } }",
        "plan p(t) : all_gather over tp {\n    if tp == 1 {\n        send t[0] to 0\n    }\n    # why\n    else {\n"
        "        send t[0] to 1\n    }\n}\n",
    ),
    "a body stays on its line": ("op f(x)->y{y=x}", "op f(x) -> y { y = x }\n"),
    "unless it is written on lines": ("op f(x) -> y {\n y = x }", "op f(x) -> y {\n    y = x\n}\n"),
    "or has two statements": ("op f(x) -> y { z = x y = z }", "op f(x) -> y {\n    z = x\n    y = z\n}\n"),
    "with clauses share a column": (
        "op f(x) -> y {\n g = all_gather(x) with p\n\n\n y = g * -2 with p { via = tma, }\n}",
        "op f(x) -> y {\n    g = all_gather(x)       with p\n\n    y = g * -2              with p { via = tma }\n}\n",
    ),
    "pairs have lines of their own if the first has": (
        "policy p {\n chunk = 4MiB, # unit\n # kind\n tile = 128 x 64x 32, place=own_sms( 16 )}",
        f"policy p {{\n    chunk = 4 MiB,{'':27}# unit\n    # kind\n    tile = 128x64x32,\n"
        "    place = own_sms(16)\n}\n",
    ),
    "comments in the middle of a line": (
        "op f(x, # first\n  # second\n  y) -> z { # body\n z = x # sum\n + y\n # last\n}",
        f"op f(x,{'':38}# first\n        # second\n        y) -> z {{{'':28}# body\n    z = x{'':36}# sum\n"
        "        + y\n    # last\n}\n",
    ),
    "branches": (
        "plan r(t) : all_gather over tp {\n if rank==0 {send t[0] to(1,2) adding}\n else {\n let s=( 1+2 )mod tp } }",
        "plan r(t) : all_gather over tp {\n    if rank == 0 {\n        send t[0] to (1, 2) adding\n    } else {\n"
        "        let s = (1 + 2) mod tp\n    }\n}\n",
    ),
    "nothing": ("\n\n", ""),
    "only comments": ("\n# a\n\n\n\n  # b", "# a\n\n# b\n"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout(name):
    written, wanted = LAYOUTS[name]
    assert holds(written) == wanted


def test_long_lines_are_broken_outside_of_brackets_first():
    names = ", ".join(f"tensor_{i}" for i in range(20))
    text = holds(f"op f({names}) -> y {{ y = gelu({names[:68]}) * scale(a, b, {names}) }}\n")
    assert max(map(len, text.splitlines())) <= 120
    assert "\n        * scale(" in text


def test_a_policy_that_does_not_fit_beside_its_value_goes_below():
    text = holds(f"op f(x) -> y {{\n y = all_gather({'x' * 80}) with {{ via = tma, chunk = 512 along M }}\n}}")
    assert "\n        with { via = tma, chunk = 512 along M }\n" in text


def test_line_ends_are_those_of_the_first_line():
    assert formatted("dim M=4\r\n# a\r\ndim N=5\n") == "dim M = 4\r\n# a\r\ndim N = 5\r\n"


def test_a_spec_with_a_syntax_error_has_no_layout():
    report = Report(Source("x.chunk", "dim M = = 4\n"))
    assert format_source(report.source, report) is None and report.failed


def test_a_layout_that_loses_something_is_never_handed_out(monkeypatch):
    real = formatter.render
    for loss in (lambda text: text.replace("# c", ""), lambda text: text.replace("4", "5")):
        monkeypatch.setattr(formatter, "render", lambda rows, loss=loss: loss(real(rows)))
        with pytest.raises(AssertionError):
            formatted("dim M = 4 # c\n")


@settings(max_examples=30, deadline=None)
@given(exprs, st.none() | uses, SPACES)
def test_a_generated_statement(expression, use, gap):
    holds(f"op f(x) -> y {{{gap}y = {write(expression, gap)} {write(use, gap) if use else ''} }}\n")


GAPS = [" ", " ", " ", "\n ", "\n\n\n  ", "\t", " # c\n ", "\n # own\n\n # two\n  "]
TEXTS = [p.read_text(encoding="utf-8") for p in LANGUAGE]


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(TEXTS), st.integers(0, 2**32), st.integers(1, len(GAPS)))
def test_any_layout_of_a_text(text, seed, kinds):
    """Tokens in their order with anything between them that may stand there."""
    draw, written = Random(seed), ""
    for token in tokens_of(text):
        starts_item = text[token.start - 1 : token.start] in ("", "\n") and token.text[:1].isalpha()
        written += ("\n" if starts_item else draw.choice(GAPS[-kinds:])) + token.text
    assert tree(holds(written)) == tree(text)
