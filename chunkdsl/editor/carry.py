"""A finding of one item, told of another of the same structure: places move from token to token, names are exchanged.

A guess, good until the other item has been checked by itself: a word of a message may be spelt like a name, and what is
near to one name is not near to another.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

from chunkdsl.diagnostics import Diagnostic, Edit, Fix, Label
from chunkdsl.editor.lint import moved
from chunkdsl.editor.segments import Segment
from chunkdsl.editor.structure import tokens, words_in_order

_WORD = re.compile(r"(?<!\w)[A-Za-z_]\w*")


class Carrier:
    """From an item and all that it builds on, in order, to another and what that builds on."""

    def __init__(self, here: Sequence[Segment], there: Sequence[Segment]) -> None:
        self._pairs = [(x, y) for x, y in zip(here, there, strict=True) if x is not y]
        self._starts = [x.start for x, _ in self._pairs]
        self._names = {
            a: b for x, y in self._pairs for a, b in zip(words_in_order(x.text), words_in_order(y.text), strict=True)
        }  # fmt: skip

    def __call__(self, d: Diagnostic) -> Diagnostic:
        there = moved(d, self._offset)
        return replace(
            there,
            message=self._text(d.message),
            label=self._text(d.label),
            labels=tuple(Label(x.span, self._text(x.message)) for x in there.labels),
            help=self._text(d.help),
            fixes=tuple(Fix(self._text(f.title), tuple(Edit(e.span, self._text(e.text)) for e in f.edits), f.safe)
                        for f in there.fixes),
        )  # fmt: skip

    def _text(self, text: str) -> str:
        return _WORD.sub(lambda m: self._names.get(m[0], m[0]), text)

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
