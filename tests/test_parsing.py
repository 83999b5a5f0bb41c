import ast
import threading

import pytest

from chunkdsl import parsing


def is_free():
    """Whether another thread could parse now."""
    said = []

    def intrude():
        said.append(parsing.PARSING.acquire(blocking=False))
        if said[0]:
            parsing.PARSING.release()

    other = threading.Thread(target=intrude)
    other.start()
    other.join()
    return said[0]


def test_no_other_thread_parses_meanwhile(monkeypatch):
    parse, entered = ast.parse, []

    def watched(text):
        entered.append(is_free())
        return parse(text)

    monkeypatch.setattr(ast, "parse", watched)
    assert isinstance(parsing.parse_python("a = 1").body[0], ast.Assign)
    assert entered == [False] and is_free()


def test_text_that_is_not_python_leaves_the_lock_open():
    with pytest.raises(SyntaxError):
        parsing.parse_python("a = = 1")
    assert is_free()
