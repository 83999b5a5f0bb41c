"""What a fallback does not copy: sums that nobody else has, and what would only go to f32 and back."""

import pytest

from chunkdsl.pipeline import check_source
from chunkdsl.render.module import render_module
from chunkdsl.source import Source

SPEC = """mesh tp[2] over nvlink
dim M = 0..64
dim H = 32
dim F = 48
tensor x : bf16[M, F @ tp]
tensor w : bf16[H, F @ tp]
tensor p : bf16[M, H] sum tp
tensor b : bf16[H]
op f(%s) -> %s {
    %s
}
"""


def plain(arguments, results, body):
    """The fallback's text."""
    checked = check_source(Source("f.chunk", SPEC % (arguments, results, body)))
    assert not checked.report.failed, checked.report.diagnostics
    text = render_module(checked.schedule, (2,))
    return text[text.index("    def plain(self, dims, ") :].split("return (")[0]


def test_the_sum_of_a_product_is_added_up_in_its_place_and_handed_on_as_it_is():
    text = plain("x, w", "y", "y = all_reduce(x @ w.T)")
    assert "own=True" in text and "wide(" not in text


@pytest.mark.parametrize(
    ("arguments", "results", "body", "own"),
    [
        ("x, w, b", "y", "y = all_reduce(x @ w.T) + b", True),  # computed in f32
        ("x, w", "h, y", "h = all_reduce(x @ w.T)\n    y = h * 2", True),  # two results are two tensors
        ("p, b", "y", "y = all_reduce(p) + b", False),  # p is the caller's
    ],
)
def test_otherwise_it_is_copied(arguments, results, body, own):
    text = plain(arguments, results, body)
    assert ("own=True" in text) is own and "wide(" in text


def test_a_small_all_reduce_alone_needs_no_f32():
    text = plain("p", "y", "y = all_reduce(p) with decode")
    assert "own=True" not in text and "wide(" not in text and "machine.total(p_)" in text
