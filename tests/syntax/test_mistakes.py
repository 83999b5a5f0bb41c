import pytest

from chunkdsl.check.explain import load_rules
from chunkdsl.diagnostics import Report
from chunkdsl.source import Source
from chunkdsl.syntax import mistakes
from chunkdsl.syntax.parse import grammar, parse

# (text, code, the text that is marked, the text once mended by the fix or None where a person must choose)
TABLE = [
    ("tensr x : bf16[M]", "CD102", "tensr", "tensor x : bf16[M]"),
    ("MESH tp[8]", "CD102", "MESH", "mesh tp[8]"),
    ("qwerty = 4", "CD102", "qwerty", None),
    ("  dim K = 5", "CD103", "dim", "dim K = 5"),
    ("dim M = 4\n  dim K = 5", "CD103", "dim", "dim M = 4\ndim K = 5"),
    ("dim M = 4 dim K = 5", "CD103", "dim", "dim M = 4 \ndim K = 5"),
    ("\x07", "CD103", "\x07", None),
    ("op f(x) -> y {\ny = x\n}", "CD104", "y", "op f(x) -> y {\n    y = x\n}"),
    ("op f(x) -> y { y = f(x -> y }", "CD105", "", "op f(x) -> y { y = f(x -> y) }"),
    ("op f(x -> y { y = x }", "CD105", "", "op f(x) -> y { y = x }"),
    ("op f(x) -> y\n  y = x }", "CD105", "y", "op f(x) -> y\n  {y = x }"),
    ("mesh tp[8", "CD105", "", "mesh tp[8]"),
    ("tensor x : bf16 M]", "CD105", "M", "tensor x : bf16 [M]"),
    ("op f(x)) -> y { y = x }", "CD106", ")", "op f(x) -> y { y = x }"),
    ("op f(x) -> y { y = x }}", "CD106", "}", "op f(x) -> y { y = x }"),
    ("op f(x) -> y { y = f(x] }", "CD107", "]", "op f(x) -> y { y = f(x) }"),
    ("tensor x = bf16[M]", "CD107", "=", "tensor x : bf16[M]"),
    ("dim M : 4", "CD107", ":", "dim M = 4"),
    ("dim M == 4", "CD107", "==", "dim M = 4"),
    ("op f(x) : y { y = x }", "CD107", ":", "op f(x) -> y { y = x }"),
    ("plan r(t) : a over b { if i = 0 { } }", "CD107", "=", "plan r(t) : a over b { if i == 0 { } }"),
    ("dim step = 4", "CD108", "step", None),
    ("op f(x, in) -> y { y = x }", "CD108", "in", None),
    ("mesh tp[8] ovr nvlink", "CD109", "ovr", "mesh tp[8] over nvlink"),
    ("op f(x) -> y { y = x wih g }", "CD109", "wih", "op f(x) -> y { y = x with g }"),
    ("op f(x) -> y { y = x wiht { a = 1 } }", "CD109", "wiht", "op f(x) -> y { y = x with { a = 1 } }"),
    ("dim M = 0..4 setp 2", "CD109", "setp", "dim M = 0..4 step 2"),
    ("plan r(t) : a over b { snd t[0] to 1 }", "CD109", "snd", "plan r(t) : a over b { send t[0] to 1 }"),
    ("plan r(t) : a over b { let d = rank xor 1 }", "CD117", "rank xor 1",
     "plan r(t) : a over b { let d = xor(rank, 1) }"),
    ("plan r(t) : a over b { send t[rank xor pow2(k)] to 1 }", "CD117", "rank xor pow2(k)",
     "plan r(t) : a over b { send t[xor(rank, pow2(k))] to 1 }"),
    ("dim D = 2 * a xor b", "CD117", "a xor b", None),
    ("gradient f -> dx save x", "CD109", "save", "gradient f -> dx saves x"),
    ("op f(x) -> y { y = x { a = 1 } }", "CD110", "{", "op f(x) -> y { y = x with { a = 1 } }"),
    ("op f(x) -> y { y = g(x) gather\n z = y }", "CD110", "gather", "op f(x) -> y { y = g(x) with gather\n z = y }"),
    ("dim M 4", "CD111", "", "dim M = 4"),
    ("tensor x bf16[M]", "CD111", "", "tensor x : bf16[M]"),
    ("op f(x y) -> z { z = x }", "CD111", "", "op f(x, y) -> z { z = x }"),
    ("op f(x) y { y = x }", "CD111", "", "op f(x) -> y { y = x }"),
    ("policy p { a = 4 MiB b = ring }", "CD111", "", "policy p { a = 4 MiB, b = ring }"),
    ("policy p { a 4 MiB }", "CD111", "", "policy p { a = 4 MiB }"),
    ("policy p { a = 4MB }", "CD112", "MB", "policy p { a = 4MiB }"),
    ("policy p { a = 4 kib, b = 1 }", "CD112", "kib", "policy p { a = 4 KiB, b = 1 }"),
    ("policy p { a = 1. }", "CD113", "1.", "policy p { a = 1.0 }"),
    ("policy p { a = .5 }", "CD113", ".5", "policy p { a = 0.5 }"),
    ("policy p { a = 0x10 }", "CD113", "0x10", "policy p { a = 16 }"),
    ("dim M = 1..1_000", "CD113", "1_000", "dim M = 1..1000"),
    ("dim M = 1.5..2", "CD113", "1.5", None),
    ("dim M = 8per", "CD113", "8per", None),
    ('use plan "r.json as r : a over b', "CD114", '"r.json as r : a over b', None),
    ("use plan 'r.json' as r : a over b", "CD115", "'r.json'", 'use plan "r.json" as r : a over b'),
    ("op f(x) \u2192 y { y = x }", "CD116", "\u2192", "op f(x) -> y { y = x }"),
    ("dim M\u00a0= 4", "CD116", "\u00a0", "dim M = 4"),
    ("dim \uff2d = 4", "CD116", "\uff2d", "dim M = 4"),
    ("dim na\u00efve = 4", "CD116", "na\u00efve", None),
    ("dim M = 2 ** 3", "CD117", "**", None),
    ("op f(x) -> y { y = x // 2 }", "CD117", "//", None),
    ("plan r(t) : a over b { let s = r % 3 }", "CD117", "%", "plan r(t) : a over b { let s = r mod 3 }"),
    ("plan r(t) : a over b { if i == 0 and j == 1 { } }", "CD117", "and", None),
    ("plan r(t) : a over b { if i == 0 || j == 1 { } }", "CD117", "||", None),
    ("op f(x) -> y { y = x; }", "CD117", ";", "op f(x) -> y { y = x }"),
    ("op f(x) -> y { y = x };", "CD117", ";", "op f(x) -> y { y = x }"),
    ("op f(x) => y { y = x }", "CD117", "=>", "op f(x) -> y { y = x }"),
    ("op f(x) -> y { return x }", "CD117", "return", None),
    ("def f(x):\n  return x", "CD117", "def", None),
    ("op f(x) -> y { y = not x }", "CD117", "not", None),
    ("op f(x) -> y { y = x is None }", "CD117", "is", None),
    ("op f(x) -> y { y = lambda x: x }", "CD117", "lambda", None),
    ("op f(x) -> y { var y = x }", "CD117", "var", None),
    ("import torch", "CD117", "import", None),
    ("op f(x) -> y { y = x.relu() }", "CD117", "x.relu(", None),
    ("op f(x) -> y { y = torch.relu(x) }", "CD117", "torch.relu(", None),
    ("op f(x) -> y { y = x.sum() }", "CD117", "x.sum", None),
    ("mesh tp(8]", "CD107", "(", "mesh tp[8]"),
    ("policy p ( via = tma }", "CD107", "(", "policy p { via = tma }"),
    ('kernel g(A) -> C = "k.py" : f { arg X = True }', "CD117", "True",
     'kernel g(A) -> C = "k.py" : f { arg X = true }'),
    ("tensor x : bf16[M @ tp @ dp]", "CD118", "@", None),
    ("op f(x : bf16[M]) -> y { y = x }", "CD119", ":", None),
    ("op f(x) { y = x }", "CD120", "{", None),
    ("policy p { a = 0.3 KiB }", "CD122", "0.3 KiB", None),
    ("policy p { a = 1e999 }", "CD121", "1e999", None),
    ("op f(x) -> y {\n  y = x @ w.T\n", "CD105", "", "op f(x) -> y {\n  y = x @ w.T}\n"),
    ("mesh dp[4] on nvlink", "CD109", "on", "mesh dp[4] over nvlink"),
    ("op f(x) -> y:\n  y = g(x)\n", "CD125", ":", "op f(x) -> y {\n  y = g(x)\n}\n"),
    ("op f(x) -> y: {\n  y = x\n}", "CD125", ":", "op f(x) -> y {\n  y = x\n}"),
    ("op f(x) -> y:\n  y = x\n}", "CD125", ":", "op f(x) -> y {\n  y = x\n}"),
    ("op f(x) -> y: y = x", "CD125", ":", "op f(x) -> y { y = x }"),
    ("plan r(t) : a over b {\n  for i in range(3):\n    send t[0] to 1  # c\n  send t[1] to 0\n}", "CD125", ":",
     "plan r(t) : a over b {\n  for i in range(3) {\n    send t[0] to 1  # c\n  }\n  send t[1] to 0\n}"),
    ("policy p { a = ring and b = 2 }", "CD117", "and", "policy p { a = ring , b = 2 }"),
    ("op f(x) -> y { y = x with { a = 1 and b = 2 } }", "CD117", "and",
     "op f(x) -> y { y = x with { a = 1 , b = 2 } }"),
    ("op f(x) -> y { y = x and z }", "CD117", "and", None),
    ("dim M =", "CD101", "", None),
    ("dim M = \x07", "CD101", "\x07", None),
    ("op f(x) -> y { y = x[i] }", "CD101", "i", None),
    ("op f(x) -> y { for i in range(3) { } }", "CD101", "for", None),
    ("tensor x : bf16[M] sum", "CD101", "", None),
]  # fmt: skip


