"""Rows of a formatted text and the columns that neighbours share. Knows nothing of the language."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from chunkdsl.syntax.tokens import Comment

WIDTH = 120
COMMENT = 45  # the column of comments that end a line, so that a changed line moves no other line's comment
WIDEST = 78  # a longer text keeps its comment to itself


@dataclass
class Row:
    """One line: `text` from `column` on, and the comment that ends it. `kind` and `mark`: rows of one kind without a
    blank line between them have what starts at offset `mark` of their text in one column."""

    column: int
    text: str
    comment: Comment | None = None
    blank: bool = False  # a blank line goes before it
    kind: str = ""
    mark: int = -1

    @property
    def end(self) -> int:
        return self.column + len(self.text)

    @property
    def is_comment(self) -> bool:
        return self.text.startswith("#")


def render(rows: list[Row]) -> str:
    """The text; ends with a line break unless there are no rows."""
    for block in _blocks(rows):
        for run in _runs(block):
            _align(run)
        _place_comments(block)
    lines = []
    for i, row in enumerate(rows):
        if row.blank and i:
            lines.append("")
        lines.append(" " * row.column + row.text)
    return "".join(line + "\n" for line in lines)


def _blocks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows between blank lines."""
    block: list[Row] = []
    for row in rows:
        if row.blank and block:
            yield block
            block = []
        block.append(row)
    yield block


def _runs(block: list[Row]) -> Iterator[list[Row]]:
    """Neighbours of one kind; comments between them part nothing."""
    run: list[Row] = []
    for row in block:
        if row.is_comment:
            continue
        if run and row.kind != run[0].kind:
            yield run
            run = []
        run.append(row)
    yield run


def _align(run: list[Row]) -> None:
    if not run or run[0].mark < 0:
        return
    column = max(row.mark for row in run)
    if all(row.end + column - row.mark <= WIDTH for row in run):
        for row in run:
            row.text = row.text[: row.mark].ljust(column) + row.text[row.mark :]


def _place_comments(block: list[Row]) -> None:
    ends = [row.end + 2 for row in block if row.comment and row.end <= WIDEST]
    column = max([COMMENT, *ends])
    for row in block:
        if row.comment:
            at = max(column, row.end + 2)
            row.text = row.text.ljust(at - row.column) + row.comment.text
            row.text += "".join(f"\n{'':{at}}{text}" for text in row.comment.more)
