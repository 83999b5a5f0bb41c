from chunkdsl.source import Span
from chunkdsl.syntax.items import cut, skip_idle


def texts(text):
    lead, items = cut(text)
    return text[lead.start : lead.end] if lead else None, [text[s.start : s.end] for s in items]


def test_nothing_is_no_items():
    assert texts("") == (None, [])
    assert texts("\n  # only a comment\n") == (None, [])


def test_items_touch_and_keep_their_comments():
    assert texts("# head\ndim M = 1\n# tail\ndim N = 2") == (None, ["dim M = 1\n# tail\n", "dim N = 2"])


def test_a_letter_in_column_one_starts_an_item_and_nothing_else_does():
    assert texts("op f() {\n  x\n}\n_a\n9\né\nZ") == (None, ["op f() {\n  x\n}\n_a\n9\né\n", "Z"])


def test_text_before_the_first_item_is_told_apart():
    assert texts("  # c\n  dim M = 1\ndim N = 2\n") == ("dim M = 1\n", ["dim N = 2\n"])
    assert cut("  dim M = 1") == (Span(2, 11), ())


def test_a_comment_hides_letters_of_its_own_line_only():
    text = "  # a\n# b\nc"
    assert text[skip_idle(text, 0)] == "c"
