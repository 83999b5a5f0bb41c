"""A finding of one item, told of another of the same structure: places move from token to token, names are exchanged.

A guess, good until the other item has been checked by itself: a word of a message may be spelt like a name, and what is
near to one name is not near to another.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter

from chunkdsl.diagnostics import Diagnostic, Edit, Fix, Label
from chunkdsl.editor.segments import Segment
from chunkdsl.editor.structure import shape_of, tokens
from chunkdsl.source import Span

_WORD = re.compile(r"(?<!\w)[A-Za-z_]\w*")


class Carrier:
    """From an item and all that it builds on, in order, to another and what that builds on."""

    def __init__(self, here: Sequence[Segment], there: Sequence[Segment]) -> None:
        self._pairs = [(x, y) for x, y in zip(here, there, strict=True) if x is not y]
        self._starts = [x.start for x, _ in self._pairs]
        self._names = {
            a: b
            for x, y in self._pairs
            for a, b in zip(shape_of(x.text).words, shape_of(y.text).words, strict=True)
            if a != b
        }

    def __call__(self, d: Diagnostic) -> Diagnostic:
        labels = tuple(Label(self._span(x.span), self._text(x.message)) for x in d.labels)
        fixes = tuple(
            Fix(self._text(f.title), tuple(Edit(self._span(e.span), self._text(e.text)) for e in f.edits), f.safe)
            for f in d.fixes
        )
        return Diagnostic(d.code, d.name, d.severity, self._text(d.message), self._span(d.span), self._text(d.label),
                          labels, self._text(d.help), fixes)  # fmt: skip

    def _span(self, span: Span) -> Span:
        start = self._offset(span.start)
        return Span(start, max(start, self._offset(span.end)))

    def _text(self, text: str) -> str:
        return _WORD.sub(lambda m: self._names.get(m[0], m[0]), text) if text else text

    def _offset(self, offset: int) -> int:
        at = bisect_right(self._starts, offset) - 1
        if at < 0 or offset > self._pairs[at][0].end:
            return offset
        here, there = self._pairs[at]
        old, new = tokens(here.text), tokens(there.text)
        inner = offset - here.start
        at = bisect_right(old, inner, key=itemgetter(0)) - 1
        if at < 0:
            return there.start
        (start, end), (other, last) = old[at], new[at]
        return there.start + (last + min(inner - end, 1) if inner >= end else min(other + inner - start, last))
