"""`rank xor bit`: a function written between its operands -> where it stands, and the call. Knows words only."""

from __future__ import annotations

import re

_LEFT = re.compile(r"([-+*/]\s*|\bmod\s+)?(\b\w+(?:\([^()]*\))?)\s+$")  # an operand, and what binds it
_RIGHT = re.compile(r"xor\s+(\w+(?:\([^()]*\))?)(\s*(?:[-+*/]|mod\b))?")
_LONGEST = 80


def as_call(text: str, at: int) -> tuple[int, int, str | None] | None:
    """Start and end of the `xor` at `at` with its operands, and the call; None for the call where another operator
    binds one of them. None where an operand is more than a name, a number or a plain call."""
    first = max(0, at - _LONGEST)
    left, right = _LEFT.search(text[first:at]), _RIGHT.match(text, at)
    if not left or not right:
        return None
    call = None if left[1] or right[2] else f"xor({left[2]}, {right[1]})"
    return first + left.start(2), right.end(1), call
