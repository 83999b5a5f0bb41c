"""Tokens to lines: which stand apart, and where a line that would be too long is broken. Knows no statements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from chunkdsl.syntax.rows import WIDTH, Row
from chunkdsl.syntax.tokens import Token

_OPERANDS = {"NAME", "KEY", "INT", "FLOAT", "STRING"}
_BREAK_BEFORE = {"+", "-", "*", "/", "@", "->"}
_CALLEES = {"NAME", "_RANGE"}


def is_pairs(tokens: Sequence[Token], i: int) -> bool:
    """Whether token `i` is the brace that opens a policy's pairs."""
    if tokens[i].text != "{" or i == 0:
        return False
    if tokens[i - 1].kind == "NAME" and i > 1:
        return tokens[i - 2].kind in ("_WITH", "_POLICY")
    return tokens[i - 1].kind == "_WITH"


def gap(tokens: Sequence[Token], i: int) -> str:
    """What stands before token `i` on its line: a blank or nothing."""
    if i == 0:
        return ""
    a, b = tokens[i - 1], tokens[i]
    if b.text in (",", ")", "]", ".", "..") or a.text in ("(", "[", ".", ".."):
        return ""
    if a.text == "-" and not _is_operand(tokens[i - 2] if i > 1 else None):
        return ""
    if b.text == "(":
        return "" if a.kind in _CALLEES else " "
    if b.text == "[":
        return "" if a.kind == "NAME" or a.text in (")", "]") else " "
    return " "


def flat(tokens: Sequence[Token]) -> str:
    """All on one line."""
    return "".join(gap(tokens, i) + t.text for i, t in enumerate(tokens))


def has_inner_comment(tokens: Sequence[Token]) -> bool:
    """Whether a comment stands anywhere between the first token and the last."""
    return any(t.after for t in tokens[:-1]) or any(t.before for t in tokens[1:])


def wrap(tokens: Sequence[Token], column: int, hang: int) -> list[Row]:
    """Rows of a logical line that starts in `column` and goes on in `hang`, or behind the brace of the pairs it is in.

    A comment ends its row. Where a row would be too long it ends at a comma or before an operator: of those in its
    second half at the one inside the fewest brackets, of equals at the last.
    """
    rows: list[Row] = []
    depths = _depths(tokens)
    braces: list[tuple[int, int]] = []  # (index of the brace that opened, column behind it) of pairs that are open
    i = 0
    while i < len(tokens):
        rows += [Row(column, c.text) for c in tokens[i].before if i]
        ends = list(accumulate((len(gap(tokens, j)) * (j > i) + len(tokens[j].text) for j in range(i, len(tokens))),
                               initial=column))[1:]
        stop = next((j + 1 for j in range(i, len(tokens) - 1) if tokens[j].after or tokens[j + 1].before), len(tokens))
        if ends[stop - 1 - i] > WIDTH:
            stop = _break(tokens, depths, ends, i, stop, column)
        text = "".join(gap(tokens, j) * (j > i) + tokens[j].text for j in range(i, stop))
        for j in range(i, stop):
            if is_pairs(tokens, j):
                braces.append((j, ends[j - i] + 1))
            elif tokens[j].text == "}" and braces:
                braces.pop()
        rows.append(Row(column, text, tokens[stop - 1].after))
        column = braces[-1][1] if braces and stop < len(tokens) and tokens[stop].text != "}" else hang
        i = stop
    return rows


def _is_operand(token: Token | None) -> bool:
    return token is not None and (token.kind in _OPERANDS or token.text in (")", "]"))


def _depths(tokens: Sequence[Token]) -> list[int]:
    """In how many brackets each token stands."""
    opened = accumulate((t.text in ("(", "[", "{")) - (t.text in (")", "]", "}")) for t in tokens)
    return [n - (t.text in ("(", "[", "{")) for n, t in zip(opened, tokens, strict=True)]


def _break(tokens: Sequence[Token], depths: list[int], ends: list[int], i: int, stop: int, column: int) -> int:
    """The first token of the next row. The row may stay too long where nothing parts it."""
    places = [j for j in range(i + 1, stop) if _may_break(tokens, j)]
    fitting = [j for j in places if ends[j - 1 - i] <= WIDTH]
    half = column + (WIDTH - column) // 2
    late = [j for j in fitting if ends[j - 1 - i] > half]
    if fitting:
        return min(late or fitting, key=lambda j: (depths[j], -j))
    return places[0] if places else stop


def _may_break(tokens: Sequence[Token], j: int) -> bool:
    if tokens[j - 1].text == ",":
        return tokens[j].text != "}"
    binary = tokens[j].text in _BREAK_BEFORE and _is_operand(tokens[j - 1])
    return binary or tokens[j].kind in ("_WITH", "_MOD", "_TO", "_FROM", "_INTO", "_SAVES")
