"""The canonical layout of a spec. Moves blanks and line breaks, and drops a comma before `}`; every other token, and
every comment, stays and keeps its order.

- Items start in column one; bodies are indented by four. Blank lines are kept, but never two.
- A body stays on the line of its head if it is written so, holds at most one statement and fits in 120 columns.
- The `with` clauses of an op's statements start in one column, the types of neighbouring tensors and the values of
  neighbouring dims too. Comments that end a line stand in column 46, or further right behind longer lines.
- Pairs of a policy fill lines from the column of the first, or have a line each if the first starts on a line of its
  own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from chunkdsl.diagnostics import Report
from chunkdsl.source import Source
from chunkdsl.syntax import nodes
from chunkdsl.syntax.parse import parse
from chunkdsl.syntax.rows import WIDTH, Row, render
from chunkdsl.syntax.tokens import Comment, Token, tokens_of
from chunkdsl.syntax.wrap import flat, has_inner_comment, is_pairs, wrap

INDENT = 4
WIDEST_VALUE = 64  # the end of a statement's value up to which its `with` stands in the column of its op's
_MARKS = {"_TENSOR": ":", "_DIM": "="}


def format_source(source: Source, report: Report) -> str | None:
    """The text in canonical layout, with the line ends of its first line; None if it does not parse (see `report`)."""
    file = parse(source, report)
    if report.failed:
        return None
    tokens = tokens_of(source.text)
    formatted = render(_rows(tokens, file))
    if _content(tokens_of(formatted)) != _content(tokens):
        raise AssertionError("the formatter would have changed the text, not only its layout")
    return formatted.replace("\n", "\r\n") if source.text.partition("\n")[0].endswith("\r") else formatted


def _content(tokens: list[Token]) -> list[str]:
    """All that a layout must keep, in order."""
    found = []
    for i, t in enumerate(tokens):
        found += [c.text for c in t.before]
        if t.text != "," or tokens[i + 1].text != "}":
            found.append(t.text)
        found += [t.after.text, *t.after.more] if t.after else []
    return found


def _rows(tokens: list[Token], file: nodes.File) -> list[Row]:
    layout = _Layout({node.span.start for node in _statements(file.items)})
    rows: list[Row] = []
    for item in layout.split(tokens[:-1], {i.span.start for i in file.items}):
        rows += layout.item(item)
    return rows + _comments(tokens[-1].before, 0)


def _statements(items: Sequence[nodes.Node]) -> Iterator[nodes.Node]:
    """Everything that starts a line of its own in an expanded body."""
    for node in items:
        match node:
            case nodes.Op() | nodes.Plan() | nodes.Loop() | nodes.LaneBlock():
                inner: tuple[nodes.Node, ...] = node.body
            case nodes.Kernel():
                inner = node.bindings
            case nodes.Branch():
                inner = node.then + node.otherwise
            case _:
                continue
        yield from inner
        yield from _statements(inner)


def _comments(comments: list[Comment], column: int) -> list[Row]:
    return [Row(column, c.text, blank=c.blank) for c in comments]


def _match(tokens: Sequence[Token], opener: int) -> int:
    """The index of the brace that closes the one at `opener`."""
    depth = 0
    for i in range(opener, len(tokens)):
        depth += (tokens[i].text == "{") - (tokens[i].text == "}")
        if depth == 0:
            return i
    raise AssertionError("a text that parses closes its braces")


class _Layout:
    """`starts`: offsets at which statements of bodies start."""

    def __init__(self, starts: set[int]) -> None:
        self.starts = starts

    @staticmethod
    def split(tokens: Sequence[Token], starts: set[int]) -> Iterator[list[Token]]:
        """Cut before tokens that start at one of the offsets, outside of inner braces."""
        part: list[Token] = []
        depth = 0
        for token in tokens:
            if part and depth == 0 and token.start in starts:
                yield part
                part = []
            part.append(token)
            depth += (token.text == "{") - (token.text == "}")
        if part:
            yield part

    def item(self, tokens: list[Token]) -> list[Row]:
        rows = self.lines(tokens, 0)
        mark = _MARKS.get(tokens[0].kind)
        own = [r for r in rows if not r.is_comment]
        if mark and len(own) == 1:
            own[0].kind, own[0].mark = mark, own[0].text.index(mark)
        return rows

    def lines(self, tokens: list[Token], indent: int, clause: int | None = None) -> list[Row]:
        """Rows of an item or statement. `clause`: the column of its `with` clause if neighbours share one."""
        above = _comments(tokens[0].before, indent)
        rows = self._own_lines(tokens, indent, clause)
        rows[0].blank = tokens[0].blank
        return above + rows

    def _own_lines(self, tokens: list[Token], indent: int, clause: int | None) -> list[Row]:
        opener = next((i for i, t in enumerate(tokens) if t.text == "{" and not is_pairs(tokens, i)), None)
        if opener is None:
            return self._simple(tokens, indent, clause)
        if self._stays_flat(tokens, indent):
            return [Row(indent, flat(tokens), tokens[-1].after)]
        rows: list[Row] = []
        head: list[Token] = []
        while opener is not None:
            closer = _match(tokens, opener)
            if head and (head[0].after or tokens[0].before):  # a comment between `}` and `else` parts them
                rows += [*wrap(head, indent, indent), *_comments(tokens[0].before, indent)]
                head, tokens = [], [replace(tokens[0], before=[]), *tokens[1:]]
            rows += wrap([*head, *tokens[: opener + 1]], indent, indent + 2 * INDENT)
            rows += self._body(tokens[opener + 1 : closer], indent + INDENT)
            rows += _comments(tokens[closer].before, indent + INDENT)
            head, tokens = [replace(tokens[closer], before=[])], tokens[closer + 1 :]
            opener = next((i for i, t in enumerate(tokens) if t.text == "{"), None)
        return rows + wrap(head, indent, indent)

    def _stays_flat(self, tokens: list[Token], indent: int) -> bool:
        if has_inner_comment(tokens) or indent + len(flat(tokens)) > WIDTH:
            return False
        for i, token in enumerate(tokens):
            if token.text == "{" and not is_pairs(tokens, i):
                inner = tokens[i + 1 : _match(tokens, i)]
                if (inner and inner[0].new_line) or len(list(self.split(inner, self.starts))) > 1:
                    return False
        return True

    def _body(self, tokens: list[Token], indent: int) -> list[Row]:
        parts = list(self.split(tokens, self.starts))
        ends = [indent + len(flat(part[:w])) for part in parts if (w := _with(part)) and not has_inner_comment(part)]
        column = max((_tab(end) for end in ends if end <= WIDEST_VALUE), default=0)
        rows = [row for part in parts for row in self.lines(part, indent, column)]
        if rows:
            rows[0].blank = False
        return rows

    def _simple(self, tokens: list[Token], indent: int, column: int | None) -> list[Row]:
        brace = next((i for i in range(len(tokens)) if is_pairs(tokens, i) and _match(tokens, i) == len(tokens) - 1), 0)
        inner = tokens[brace + 1 :]
        if brace and len(inner) > 1 and (inner[0].new_line or has_inner_comment(tokens[brace:])):
            return self._expanded(tokens, brace, indent, column)
        if brace and len(inner) > 1 and inner[-2].text == "," and not inner[-2].after:
            tokens = [*tokens[:-2], tokens[-1]]
        start = _with(tokens)
        if column is None or not start or has_inner_comment(tokens):
            return wrap(tokens, indent, indent + INDENT)
        value = wrap(tokens[:start], indent, indent + INDENT)
        at = column if value[-1].end <= WIDEST_VALUE else _tab(value[-1].end)
        clause = wrap(tokens[start:], at, at)
        if any(row.end > WIDTH for row in clause) or len(value) > 1:
            return value + wrap(tokens[start:], indent + INDENT, indent + INDENT)
        return [*value[:-1], _join(value[-1], clause[0]), *clause[1:]]

    def _expanded(self, tokens: list[Token], brace: int, indent: int, column: int | None) -> list[Row]:
        """A line for each pair."""
        start = _with(tokens[: brace + 1])
        if column is None or not start or has_inner_comment(tokens[: brace + 1]):
            rows = wrap(tokens[: brace + 1], indent, indent + INDENT)
        else:
            rows = wrap(tokens[:start], indent, indent + INDENT)
            clause = wrap(tokens[start : brace + 1], max(column, _tab(rows[-1].end)), indent + INDENT)
            rows = [*rows[:-1], _join(rows[-1], clause[0]), *clause[1:]]
        pair: list[Token] = []
        for i, token in enumerate(tokens[brace + 1 : -1], brace + 1):
            pair.append(token)
            if token.text == "," and _depth(tokens[brace + 1 : i]) == 0:
                rows += self._pair(pair, indent + INDENT, first=rows[-1].text.endswith("{"))
                pair = []
        if pair:
            rows += self._pair(pair, indent + INDENT, first=rows[-1].text.endswith("{"))
        rows += _comments(tokens[-1].before, indent + INDENT)
        return [*rows, Row(indent, "}", tokens[-1].after)]

    def _pair(self, tokens: list[Token], indent: int, first: bool) -> list[Row]:
        rows = self.lines(tokens, indent)
        rows[0].blank = rows[0].blank and not first
        return rows


def _with(tokens: Sequence[Token]) -> int:
    """The index of the clause that ends a statement, 0 without one."""
    depth, found = 0, 0
    for i, token in enumerate(tokens):
        depth += (token.text in ("(", "{", "[")) - (token.text in (")", "}", "]"))
        if token.kind == "_WITH" and depth == 0:
            found = i
    return found


def _depth(tokens: Sequence[Token]) -> int:
    return sum((t.text == "(") - (t.text == ")") for t in tokens)


def _tab(end: int) -> int:
    """The first multiple of four that leaves four blanks."""
    return -(-(end + INDENT) // INDENT) * INDENT


def _join(left: Row, right: Row) -> Row:
    return Row(left.column, left.text.ljust(right.column - left.column) + right.text, right.comment, left.blank)
