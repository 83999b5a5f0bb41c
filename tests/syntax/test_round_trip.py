"""Generated expressions and sizes, written out and parsed again, are the same trees but for their spans."""

from generated_trees import SPACES, exprs, plain, sizes, uses, write, write_size
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkdsl.diagnostics import Report
from chunkdsl.source import Source
from chunkdsl.syntax.parse import parse


def item(text):
    report = Report(Source("x.chunk", text))
    file = parse(report.source, report)
    assert report.diagnostics == (), text
    return file.items[0]


@settings(max_examples=30, deadline=None)
@given(sizes, SPACES)
def test_a_size_survives(tree, gap):
    assert plain(item(f"dim M = {write_size(tree, gap)}\n").value) == tree


@settings(max_examples=40, deadline=None)
@given(exprs, st.none() | uses, SPACES)
def test_a_statement_survives(tree, use, gap):
    text = f"op f(x) -> y {{ y = {write(tree, gap)} {write(use, gap) if use else ''} }}\n"
    (statement,) = item(text).body
    assert (plain(statement.value), plain(statement.policy)) == (tree, use)


def test_the_comparison_sees_a_difference():
    assert plain(item("dim M = 1 + 2 * 3").value) != plain(item("dim M = (1 + 2) * 3").value)
