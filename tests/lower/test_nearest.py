"""Nearest names: the index finds what a scan over all names finds."""

from hypothesis import given, settings
from hypothesis import strategies as st

from chunkdsl.lower.nearest import Nearest, distance

words = st.text("abW1_", min_size=1, max_size=8)


@settings(max_examples=100, deadline=None)
@given(words, st.lists(words, max_size=12))
def test_the_index_agrees_with_a_scan(word, names):
    reach = 0 if len(word) < 2 else 1 if len(word) < 6 else 2
    close = {n: d for n in names if n != word and (d := distance(word.lower(), n.lower())) <= reach}
    best = sorted(n for n, d in close.items() if d == min(close.values()))
    assert Nearest(names).of(word) == tuple(best[:3])


def test_examples():
    near = Nearest(["all_gather", "all_reduce", "swizzle", "M", "w1", "w2"])
    assert near.of("all_gathr") == ("all_gather",)
    assert near.of("swzizle") == ("swizzle",)
    assert near.of("m") == ("M",)
    assert near.of("w3") == ("w1", "w2")
    assert near.of("x") == near.of("completely_other") == ()
    assert distance("ab", "ba") == 1


def test_names_from_a_generator_are_read_once():
    near = Nearest(n for n in ["all_gather", "all_reduce"])
    assert near.of("all_gatherr") == ("all_gather",)
    assert near.of("al_redoce") == ("all_reduce",)  # two edits: needs the second index
