"""What is offered at a place, in every kind of item."""

import pytest

from chunkdsl.editor.complete import BUILT_LAYOUTS, call_at, completions
from chunkdsl.editor.names import Index, given_to
from chunkdsl.editor.reference import functions, keys, layouts
from chunkdsl.editor.segments import segments

FILE = """\
mesh tp[4] over nvlink
dim M = 1..4096
tensor x : bf16[M @ tp, 64]
policy p { chunk = 1 MiB }
plan r(t) : all_gather over tp { send t[rank] to 0 }
kernel g(A) -> B = "k.py" : f { A = a : [m] }
op mlp(x) -> y {
    u = all_gather(x)
    y = gelu(u)
}
"""


@pytest.mark.parametrize("typed, offered, not_offered", [
    ("", {"op", "plan", "gradient"}, {"x", "u"}), ("plan q(t) : ", {"all_gather", "all_to_all"}, {"tp"}),
    ("plan q(t) : all_gather over ", {"tp"}, {"M", "x"}), ("plan q(t) : all_gather over tp { ", {"send", "for"}, {"x"}),
    ("plan q(t) : all_gather over tp { send ", {"t", "t[rank]"}, {"x"}),
    ("use plan \"f\" as z : ", {"all_reduce"}, {"tp"}),
    ("plan q(t) : all_gather over tp { for i in range(2) { send t[i] to (", {"i", "rank", "tp_rank", "cdiv"}, {"x"}),
    ("gradient ", {"mlp"}, {"x", "p"}), ("gradient mlp -> dx saves ", {"x", "u", "y"}, {"p", "M"}),
    ("gradient mlp -> dx with ", {"p", "overlap"}, {"x"}),
    ("kernel k(A) -> B, C = \"f\" : f { ", {"A", "B", "C", "arg"}, {"x"}),
    ("op z(x) -> y { y = all_gather(x) with { route = ", {"ring", "r"}, {"p"}),
    ("policy z { chunk = 512 along ", {"M"}, {"4 MiB"}), ("policy z { chunk = 8 per ", {"shard"}, {"M"}),
    ("op z(x) -> y { y = all_to_all(x, ", {"M"}, {"tp"}), ("tensor q : bf16[M @ ", {"tp"}, {"M"}),
    *((f"{item} ", set(), {"sum", "over", "M", "x", "p", "op", "t"})
      for item in ("mesh", "dim", "tensor", "policy", "op", "plan", "kernel")),
    ("tensor q : ", {"bf16", "i32", "i64"}, {"M"}), ("op z(x) -> y { y = x.", {"T"}, {"x", "gelu"}),
    ("op z(x) -> y { y = cast(x, ", {"f32"}, {"x", "M"}), ("gradient mlp -> dx as ", {"f32"}, {"saves", "x"}),
    ("op z(x) -> y { y = cast(", {"x"}, {"f32"}),
    ("tensor q : bf16[M] ", {"sum"}, {"M"}), ("tensor q ", set(), {"sum"}), ("mesh q[2] ", {"over"}, {"M"}),
    ("# plan ", set(), {"op"}), ("use plan \"", set(), {"op"}),
])  # fmt: skip
def test_choices(typed, offered, not_offered):
    text = FILE + typed
    found = {c.text for c in completions("x.chunk", Index(segments(text)), text, len(text))}
    assert offered <= found and not found & not_offered, found


def test_routes_of_two_tiers_are_offered_on_two_axes():
    for text, offered in ((FILE, False), (FILE.replace("mesh tp[4]", "mesh node[2] over rdma, tp[4]"), True)):
        text += "policy z { route = "
        found = {c.text for c in completions("x.chunk", Index(segments(text)), text, len(text))}
        assert ("hierarchical(direct, swizzle)" in found) is offered


def test_what_the_reference_says_has_no_links_into_its_page():
    told = [*keys().values(), *functions().values()]
    assert not [x for x in told if "](#" in str(vars(x))]
    assert "small all-reduces alone" in keys()["via"].meaning and "(#" not in keys()["route"].meaning


def test_layouts_are_told_from_the_language_reference():
    assert layouts().keys() == BUILT_LAYOUTS.keys() and "blocks r and 2W - 1 - r" in layouts()["zigzag"]


@pytest.mark.parametrize(("text", "word"), [
    ("op f(x) -> y { y = g(x) with { chunk = 512 al", "chunk"), ("a = b\nchunk  =  x", "chunk"), ("ab = c d", "ab"),
    ("chunk = x } y", ""), ("chunk # = x", ""), ("= x", ""), ("chunk = x\n", ""), ("a = {", ""), ("", ""),
])  # fmt: skip
def test_the_word_that_is_given_what_stands_before_the_cursor(text, word):
    assert given_to(text, 0, len(text)) == word
    assert given_to("q = " + text, 4, len(text) + 4) == word, "no further than the item"


@pytest.mark.parametrize("text", [
    "x" * 100_000, "op f(" + "x" * 100_000, "# " + "_" * 100_000 + "\nop f(", "sum " * 9000,
], ids=("word", "argument", "comment", "words"))  # fmt: skip
def test_what_nobody_writes_is_answered_at_once_with_nothing(text):
    """Each took minutes, in which the server answered nobody."""
    index = Index(tuple(segments(text)))
    assert completions("a.chunk", index, text, len(text)) == []
    assert call_at(index, text, len(text)) is None
    assert given_to(text, 0, len(text)) == ""
