"""A finding of one item, told of another of the same structure: places move from token to token, names are exchanged.

A guess, good until the other item has been checked by itself: a word of a message may be spelt like a name, and what is
near to one name is not near to another.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter

from chunkdsl.diagnostics import Diagnostic, Edit, Fix, Label
from chunkdsl.editor.segments import Segment
from chunkdsl.editor.structure import shape_of, tokens
from chunkdsl.source import Span

_WORD = re.compile(r"((?<!\w)[A-Za-z_]\w*)")


class Carrier:
    """From an item and all that it builds on, in order, to any others: where a place lies and of what words a text is
    made is looked up once for all of them."""

    def __init__(self, here: Sequence[Segment]) -> None:
        self._here = here
        self._starts = [s.start for s in here]
        self._words = [shape_of(s.text).words for s in here]
        self._places: dict[int, tuple[int, int, int, bool] | None] = {}
        self._pieces: dict[str, list[str]] = {}

    def to(self, there: Sequence[Segment]) -> Callable[[Diagnostic], Diagnostic]:
        """What tells a finding of another item, and what that builds on."""
        moves = [None if x is y else (y.start, tokens(y.text)) for x, y in zip(self._here, there, strict=True)]
        names = {
            a: b
            for y, move, words in zip(there, moves, self._words, strict=True) if move
            for a, b in zip(words, shape_of(y.text).words, strict=True) if a != b
        }  # fmt: skip

        def text(old: str) -> str:
            return "".join([names.get(piece, piece) for piece in self._split(old)]) if old else old

        def offset(old: int) -> int:
            place = self._place(old)
            if place is None or (move := moves[place[0]]) is None:
                return old
            start, new = move
            _, token, by, behind = place
            if token < 0:
                return start
            other, last = new[token]
            return start + (last + min(by, 1) if behind else min(other + by, last))

        def span(old: Span) -> Span:
            start = offset(old.start)
            return Span(start, max(start, offset(old.end)))

        def carry(d: Diagnostic) -> Diagnostic:
            labels = tuple([Label(span(x.span), text(x.message)) for x in d.labels])
            fixes = tuple([
                Fix(text(f.title), tuple([Edit(span(e.span), text(e.text)) for e in f.edits]), f.safe) for f in d.fixes
            ])
            return Diagnostic(d.code, d.name, d.severity, text(d.message), span(d.span), text(d.label), labels,
                              text(d.help), fixes)  # fmt: skip

        return carry

    def _split(self, text: str) -> list[str]:
        if text not in self._pieces:
            self._pieces[text] = _WORD.split(text)
        return self._pieces[text]

    def _place(self, offset: int) -> tuple[int, int, int, bool] | None:
        """Which segment, which of its tokens, how far behind the start of that, or behind its end; None outside."""
        if offset not in self._places:
            self._places[offset] = self._find(offset)
        return self._places[offset]

    def _find(self, offset: int) -> tuple[int, int, int, bool] | None:
        at = bisect_right(self._starts, offset) - 1
        if at < 0 or offset > self._here[at].end:
            return None
        inner = offset - self._starts[at]
        old = tokens(self._here[at].text)
        token = bisect_right(old, inner, key=itemgetter(0)) - 1
        if token < 0:
            return at, token, 0, False
        start, end = old[token]
        return (at, token, inner - end, True) if inner >= end else (at, token, inner - start, False)
