"""Cuts a text into items: an item starts at a letter in column one, so a mistake costs one item and not the file.

Knows nothing of what an item holds. Strings and comments end with their line, so none hides the start of an item.
"""

from __future__ import annotations

import re

from chunkdsl.source import Span

_START = re.compile(r"^[A-Za-z]", re.MULTILINE)
_IDLE = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")


def cut(text: str) -> tuple[Span | None, tuple[Span, ...]]:
    """What stands before the first item (None if that is only blanks and comments), and the items in order.

    The items' spans touch each other: blanks and comments between two items belong to the first.
    """
    starts = [m.start() for m in _START.finditer(text)] or [len(text)]
    stray = skip_idle(text, 0)
    lead = Span(stray, starts[0]) if stray < starts[0] else None
    ends = [*starts[1:], len(text)]
    return lead, tuple(Span(a, b) for a, b in zip(starts, ends, strict=True) if a < b)


def skip_idle(text: str, offset: int) -> int:
    """The first offset at or after `offset` that is neither blank nor comment."""
    return _IDLE.match(text, offset).end()
