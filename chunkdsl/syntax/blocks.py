"""A block in Python's way (a colon, then indented lines) -> the edits that put it in braces. Knows layout only."""

from __future__ import annotations

import re
from collections.abc import Callable

_OPENS = re.compile(r"\s*\{")
_LINE = re.compile(r"\n([ \t]*)(?=[^\s#])")


def in_braces(text: str, colon: int, unclosed: Callable[[str], int | None]) -> list[tuple[int, int, str]]:
    """Replacements [start, end) -> text: a `{` for the colon, and a `}` behind the block unless that is there already.
    `unclosed`: the offset of a bracket of a text that is not closed."""
    if brace := _OPENS.match(text, colon + 1):
        return [(colon, brace.end(), "{")]
    edits = [(colon, colon + 1, " {")]
    if unclosed(text[:colon] + "{" + text[colon + 1 :]) is None:
        return edits
    line = text.rfind("\n", 0, colon) + 1
    indent = re.compile(r"[ \t]*").match(text, line)[0]
    first = text.find("\n", colon)
    first = len(text) if first < 0 else first
    ends = (m.start() for m in _LINE.finditer(text, first) if len(m[1]) <= len(indent))
    end = len(text[: next(ends, len(text))].rstrip())
    if "#" in text[text.rfind("\n", 0, end) + 1 : end] or end > first:
        return [*edits, (end, end, f"\n{indent}}}")]
    return [*edits, (end, end, " }")]
