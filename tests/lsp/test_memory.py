"""What is remembered about texts is bounded by their length."""

from chunkdsl.editor.memory import Remembered


def test_the_latest_texts_are_remembered_as_far_as_they_fit():
    asked = []
    count = Remembered(lambda text: asked.append(text) or len(text), longest=10)
    assert [count(t) for t in ("aaaa", "bbb", "aaaa", "ccc")] == [4, 3, 4, 3] and asked == ["aaaa", "bbb", "ccc"]
    count("dd")  # 12 in all: the text that was used least lately goes
    count("aaaa")
    assert asked == ["aaaa", "bbb", "ccc", "dd"]
    count("bbb")
    assert asked[-1] == "bbb"


def test_one_long_text_is_remembered_and_all_before_it_forgotten():
    asked = []
    count = Remembered(lambda text: asked.append(text), longest=10)
    for text in ("a", "b" * 99, "b" * 99, "a"):
        count(text)
    assert asked == ["a", "b" * 99, "a"]