def find(text):
    report = Report(Source("x.chunk", text))
    parse(report.source, report)
    return report.diagnostics


def mend(text, fix):
    for edit in sorted(fix.edits, key=lambda e: -e.span.start):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text


@pytest.mark.parametrize("text, code, marked, mended", TABLE, ids=[f"{r[1]}-{i}" for i, r in enumerate(TABLE)])
def test_a_mistake_is_named_marked_and_mended(text, code, marked, mended):
    (found,) = find(text)
    assert (found.code, text[found.span.start : found.span.end]) == (code, marked)
    if mended is None:
        assert found.fixes == ()
    else:
        result = mend(text, found.fixes[0])
        assert result.replace(" ", "") == mended.replace(" ", "")
        assert find(result) == () and find(mended) == ()


def test_the_table_has_every_syntax_rule_that_the_parser_words():
    elsewhere = {"CD123", "CD124"}  # tests/syntax/test_parse.py
    assert {r[1] for r in TABLE} | elsewhere == {c for c in load_rules() if c.startswith("CD1")}


def test_an_unclosed_bracket_shows_where_it_was_opened():
    (found,) = find("op f(x) -> y {\n  y = relu(x\n}")
    assert [("op f(x) -> y {\n  y = relu(x\n}"[x.span.start], x.message) for x in found.labels] == [
        ("(", "opened here")
    ]


