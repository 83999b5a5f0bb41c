"""Python text to its syntax tree, by one thread at a time.

CPython 3.11 counts the depth of the tree that it builds in one place for all threads, and a garbage collection on the
way may let another thread in (as soon as anything has put a Python function into `gc.callbacks`): SystemError, "AST
constructor recursion depth mismatch". An editor asks from several threads. Nothing else in chunkdsl calls `ast.parse`.
"""

from __future__ import annotations

import ast
from threading import RLock

PARSING = RLock()


def parse_python(text: str) -> ast.Module:
    """SyntaxError for text that is not Python."""
    with PARSING:
        return ast.parse(text)
