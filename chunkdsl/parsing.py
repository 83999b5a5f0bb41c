"""Python text to its syntax tree, by one thread at a time, and to code.

CPython 3.11 counts the depth of the tree that it builds in one place for all threads, and a garbage collection on the
way may let another thread in (as soon as anything has put a Python function into `gc.callbacks`): SystemError, "AST
constructor recursion depth mismatch". An editor asks from several threads. Nothing else in chunkdsl calls `ast.parse`.
"""

from __future__ import annotations
import __future__

import ast
from functools import lru_cache
from threading import RLock
from types import CodeType

PARSING = RLock()


def parse_python(text: str) -> ast.Module:
    """SyntaxError for text that is not Python."""
    with PARSING:
        return ast.parse(text)


def placed(code: CodeType, filename: str, lines: int) -> CodeType:
    """The same code in another file, `lines` further down."""
    inner = tuple(placed(c, filename, lines) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_filename=filename, co_firstlineno=code.co_firstlineno + lines, co_consts=inner)


@lru_cache(maxsize=4096)
def _compiled(block: str, flags: int) -> CodeType:
    return compile(block, "<block>", "exec", flags=flags, dont_inherit=True)


def compile_blocks(text: str, filename: str) -> list[CodeType]:
    """A module's code, to be run one after the other. Generated modules have most of their text in common, and what
    stands between two empty lines is compiled once. SyntaxError where the text is not Python."""
    flags, found, line = 0, [], 0
    try:
        for block in text.split("\n\n\n"):
            code = _compiled(f"{block}\n", flags)
            future = code.co_flags & __future__.annotations.compiler_flag
            if block.startswith(("\n", " ")) or (found and future != flags):  # more empty lines; the rest of something
                return [compile(text, filename, "exec", dont_inherit=True)]
            flags = future
            found.append(placed(code, filename, line))
            line += block.count("\n") + 3
    except SyntaxError:  # it was cut in two
        return [compile(text, filename, "exec", dont_inherit=True)]
    return found
