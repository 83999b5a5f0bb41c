"""Offsets in code points <-> positions of the protocol: lines and characters in the units that were agreed on."""

from __future__ import annotations

import re
from bisect import bisect_right

from lsprotocol import types as lsp

from chunkdsl.source import Span

_LINE_END = re.compile(r"\r\n|\n|\r")
MARK = "\ufeff"


class Lines:
    """The lines of one text as the protocol counts them. `encoding`: utf-8, utf-16 (its default) or utf-32.

    Offsets are of the text without the byte order mark that it may begin with; the protocol counts it."""

    def __init__(self, text: str, encoding: str = "utf-16") -> None:
        self._encoding = encoding
        self._mark = self._units(MARK) if text.startswith(MARK) else 0
        self.text = text = text.removeprefix(MARK)
        breaks = [m.span() for m in _LINE_END.finditer(text)]
        self._starts = [0, *(end for _, end in breaks)]
        self._ends = [*(start for start, _ in breaks), len(text)]

    def position(self, offset: int) -> lsp.Position:
        line = bisect_right(self._starts, offset) - 1
        mark = self._mark if line == 0 else 0
        return lsp.Position(line, mark + self._units(self.text[self._starts[line] : offset]))

    def range(self, span: Span) -> lsp.Range:
        start = self.position(span.start)
        if span.end > self._ends[start.line]:
            return lsp.Range(start, self.position(span.end))
        more = self._units(self.text[span.start : span.end])
        return lsp.Range(start, lsp.Position(start.line, start.character + more))

    def offset(self, position: lsp.Position) -> int:
        """A position behind the end of its line or text counts as that end."""
        if position.line >= len(self._starts):
            return len(self.text)
        start, end = self._starts[position.line], self._ends[position.line]
        at, left = start, position.character - (self._mark if position.line == 0 else 0)
        while at < end and left > 0:
            left -= self._units(self.text[at])
            at += 1
        return at

    def span(self, range: lsp.Range) -> Span:
        start = self.offset(range.start)
        return Span(start, max(start, self.offset(range.end)))

    def whole(self) -> lsp.Range:
        return self.range(Span(0, len(self.text)))

    def _units(self, text: str) -> int:
        if text.isascii():
            return len(text)
        if self._encoding == "utf-16":
            return len(text) + sum(c > "\uffff" for c in text)
        return len(text) if self._encoding == "utf-32" else len(text.encode("utf-8", "surrogatepass"))
