"""XML elements and attributes with their places, read with expat. Knows nothing of plans.

A document type declaration is refused: with it go entities, and so the files that grow when they are read. Refused too:
text between the tags, and nesting deeper than DEEPEST.
"""

from __future__ import annotations

import re
from xml.parsers import expat

from chunkdsl.plan.importers.fault import malformed
from chunkdsl.record import record
from chunkdsl.source import Span

DEEPEST = 8
DIGITS = 20
_INTEGER = re.compile(r"-?\d+", re.ASCII)
_ATTRIBUTE = re.compile(r"""\s+([\w:.-]+)\s*=\s*("[^"]*"|'[^']*')""")


@record(eq=False)
class Element:
    """`span` is that of its start tag; `places` those of its attributes' values."""

    tag: str
    attributes: dict[str, str]
    children: list[Element]
    span: Span
    places: dict[str, Span]

    def place(self, name: str) -> Span:
        return self.places.get(name, self.span)

    def text(self, name: str) -> str:
        """An attribute that must be there; a malformed PlanFileError at the tag."""
        if name not in self.attributes:
            raise malformed(f"<{self.tag}> lacks {name!r}", self.span)
        return self.attributes[name]

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """An integer attribute from `low` to `high`, both included; without a `default` it must be there."""
        if default is not None and name not in self.attributes:
            return default
        text = self.text(name).strip()
        if not _INTEGER.fullmatch(text) or len(text) > DIGITS or not low <= int(text) <= high:
            shown = text if len(text) <= DIGITS else f"{text[:DIGITS]}..."
            raise malformed(f"{name}: wanted an integer from {low} to {high}, found {shown!r}", self.place(name))
        return int(text)

    def known(self, names: tuple[str, ...]) -> None:
        for name in self.attributes:
            if name not in names:
                raise malformed(f"<{self.tag}> has an unknown attribute {name!r}; known are {', '.join(names)}",
                                self.place(name))


def read_xml(text: str) -> Element:
    """The outermost element of a text. A malformed PlanFileError at the first thing that is not as said above."""
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._bytes = text, text.encode("utf-8", "surrogatepass")
        self._passed = (0, 0)  # bytes and code points
        self._open: list[Element] = []
        self._root: Element | None = None
        # The text is decoded: its own word on its encoding no longer counts.
        self._parser = expat.ParserCreate("utf-8")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.EntityDeclHandler = self._doctype

    def read(self) -> Element:
        try:
            self._parser.Parse(self._bytes, True)
        except expat.ExpatError as error:
            at = self._offset(self._parser.ErrorByteIndex)
            raise malformed(f"not XML: {expat.ErrorString(error.code)}", Span(at, at)) from None
        return self._root

    def _offset(self, byte: int) -> int:
        """The code point at a byte offset. expat reports in the order of the text."""
        start, passed = self._passed if self._passed[0] <= byte else (0, 0)
        passed += len(self._bytes[start:byte].decode("utf-8", "ignore"))
        self._passed = byte, passed
        return min(passed, len(self._text))

    def _here(self) -> Span:
        at = self._offset(self._parser.CurrentByteIndex)
        return Span(at, min(at + 1, len(self._text)))

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        start = self._here()
        if len(self._open) >= DEEPEST:
            raise malformed(f"nested deeper than {DEEPEST}", start)
        places, at = {}, start.start + 1 + len(tag)
        while found := _ATTRIBUTE.match(self._text, at):
            places[found[1]], at = Span(*found.span(2)), found.end()
        element = Element(tag, attributes, [], Span(start.start, at), places)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _end(self, tag: str) -> None:
        self._open.pop()

    def _characters(self, data: str) -> None:
        if data.strip():
            raise malformed("text between the tags", self._here())

    def _doctype(self, *_: object) -> None:
        raise malformed("a document type declaration: its entities are not read", self._here(),
                        help="delete it: a plan needs none")
