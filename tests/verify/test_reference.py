"""The meaning of an op in float64, against formulas written by hand; and which ops are exact on small integers."""

import math

import pytest
import torch

from chunkdsl.pipeline import check_source
from chunkdsl.source import Source
from chunkdsl.verify.reference import evaluate, is_linear

HEAD = """mesh tp[2] over nvlink
dim M = 8
dim H = 8
dim F = 16
tensor x : bf16[M @ tp, H]
tensor w : bf16[F @ tp, H]
tensor b : bf16[F @ tp]
tensor p : bf16[2, F @ tp, H]
tensor a : bf16[M, F @ tp]
tensor v : bf16[H, F @ tp]
tensor c : bf16[H]
tensor res : bf16[M @ tp, H]
"""


def typed(op):
    checked = check_source(Source("a.chunk", HEAD + op))
    assert not checked.report.failed, checked.report.diagnostics
    return checked.program.ops[0]


@pytest.fixture(scope="module")
def whole():
    g = torch.Generator().manual_seed(1)
    shapes = dict(x=(8, 8), w=(16, 8), b=(16,), p=(2, 16, 8), a=(8, 16), v=(8, 16), c=(8,), res=(8, 8))
    return {name: torch.randn(shape, generator=g, dtype=torch.float64) for name, shape in shapes.items()}


def product(a, b):
    """a @ b.T, element by element."""
    return [[sum(p * q for p, q in zip(row, col, strict=True)) for col in b] for row in a]


def gelu(t):
    return 0.5 * t * (1 + math.erf(t / math.sqrt(2)))


def silu(t):
    return t / (1 + math.exp(-t))


def plus(rows, b):
    return [[t + u for t, u in zip(row, b, strict=True)] for row in rows]


def each(f, rows):
    return [[f(t) for t in row] for row in rows]


CASES = {
    "bias": ("op f(x, w, b) -> y { y = all_gather(x) @ w.T + b }", lambda t: plus(product(t["x"], t["w"]), t["b"])),
    "gelu": (
        "op f(x, w, b) -> y { y = gelu(all_gather(x) @ w.T + b) }",
        lambda t: each(gelu, plus(product(t["x"], t["w"]), t["b"])),
    ),
    "relu": (
        "op f(x, w) -> y { y = relu(all_gather(x) @ w.T) }",
        lambda t: each(lambda u: max(u, 0), product(t["x"], t["w"])),
    ),
    "tanh": ("op f(x, w) -> y { y = tanh(all_gather(x) @ w.T) }", lambda t: each(math.tanh, product(t["x"], t["w"]))),
    "swiglu": (
        "op f(x, p) -> y { g = all_gather(x) y = swiglu(g @ p[0].T, g @ p[1].T) }",
        lambda t: [
            [silu(u) * w for u, w in zip(*rows, strict=True)]
            for rows in zip(product(t["x"], t["p"][0]), product(t["x"], t["p"][1]), strict=True)
        ],
    ),
    "partial": (
        "op f(a, v, c, res) -> y { y = reduce_scatter(a @ v.T, M) + c + res }",
        lambda t: [plus([r], s)[0] for r, s in zip(plus(product(t["a"], t["v"]), t["c"]), t["res"], strict=True)],
    ),
    "all_reduce": (
        "op f(a, v) -> y { y = all_reduce(a @ v.T) * 0.5 - 1 }",
        lambda t: each(lambda u: u / 2 - 1, product(t["a"], t["v"])),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_op_is_what_its_formula_says(whole, case):
    text, formula = CASES[case]
    lists = {name: t.tolist() for name, t in whole.items()}
    got = evaluate(typed(text), whole)["y"]
    wanted = torch.tensor(formula(lists), dtype=torch.float64)
    assert got.dtype is torch.float64 and got.shape == wanted.shape
    assert (got - wanted).abs().max() < 1e-12


def test_several_statements_and_results(whole):
    op = typed("op f(x, w, v) -> h, y { h = relu(all_gather(x) @ w.T) y = reduce_scatter(h @ v.T, M) }")
    got = evaluate(op, whole)
    hidden = (whole["x"] @ whole["w"].T).clamp(min=0)
    assert list(got) == ["h", "y"]
    assert torch.allclose(got["h"], hidden, atol=1e-12) and torch.allclose(got["y"], hidden @ whole["v"].T, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "linear"),
    [
        ("op f(x, w, b) -> y { y = all_gather(x) @ w.T + b }", True),
        ("op f(a, v, res) -> y { y = reduce_scatter(a @ v.T, M) - res }", True),
        ("op f(a, v) -> y { y = all_reduce(a @ v.T) * 0.5 }", True),
        ("op f(x, w) -> y { y = gelu(all_gather(x) @ w.T) }", False),
        ("op f(x, w, v) -> h, y { h = relu(all_gather(x) @ w.T) y = reduce_scatter(h @ v.T, M) }", False),
    ],
)
def test_only_products_and_sums_are_exact_on_small_integers(text, linear):
    assert is_linear(typed(text)) is linear
