"""Mistakes of one item are found each by itself, and none follows from another."""

import pytest

from chunkdsl.diagnostics import Report
from chunkdsl.pipeline import check_source
from chunkdsl.source import Source
from chunkdsl.syntax.parse import parse


def find(text):
    report = Report(Source("x.chunk", text))
    parse(report.source, report)
    return [(d.code, text[d.span.start : d.span.end]) for d in report.diagnostics]


FIVE = """op f(x, w) -> y {
    a = all_gather(x) @ w.T;
    b == a ** 2
    c = a and b
    d : relu(c)
    y = relu(d) wth { chunk = 5 }
}
"""


def test_five_mistakes_in_an_op_are_five_findings():
    found = [("CD117", ";"), ("CD107", "=="), ("CD117", "and"), ("CD107", ":"), ("CD109", "wth")]
    assert find(FIVE) == find(FIVE.replace("\n", "\r\n")) == find(FIVE.replace("    ", "\t")) == found


def test_mistakes_among_the_keys_of_a_policy():
    assert find("policy p { a : 4 MiB, b = 4 MB, c = f(x, 1), d = 'x' }") == [
        ("CD107", ":"), ("CD112", "MB"), ("CD115", "'x'"),
    ]  # fmt: skip


def test_mistakes_in_plans_and_kernels():
    plan = "plan r(t) : a over b {\n  let s == 1\n  for i in range(3) {\n  snd t[0] to 1\n  }\n  let u = s % 2\n}\n"
    assert find(plan) == [("CD107", "=="), ("CD109", "snd"), ("CD117", "%")]
    assert [c for c, _ in find('kernel g(A) -> C = "k.py" : f {\n  arg X = True\n  arg Y = False\n}')] == ["CD117"] * 2


@pytest.mark.parametrize("text, codes", [
    ("op f(x) -> y {\n  a = x +\n  y = a\n  z = a\n}", ["CD101"]),  # the next line ran into the mistake
    ("op f(x) -> y {\n  a = x;\n  y = f(a,\n  a)\n  with g\n}", ["CD117"]),  # lines that continue a statement
    ("op f(x) -> y {\n  a = x;\n  y = a\n  + x\n  @ x\n}", ["CD117"]),
    ("op f(x) -> y {\n  a = x;\n  # b ==\n  y = a  # ; c ==\n}", ["CD117"]),
    ("op f(x) -> y {\n  a = x )\n  y == a\n}", ["CD106"]),  # brackets that do not match: nothing behind is believed
    ("op f(x) -> y {\n  a = f(x\n  y == a\n}", ["CD105"]),
    ("plan r(t) : a over b {\n  let s == 1\n  if s == 1 {\n  let u = 1\n  }\n  else {\n  let v = 2\n  }\n}", ["CD107"]),
    ("op f(x y) -> z {\n  z = x\n}", ["CD111"]),
    ("op f(x y) -> z {\n  z == x\n}", ["CD111", "CD107"]),
])  # fmt: skip
def test_what_only_follows_from_a_mistake_is_none(text, codes):
    assert [code for code, _ in find(text)] == codes


def test_an_item_with_very_many_mistakes_says_no_more_than_is_read():
    assert len(find("op f(x) -> y {\n" + "  a == x\n" * 100 + "}\n")) == 21


MIX = """mesh tp[8] over nvlink
dim H = 4096
dim F = 2 ** 12
tensor x : bf16[64 @ tp, H]
tensor w : bfloat16[H, F]
tensor v : bf16[F, H]
op f(x, v) -> y { y = allgather(x) @ v.T with g }
op broken(x) -> y { y == x }
gradient broken -> dx
"""


def test_a_syntax_mistake_hides_no_other_items_findings_and_brings_none():
    found = [(d.code, d.span.start) for d in check_source(Source("x.chunk", MIX)).report.diagnostics]
    words = ["**", "bfloat16", "allgather", "g }", "== x"]
    assert found == list(zip(["CD117", "CD243", "CD244", "CD260", "CD107"], map(MIX.index, words), strict=True))
