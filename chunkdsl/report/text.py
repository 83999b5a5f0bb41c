"""Findings for people: place, code, message, and the source line with carets under what is meant.

Takes what it prints as it is: no finding is dropped, merged or reordered here. Colour is the caller's choice.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

from chunkdsl.diagnostics import Diagnostic, Report, Severity
from chunkdsl.source import Source, Span

TAB = 4
WIDEST = 160  # columns of a source line that are shown
_COLOURS = {"error": "1;31", "warning": "1;33", "note": "1;36", "bar": "34", "second": "36", "bold": "1"}


def columns(text: str) -> int:
    """How many terminal columns a text takes once `show` has made it printable."""
    return sum(_width(c) for c in show(text))


def show(text: str) -> str:
    """A text with tabs expanded from column 0 and control characters replaced, so that it cannot move the cursor."""
    out: list[str] = []
    column = 0
    for c in text:
        if c == "\t":
            c = " " * (TAB - column % TAB)
        elif unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
            c = "\N{REPLACEMENT CHARACTER}"
        out.append(c)
        column += sum(_width(x) for x in c)
    return "".join(out)


def _width(c: str) -> int:
    if unicodedata.category(c) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


def render(reports: Iterable[Report], *, colour: bool = False) -> str:
    """All findings of all reports, each a block that ends with an empty line; then the count, if there are any."""
    blocks: list[str] = []
    counts = dict.fromkeys(Severity, 0)
    for report in reports:
        for diagnostic in report.diagnostics:
            counts[diagnostic.severity] += 1
            blocks.append("\n".join(_block(diagnostic, report.source, colour)) + "\n\n")
    if blocks:
        blocks.append(", ".join(f"{n} {s.value}{'s' * (n > 1)}" for s, n in counts.items() if n) + "\n")
    return "".join(blocks)


def _paint(text: str, style: str, colour: bool) -> str:
    return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if colour and text else text


def _block(d: Diagnostic, source: Source, colour: bool) -> Iterator[str]:
    place = show(source.path)
    if d.span is not None:
        place += ":{}:{}".format(*source.position(d.span.start))
    word = _paint(f"{d.severity.value}: {d.code}[{d.name}]", d.severity.value, colour)
    yield f"{_paint(place, 'bold', colour)}: {word} {show(d.message)}"
    marks = [(x.span, x.message, "second") for x in d.labels]
    if d.span is not None:
        marks.append((d.span, d.label, d.severity.value))
    lines = sorted({source.line_of(span.start) for span, _, _ in marks})
    gutter = len(str(lines[-1])) if lines else 0
    bar = _paint("|", "bar", colour)
    if lines:
        yield f"{'':{gutter}} {bar}"
    for i, line in enumerate(lines):
        if i and line > lines[i - 1] + 1:
            yield _paint("." * 3, "bar", colour)
        yield from _line(source, line, [m for m in marks if source.line_of(m[0].start) == line], gutter, bar, colour)
    help = "" if d.help in (d.message, d.label) else d.help
    for title, text in [("help", help), *(("fix", _fix(f.title, f.safe)) for f in d.fixes)]:
        if text:
            first, *more = text.split("\n")
            yield f"{'':{gutter}} {_paint('=', 'bar', colour)} {_paint(title, 'bold', colour)}: {show(first)}"
            for line in more:
                yield f"{'':{gutter}}     {show(line)}".rstrip()


def _fix(title: str, safe: bool) -> str:
    return f"{title} (safe)" if safe else title


def _line(source: Source, line: int, marks: list, gutter: int, bar: str, colour: bool) -> Iterator[str]:
    text = source.line_text(line)
    first = min(source.position(span.start)[1] for span, _, _ in marks) - 1
    cut = first - WIDEST // 2 if columns(text[:first]) > WIDEST else 0
    shown = show(text[cut:])
    tail = len(shown) > WIDEST
    head = "... " if cut else ""
    number = _paint(f"{line:>{gutter}}", "bar", colour)
    yield f"{number} {bar} {head}{shown[:WIDEST]}{' ...' if tail else ''}".rstrip()
    for span, message, style in sorted(marks, key=lambda m: m[0].start):
        column = source.position(span.start)[1] - 1
        left = columns(text[cut:column]) + len(head)
        under = _paint(_carets(source, text, cut, column, span, style), style, colour)
        yield f"{'':{gutter}} {bar} {'':{left}}{under} {_paint(show(message), style, colour)}".rstrip()


def _carets(source: Source, text: str, cut: int, column: int, span: Span, style: str) -> str:
    """One mark for each column of the part of the span on this line, at least one; `...` if the span goes on."""
    end = min(column + span.end - span.start, len(text))
    width = columns(text[cut:end]) - columns(text[cut:column])
    more = "..." if source.line_of(max(span.start, span.end - 1)) > source.line_of(span.start) else ""
    width = min(max(width, 1), WIDEST)
    return ("-" if style == "second" else "^") * width + more
