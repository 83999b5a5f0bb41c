from pathlib import Path

import pytest

from chunkdsl.check.syntax import ITEMS
from chunkdsl.diagnostics import Report
from chunkdsl.source import Source
from chunkdsl.syntax.items import cut
from chunkdsl.syntax.mistakes import Failure
from chunkdsl.syntax.parse import Grammar, grammar, parse, short_grammar, tree_of

KEYWORDS = sorted(grammar().keywords)
NAMED = [  # every place of the language where a name stands, but keys of policies and parameters of kernels
    "mesh @[8]",
    "mesh tp[8] over @",
    "dim @ = 4",
    "dim M = 2 * @",
    "dim M = @(2, 3)",
    "tensor @ : bf16[M]",
    "tensor x : @[M]",
    "tensor x : bf16[@]",
    "tensor x : bf16[M \0 @]",  # the NUL becomes the at sign of a placement
    "tensor x : bf16[M \0 @(tp)]",
    "tensor x : bf16[M \0 (tp, @)]",
    "tensor x : bf16[M] sum @",
    "policy @ { }",
    "policy p { route = @ }",
    "policy p { route = f(@) }",
    "policy p { chunk = 4 along @ }",
    "policy p { chunk = 4 per @ }",
    "op @(x) -> y { }",
    "op f(@) -> y { }",
    "op f(x) -> @ { }",
    "op f(x) -> y { @ = x }",
    "op f(x) -> y { y, @ = x }",
    "op f(x) -> y { y = @ }",
    "op f(x) -> y { y = x.@ }",
    "op f(x) -> y { y = @(x) }",
    "op f(x) -> y { y = f(x -> @) }",
    "op f(x) -> y { y = f(over = (tp, @)) }",
    "op f(x) -> y { y = x with @ }",
    "plan @(t) : all_gather over tp { }",
    "plan r(@) : all_gather over tp { }",
    "plan r(t) : @ over tp { }",
    "plan r(t) : all_gather over @ { }",
    "plan r(t) : all_gather over tp { for @ in range(2) { } }",
    "plan r(t) : all_gather over tp { let @ = 1 }",
    "plan r(t) : all_gather over tp { send @[0] to 1 }",
    'kernel @(A) -> C = "k.py" : f { }',
    'kernel g(@) -> C = "k.py" : f { }',
    'kernel g(A) -> @ = "k.py" : f { }',
    'kernel g(A) -> C = "k.py" : @ { }',
    'kernel g(A) -> C = "k.py" : f { @ = a : [m] }',
    'use plan "p.json" as @ : all_gather over tp',
    "gradient @ -> dx",
    "gradient f -> @",
    "gradient f -> dx saves @",
]


ROOT = Path(__file__).parent.parent.parent
CHANGES = [(",", ""), ("{", "[{"), (" = ", " "), ("@", ""), ("x", "for"), ("M", "of"), ("in", "range"), ("1", "")]


@pytest.fixture(scope="module")
def example_items():
    """Every item of the specs and the cases, the good and the bad."""
    paths = sorted([*(ROOT / "specs").glob("*.chunk"), *(ROOT / "tests" / "cases").rglob("*.chunk")])
    texts = [p.read_text() for p in paths]
    return list(dict.fromkeys(text[s.start : s.end] for text in texts for s in cut(text)[1]))


def spelt(template, word):
    return template.replace("@", word).replace("\0", "@")


def test_the_grammar_is_strict_lalr1_without_colliding_terminals():
    assert Grammar(strict=True).keywords == grammar().keywords


def test_the_keywords_are_those_of_the_language():
    assert set(KEYWORDS) >= {"mesh", "sum", "with", "over", "mod", "true", "adding", "inout"}
    assert len(KEYWORDS) == 40
    assert set(ITEMS) <= set(KEYWORDS)


@pytest.mark.parametrize("template", NAMED)
def test_every_keyword_is_refused_as_a_name(template):
    assert not isinstance(grammar().tree(spelt(template, "name")), Failure)
    assert not isinstance(grammar().tree(spelt(template, "meshes")), Failure)
    for word in (*KEYWORDS, "True", "False"):
        assert isinstance(grammar().tree(spelt(template, word)), Failure), spelt(template, word)


@pytest.mark.parametrize("word", KEYWORDS)
def test_a_keyword_as_a_name_is_called_that(word):
    report = Report(Source("x.chunk", f"tensor {word} : bf16[M]\n"))
    parse(report.source, report)
    assert [(d.code, report.source.slice(d.span)) for d in report.diagnostics] == [("CD108", word)]


@pytest.mark.parametrize("word", KEYWORDS)
def test_policy_keys_and_kernel_parameters_may_be_keywords(word):
    binding = f"A = {word} : [m] arg {word} = 1 const {word} = 2, {word} = 3"
    text = f'policy p {{ {word} = 4, {word} = ring }}\nkernel g(A) -> C = "k.py" : f {{ {binding} }}\n'
    report = Report(Source("x.chunk", text))
    assert len(parse(report.source, report).items) == 2
    assert report.diagnostics == ()


@pytest.mark.parametrize("text", ["all_gather(x, over = tp)", "f(x, over = (a, b))"])
def test_over_names_an_argument(text):
    assert not isinstance(grammar().tree(f"op f(x) -> y {{ y = {text} }}"), Failure)


RUN_TOGETHER = [
    "meshm[8]",
    "dim M = 8per",
    "policy p { chunk = 4MiBs }",
    "policy p { chunk = 8 pershard }",
    "dim M = 1.5..2",
    "policy p { tile = 128x 256y }",
    "op f(x) -> y { x @ w }",
    "op f(x) -> y { y = x with a @ w }",
    "dim M = 1.",
    "dim M = \u0661",
]


@pytest.mark.parametrize("text", RUN_TOGETHER)
def test_words_and_numbers_do_not_run_into_each_other(text):
    assert isinstance(grammar().tree(text), Failure)


def test_the_short_grammar_reads_what_it_accepts_like_the_whole_one(example_items):
    accepted = 0
    for text in example_items:
        for changed in (text, *(text.replace(old, new, 1) for old, new in CHANGES)):
            tree = short_grammar().tree(changed)
            if not isinstance(tree, Failure):
                accepted += 1
                assert tree == grammar().tree(changed), changed
    assert accepted > 300


@pytest.mark.parametrize(
    "text", ['use plan "p.json" as r : all_gather over tp', "gradient f -> dx", "plan r(t) : a over tp { }"]
)
def test_the_short_grammar_leaves_the_items_of_the_other_text_out(text):
    assert isinstance(short_grammar().tree(text), Failure)
    assert not isinstance(tree_of(text, 0), Failure)


def test_the_parser_of_all_items_is_not_built_for_a_spec_without_mistakes(example_items, monkeypatch):
    monkeypatch.setattr("chunkdsl.syntax.parse.grammar", lambda: pytest.fail("built"))
    source = Source("a.chunk", "mesh tp[2] over nvlink\ndim M = 4\nop f(x) -> y { y = gelu(x) with { tile = 2x2x2 } }")
    assert len(parse(source, Report(source)).items) == 3
