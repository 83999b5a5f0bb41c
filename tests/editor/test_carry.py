"""Findings of one item told of another, and what makes two items alike."""

from chunkdsl.diagnostics import Diagnostic, Edit, Fix, Label, Severity
from chunkdsl.editor.carry import Carrier
from chunkdsl.editor.segments import segments
from chunkdsl.editor.structure import shape_of, structure_of
from chunkdsl.source import Span

TEXT = """dim K = 4096
tensor act : bf16[K]
op one(act) -> y { y = gelu(act) }
tensor long_name : bf16[K]   # another
op other(long_name)  -> y { y = gelu( long_name ) }
"""
SHARED, FIRST, ONE, SECOND, OTHER = segments(TEXT)


def place(part, after=0):
    start = TEXT.index(part) + after
    return Span(start, start + len(part) - after)


def test_places_and_names_of_a_finding_move_to_the_item_that_it_is_told_of():
    finding = Diagnostic("CD203", "x", Severity.ERROR, "100 % of `act`, K", place("gelu(act)", 5), "%s of act here",
                         (Label(place("K = "), "K, not act"),), "`one(act)`",
                         (Fix("add act", (Edit(place("act)"), "b"),)),))  # fmt: skip
    told = Carrier([SHARED, FIRST, ONE]).to([SHARED, SECOND, OTHER])(finding)
    assert told.message == "100 % of `long_name`, K"
    assert told.label == "%s of long_name here"
    assert told.help == "`other(long_name)`"
    assert told.fixes[0].title == "add long_name"
    assert TEXT[told.span.start : told.span.end].startswith("long_name )")
    assert told.labels == (Label(place("K = "), "K, not long_name"),)


def test_items_that_differ_in_names_alone_have_one_structure():
    def structure(*texts):
        return structure_of([shape_of(text) for text in texts], "")

    declared = "tensor act1 : bf16[K]", "tensor act2 : bf16[K]"
    same = structure(declared[0], "op one(act1) -> y { y = act1 + act1 }")
    assert same == structure(declared[1], "op other(act2) -> y { y = act2 + act2 }  # why")
    assert same != structure(declared[1], "op other(act2) -> y { y = act2 + K }")
    assert same != structure(declared[1], "op other(act2) -> y { y = act2 + y }")
    # A character that no spec may hold is not taken for what stands for a name.
    assert structure("dim N = N") != structure("dim N = \0001\0")