@pytest.mark.parametrize("text, help", [
    ("op f(x) -> y { y = x and z }", "only plans have conditions"),
    ("policy p { a = ring and b = 2 }", "keys are parted by `,`"),
    ("plan r(t) : a over b { if i == 0 and j == 1 { } }", "nest one `if` in another"),
])  # fmt: skip
def test_what_is_said_instead_of_a_condition_fits_its_place(text, help):
    assert find(text)[0].help == help


@pytest.mark.parametrize("text, safe", [("mesh a[2] b[4]", True), ("op f(x y) -> z { z = x; }", False)])
def test_a_missing_mark_is_surely_the_one_only_if_the_item_then_parses(text, safe):
    assert [(d.code, d.fixes[0].safe) for d in find(text)] == [("CD111", safe)]


def test_one_finding_for_two_stray_brackets():
    assert [d.code for d in find("op f(x) -> y { y = f(x) ) ) }")] == ["CD106"]


def test_brackets_in_strings_and_comments_close_nothing():
    assert mistakes.unclosed('a { "}" # }\n') == 2
    assert mistakes.unclosed("a { ( ) }") is None


def test_a_guess_that_gets_the_parser_no_further_is_not_believed():
    text = "dim M = 4 ; ,"
    failure = grammar().tree("dim M = ] 4")
    assert mistakes._gain(failure, grammar(), failure.at, failure.end, "[") == 0
    assert mistakes._gain(failure, grammar(), failure.at, failure.end, "") > 0
    assert find(text)[0].code == "CD117"


def test_an_enormous_item_is_refused_without_trying_guesses(monkeypatch):
    reached = []
    monkeypatch.setattr(grammar(), "reach", lambda text: reached.append(text) or 0)
    (found,) = find("policy p {\n" + " a = 1,\n" * (mistakes.LONGEST // 8) + " b : 1 }")
    assert found.code == "CD101" and reached == []
