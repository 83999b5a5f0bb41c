"""JSON (RFC 8259) with the place of every value. Knows nothing of plans.

The standard library's reader gives no places, so values are cut here and strings are left to it. Refused beside what
RFC 8259 forbids: a key twice in one object, nesting deeper than DEEPEST, integers of more than DIGITS digits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json.decoder import scanstring

from chunkdsl.plan.importers.fault import malformed, unsupported
from chunkdsl.record import record
from chunkdsl.source import Span

DEEPEST = 32
DIGITS = 20  # 2^64 has as many
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
_WORDS = {"true": True, "false": False, "null": None}
_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "a truth value", int: "an integer"}


@record(eq=False)
class Json:
    """A value: `data` is a str, int, float, bool or None, a list of Json, or a dict of name to Json. `keys`: where the
    keys of an object stand."""

    data: object
    span: Span
    keys: dict[str, Span]

    @property
    def kind(self) -> str:
        """In words, as messages name it."""
        return _KINDS.get(type(self.data), "null" if self.data is None else "a number with a fraction")

    # ---- what readers of a format ask for. Each raises a malformed PlanFileError at this value.

    def text(self) -> str:
        return self._want(str, "a string")

    def truth(self) -> bool:
        return self._want(bool, "true or false")

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        value = self._want(int, "an integer")
        if not low <= value <= high:
            raise malformed(f"wanted an integer from {low} to {high}, found {value}", self.span)
        return value

    def items(self, longest: int) -> list[Json]:
        found = self._want(list, "a list")
        if len(found) > longest:
            raise unsupported(f"a list of {len(found)} items; this version reads at most {longest}", self.span)
        return found

    def fields(self, known: tuple[str, ...]) -> dict[str, Json]:
        """The members of an object that has no others than the known ones."""
        found = self._want(dict, "an object")
        for key in found:
            if key not in known:
                raise malformed(f"unknown key {key!r}; known are {', '.join(known)}", self.keys[key])
        return found

    def member(self, key: str) -> Json:
        """A member that must be there."""
        found = self._want(dict, "an object")
        if key not in found:
            raise malformed(f"{key!r} is missing", Span(self.span.start, self.span.start + 1))
        return found[key]

    def _want(self, of: type, words: str):
        if type(self.data) is not of:  # a truth value is no integer
            raise malformed(f"wanted {words}, found {self.kind}", self.span)
        return self.data


def read_json(text: str) -> Json:
    """The value that a text holds. A malformed PlanFileError at the first thing that is not JSON."""
    at = _skip(text, 0)
    value = _Reader(text).value(at, 1)
    end = _skip(text, value.span.end)
    if end < len(text):
        raise _wrong(text, end, "nothing after the value")
    return value


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()


def _wrong(text: str, at: int, wanted: str):
    found = repr(text[at]) if at < len(text) else "the end of the file"
    return malformed(f"not JSON: wanted {wanted}, found {found}", Span(at, min(at + 1, len(text))))


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, at: int, depth: int) -> Json:
        text, first = self._text, self._text[at : at + 1]
        if depth > DEEPEST:
            raise malformed(f"nested deeper than {DEEPEST}", Span(at, at + 1))
        if first == "{":
            return self._object(at, depth)
        if first == "[":
            return self._list(at, depth)
        if first == '"':
            data, end = self._string(at)
            return Json(data, Span(at, end), {})
        for word, data in _WORDS.items():
            if text.startswith(word, at):
                return Json(data, Span(at, at + len(word)), {})
        found = _NUMBER.match(text, at)
        if found is None:
            raise _wrong(text, at, "a value")
        span = Span(at, found.end())
        if found[2] or found[3]:
            return Json(float(found[0]), span, {})
        if len(found[1]) > DIGITS:
            raise malformed(f"an integer of {len(found[1])} digits", span)
        return Json(int(found[0]), span, {})

    def _object(self, start: int, depth: int) -> Json:
        members: dict[str, Json] = {}
        keys: dict[str, Span] = {}
        at = start
        for at in self._entries(start, "}"):
            if self._text[at : at + 1] != '"':
                raise _wrong(self._text, at, "a key in quotation marks")
            key, end = self._string(at)
            span = Span(at, end)
            if key in members:
                raise malformed(f"key {key!r} occurs twice in one object", span)
            colon = _skip(self._text, end)
            if self._text[colon : colon + 1] != ":":
                raise _wrong(self._text, colon, "`:`")
            members[key], keys[key] = self.value(_skip(self._text, colon + 1), depth + 1), span
            self._at = members[key].span.end
        return Json(members, Span(start, self._at), keys)

    def _list(self, start: int, depth: int) -> Json:
        found: list[Json] = []
        for at in self._entries(start, "]"):
            found.append(self.value(at, depth + 1))
            self._at = found[-1].span.end
        return Json(found, Span(start, self._at), {})

    def _entries(self, start: int, close: str) -> Iterator[int]:
        """Where each entry starts. Whoever takes one leaves its end in `_at`; in the end that is behind `close`."""
        at = _skip(self._text, start + 1)
        if self._text[at : at + 1] == close:
            self._at = at + 1
            return
        while True:
            yield at
            at = _skip(self._text, self._at)
            mark = self._text[at : at + 1]
            if mark == close:
                self._at = at + 1
                return
            if mark != ",":
                raise _wrong(self._text, at, f"`,` or `{close}`")
            at = _skip(self._text, at + 1)

    def _string(self, at: int) -> tuple[str, int]:
        try:
            return scanstring(self._text, at + 1, True)
        except json.JSONDecodeError as error:
            place = min(max(at, error.pos), max(0, len(self._text) - 1))
            what = f"{error.msg[0].lower()}{error.msg[1:]}".removesuffix(" at").removesuffix(" starting")
            raise malformed(f"not JSON: {what}", Span(place, place + 1)) from None
