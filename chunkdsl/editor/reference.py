"""What the language reference says about keys, policies and functions, for hover and completion. Read from its tables,
so that an editor and the page never disagree."""

from __future__ import annotations

import re
from functools import cache

from chunkdsl.record import record
from chunkdsl.resources import read

_CODE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\[([^\]|]*)\]\(#[^)]*\)")  # within the page: nothing outside it can follow one
_CALL = re.compile(r"(\w+)\(([^)]*)\)")


@record
class Key:
    """A policy key: what it is for, the values that are built, its meaning, what `auto` becomes."""

    name: str
    applies: str
    values: tuple[str, ...]
    meaning: str
    automatic: str


@record
class Function:
    """`parameters` as written; `operands` and `result` say what goes in and comes out."""

    name: str
    parameters: tuple[str, ...]
    operands: str
    result: str

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(self.parameters)})"


@cache
def keys() -> dict[str, Key]:
    found = {}
    for row in _rows("key", 5):
        values = tuple(v for cell in _CODE.findall(row[2]) for v in [cell])
        name = _CODE.findall(row[0])[0]
        found[name] = Key(name, row[1].replace("`", ""), values, row[3], row[4])
    return found


@cache
def functions() -> dict[str, Function]:
    found = {}
    for row in _rows("expression", 3):
        for name, parameters in _CALL.findall(row[0]):
            listed = tuple(p.strip() for p in parameters.split(","))
            found[name] = Function(name, listed, row[1], row[2])
    return found


@cache
def policies() -> dict[str, str]:
    """The named policies that come with the language, and what each is."""
    return {_CODE.findall(row[0])[0]: _CODE.findall(row[1])[0] for row in _rows("policy", 2)}


@cache
def layouts() -> dict[str, str]:
    """The layouts of shards, with what a rank holds."""
    found = {}
    for row in _rows("layout", 3):
        for text, name in re.findall(r"`@ ((\w+)\([^)]*\))`", row[0]):
            found[name] = f"{text}: rank r of W holds {row[1]}"
    return found


def _rows(first: str, cells: int) -> list[list[str]]:
    """The rows of the first table whose header starts with a word."""
    text = _LINK.sub(r"\1", read("grammars", "README.md"))
    table = re.search(rf"^\| {first} \|.*\n\|[- |]*\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table[1].splitlines()]
    return [row for row in rows if len(row) == cells]
