"""A well-formed text as tokens that carry their comments: what the formatter works on. Lays nothing out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from chunkdsl.syntax.items import cut
from chunkdsl.syntax.parse import grammar

_GAP = re.compile(r"#[^\n]*|\n")
_WORDS = re.compile(r"\s*([0-9.]+)\s*([A-Za-z]+)\s*")
TAB = 8  # columns


@dataclass
class Comment:
    """`text` from `#` on. A `blank` line stands before it; `more` are the lines below a trailing comment that start in
    its column and so belong to it."""

    text: str
    blank: bool = False
    more: list[str] = field(default_factory=list)


@dataclass
class Token:
    """`text` in canonical spelling. `before`: comments on lines of their own above it; `after`: the comment that ends
    its line. `new_line`, `blank`: a line break, a blank line lies between it and what precedes it."""

    text: str
    kind: str  # the terminal's name; "$END" for the end of the text
    start: int
    new_line: bool = False
    blank: bool = False
    before: list[Comment] = field(default_factory=list)
    after: Comment | None = None


def tokens_of(text: str) -> list[Token]:
    """All tokens, the last one the end of the text. Every item must parse. Comments are kept, blanks are not."""
    found: list[Token] = []
    end = 0
    for token in _lexed(text):
        _read_gap(text, end, token.start, found[-1] if found else None, token)
        found.append(token)
        end = token.start + len(token.text)
        token.text = _spelling(token)
    last = Token("", "$END", len(text))
    _read_gap(text, end, len(text), found[-1] if found else None, last)
    return [*found, last]


def _lexed(text: str) -> Iterator[Token]:
    for span in cut(text)[1]:
        for token in grammar().tokens(text[span.start : span.end]):
            yield Token(str(token), token.type, span.start + token.start_pos)


def _spelling(token: Token) -> str:
    if token.kind == "TILE":
        return re.sub(r"\s", "", token.text)
    if token.kind == "BYTES":
        return " ".join(_WORDS.fullmatch(token.text).groups())
    return token.text


def _read_gap(text: str, start: int, end: int, before: Token | None, after: Token) -> None:
    """Hand the comments between two tokens to the one or the other."""
    lines, last, column = 0, before.after if before else None, -1
    for match in _GAP.finditer(text, start, end):
        if match[0] == "\n":
            lines += 1
            continue
        comment = Comment(match[0].rstrip(), lines > 1)
        here = _column(text, match.start())
        if lines == 0 and before is not None:
            before.after = last = comment
            column = here
        elif here == column and lines == 1:
            last.more.append(comment.text)
        else:
            after.before.append(comment)
            column = -1
        lines = 0
    after.new_line = bool(lines) or bool(after.before) or (before is not None and before.after is not None)
    after.blank = lines > 1


def _column(text: str, offset: int) -> int:
    return len(text[text.rfind("\n", 0, offset) + 1 : offset].expandtabs(TAB))
