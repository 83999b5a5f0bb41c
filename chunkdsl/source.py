"""Source text and places in it. Everything counts in code points; only the editor's edge knows UTF-16."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open range [start, end) of code-point offsets into one source."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"bad span {self.start}..{self.end}")

    def cover(self, other: Span) -> Span:
        """The smallest span that holds both."""
        return Span(min(self.start, other.start), max(self.end, other.end))


@dataclass(frozen=True)
class Source:
    """One text with the path the user gave for it (never made absolute: output must not depend on the machine)."""

    path: str
    text: str
    _starts: list[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_starts", [0, *accumulate(len(line) + 1 for line in self.text.split("\n")[:-1])])

    def position(self, offset: int) -> tuple[int, int]:
        """1-based line and 1-based column of a code-point offset."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line_of(self, offset: int) -> int:
        return self.position(offset)[0]

    def line_text(self, line: int) -> str:
        """Text of a 1-based line, without its end."""
        start = self._starts[line - 1]
        end = self._starts[line] - 1 if line < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r")

    def line_span(self, line: int) -> Span | None:
        """The text of a 1-based line, without blanks around it. None for lines that are not in the source."""
        if not 1 <= line <= len(self._starts):
            return None
        text = self.line_text(line)
        start = self._starts[line - 1] + len(text) - len(text.lstrip())
        return Span(start, start + len(text.strip()))

    def slice(self, span: Span) -> str:
        return self.text[span.start : span.end]
