"""Sizes: the normal form keeps values and makes equal sizes equal; intervals hold every value; limits bite."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkdsl.diagnostics import Report
from chunkdsl.ir.types import DimRange, DimRef, evaluate
from chunkdsl.lower.normal import TooComplex, bounds, combine
from chunkdsl.lower.program import lower
from chunkdsl.source import Source
from chunkdsl.syntax.parse import parse

RANGES = {"M": DimRange("M", 1, 9), "N": DimRange("N", 0, 12, 4)}
VALUES = [{"M": m, "N": n} for m in (1, 2, 9) for n in (0, 4, 12)]


def trees(ops):
    leaf = st.integers(1, 6) | st.sampled_from(["M", "N"])
    return st.recursive(leaf, lambda t: st.tuples(st.sampled_from(ops), t, t), max_leaves=6)


def build(tree):
    if isinstance(tree, tuple):
        return combine(tree[0], build(tree[1]), build(tree[2]))
    return DimRef(tree) if isinstance(tree, str) else tree


def value(tree, dims):
    if not isinstance(tree, tuple):
        return dims.get(tree, tree)
    a, b = value(tree[1], dims), value(tree[2], dims)
    if tree[0] in "+-*":
        return {"+": a + b, "-": a - b, "*": a * b}[tree[0]]
    return -(-a // b) if tree[0] == "/" else a % b


@settings(max_examples=60, deadline=None)
@given(trees(["+", "-", "*", "/", "mod"]))
def test_normal_form_keeps_the_value_and_bounds_hold_it(tree):
    try:
        size = build(tree)
        low, high = bounds(size, RANGES)
    except (ZeroDivisionError, TooComplex):
        return
    for dims in VALUES:
        try:
            wanted = value(tree, dims)
        except ZeroDivisionError:
            continue
        assert evaluate(size, dims) == wanted
        assert low <= wanted <= high


@settings(max_examples=60, deadline=None)
@given(trees(["+", "-", "*"]), trees(["+", "-", "*"]))
def test_equal_polynomials_are_one_value(a, b):
    """Two polynomials of degree at most 6 in each dim are the same when they agree on a 7 x 7 grid."""
    grid = [{"M": m, "N": n} for m in range(7) for n in range(7)]
    same = all(value(a, d) == value(b, d) for d in grid)
    assert (build(a) == build(b)) == same


@pytest.mark.parametrize(("left", "right"), [
    ("M + M", "2 * M"), ("(M + N) * 2", "2 * N + M * 2"), ("M * N - N * M + 4", "4"), ("6 * M / 3", "M * 2"),
    ("M / 2 / 3", "cdiv(M, 6)"), ("(4 * M) mod 2 + 1", "1"), ("M / 1", "M"),
])
def test_sizes_that_are_the_same(left, right):
    assert constants(f"dim L = {left}\ndim R = {right}\n")["L"] == constants(f"dim R = {right}\n")["R"]


@pytest.mark.parametrize(("text", "number"), [
    ("7 / 2", 4), ("7 mod 4", 3), ("2 + 3 * 4", 14), ("(2 + 3) * 4", 20), ("cdiv(9, 4)", 3), ("pow2(10)", 1024),
    ("log2(1000)", 9), ("xor(6, 3)", 5), ("min(3, 2) + max(3, 2)", 5),
])
def test_constants_fold(text, number):
    assert constants(f"dim K = {text}\n") == {"K": number}


def constants(text):
    source = Source("t", "mesh tp[2]\ndim M = 1..9\ndim N = 0..12 step 4\n" + text)
    report = Report(source)
    program = lower(parse(source, report), source, report)
    assert report.diagnostics == ()
    return program.constants


def test_a_chain_of_squares_is_stopped():
    """Without limits these thirty lines make a polynomial of degree 2^30."""
    lines = ["mesh tp[2]", "dim A0 = 1..1"] + [f"dim A{i + 1} = A{i} * A{i}" for i in range(30)]
    source = Source("t", "\n".join(lines) + "\n")
    report = Report(source)
    lower(parse(source, report), source, report)
    assert [d.code for d in report.diagnostics] == ["CD230"]
