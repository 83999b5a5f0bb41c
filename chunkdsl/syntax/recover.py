"""More mistakes of an item in which one was found: those of the statements and keys behind it, each read by itself.

A statement starts on a line that is indented as the first one of a body, a key behind a comma. Each is parsed in the
place of the whole body of a right item, so that what the first mistake has spoilt spoils nothing else. Says nothing of
an item whose brackets do not match, nor of what stands in the statement of the first mistake, before it, in its header
or within one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

import lark

from chunkdsl.diagnostics import Diagnostic
from chunkdsl.source import Span
from chunkdsl.syntax.mistakes import Failure, Parser, diagnose, unclosed

MOST = 20  # findings of one item: each costs a parse, and more are read by nobody
_AROUND = {  # the beginning of a right item of a kind; its end is a brace
    "op": "op f(x) -> y {\n",
    "plan": "plan r(t) : a over b {\n",
    "kernel": 'kernel k(A) -> C = "k.py" : f {\n',
    "policy": "policy p {\n",
}
_STARTS = frozenset("for if let send fetch lane arg grid const".split())  # the keywords that begin a statement
_KIND = re.compile(r"[a-z]+")
_MARK = re.compile(r'"[^"\n]*"|#[^\n]*|\n[ \t]*(?=[A-Za-z_])|[()\[\]{},]')
_WORD = re.compile(r"\s*(\w+)")
Piece = tuple[int, int]


def more_mistakes(
    first: Failure, found: Diagnostic, parser: Parser, tree_of: Callable[[str, int], lark.Tree | Failure]
) -> Iterator[Diagnostic]:
    """Findings for an item after the one that was `found` for its `first` failure, in order."""
    around = _AROUND.get(_KIND.match(first.text)[0]) if first.at else None
    if around is None or first.found == "$END" or unclosed(first.text) is not None:
        return
    pieces = _keys(first.text) if around.startswith("policy") else _statements(first.text, parser.keywords)
    left = MOST
    for start, end in pieces:
        base = first.base + start
        if base <= found.span.start or not left:
            continue
        tree = tree_of(f"{around}{first.text[start:end]}\n}}", base - len(around))
        if isinstance(tree, Failure) and _within(more := diagnose(tree, parser), Span(base, first.base + end)):
            left -= 1
            yield more


def _within(d: Diagnostic, piece: Span) -> bool:
    """Whether a finding speaks of the piece alone, and not of what was put around it."""
    spans = (d.span, *(x.span for x in d.labels), *(e.span for f in d.fixes for e in f.edits))
    return all(piece.start <= span.start and span.end <= piece.end for span in spans)


def _marks(text: str) -> Iterator[tuple[re.Match, int]]:
    """Commas, brackets and beginnings of lines, and how many brackets are open behind each."""
    depth = 0
    for match in _MARK.finditer(text):
        depth += (match[0] in "([{") - (match[0] in ")]}")
        yield match, depth


def _body(text: str) -> tuple[list[re.Match], int, int]:
    """The marks that stand directly between the outer braces of an item, and the place between these. Nothing if they
    do not close, or text is behind them."""
    start, inner = 0, []
    for match, depth in _marks(text):
        if not start:
            start = match.end() if match[0] == "{" and depth == 1 else 0
        elif depth <= 0:
            return (inner, start, match.start()) if match[0] == "}" and depth == 0 else ([], 0, 0)
        elif depth == 1:
            inner.append(match)
    return [], 0, 0


def _keys(text: str) -> Iterator[Piece]:
    """Those of a policy, parted by commas."""
    marks, start, end = _body(text)
    commas = [m for m in marks if m[0] == ","]
    yield from zip([start, *(m.end() for m in commas)], [*(m.start() for m in commas), end], strict=True)


def _statements(text: str, keywords: Collection[str]) -> Iterator[Piece]:
    """Lines of a body that are indented as the first and begin as a statement may, each with those that follow it."""
    marks, _, end = _body(text)
    lines = [m for m in marks if m[0][0] == "\n"]
    starts = [m.start() + 1 for m in lines if m[0] == lines[0][0] and _begins(text, m.end(), keywords)]
    yield from zip(starts, [*starts[1:], end] if starts else [], strict=True)


def _begins(text: str, at: int, keywords: Collection[str]) -> bool:
    word = _WORD.match(text, at)[1]
    return word in _STARTS or word not in keywords
