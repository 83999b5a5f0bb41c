"""A text as segments, one for each item: what they declare, what they mention, who depends on whom. Parses nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from chunkdsl.check.syntax import ITEMS
from chunkdsl.editor.memory import remember
from chunkdsl.record import record
from chunkdsl.syntax.items import cut
from chunkdsl.syntax.mistakes import head

_SKIPPED = re.compile(r'"[^"\n]*"|#[^\n]*')
_SOLID = re.compile(r'"[^"\n]*"|#[^\n]*|[^\s#"]+|"')
_WORD = re.compile(r"[A-Za-z_]\w*")
_DECLARED = re.compile(r"\w+[ \t\r\n]+(\w+)")
_AXIS = re.compile(r"(\w+)\s*\[")
_USED = re.compile(r"\bas\s+(\w+)")


@record
class Segment:
    """`text` from `start` of the source on: an item and what follows it up to the next."""

    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def segments(text: str) -> tuple[Segment, ...]:
    """In order. A piece that starts with no item's keyword belongs to the one before it, as its body may."""
    found: list[Segment] = []
    for span in cut(text)[1]:
        piece = text[span.start : span.end]
        if found and head(text, span, ITEMS) is None:
            found[-1] = Segment(found[-1].start, found[-1].text + piece)
        else:
            found.append(Segment(span.start, piece))
    return tuple(found)


@remember
def words(text: str) -> frozenset[str]:
    """Identifiers outside of comments and strings."""
    return frozenset(_WORD.findall(_SKIPPED.sub(" ", text)))


@remember
def declares(text: str) -> frozenset[str]:
    """The names that an item gives to the file, as far as its beginning says."""
    bare = _SKIPPED.sub(" ", text)
    kind = _WORD.match(bare)[0]
    if kind == "mesh":
        return frozenset(_AXIS.findall(bare))
    if kind == "use":
        return frozenset(_USED.findall(bare))
    if kind == "gradient":
        return frozenset()
    match = _DECLARED.match(bare)
    return frozenset([match[1]]) if match else frozenset()


@remember
def solid(text: str) -> str:
    """An item without the comments and blanks behind it."""
    end = 0
    for match in _SOLID.finditer(text):
        end = match.end() if match[0][0] != "#" else end
    return text[:end]


class Relations:
    """Who declares and who mentions which name, among the segments of one text."""

    def __init__(self, found: Sequence[Segment]) -> None:
        self._segments = found
        self._declaring: dict[str, list[int]] = {}
        self._mentioning: dict[str, list[int]] = {}
        for i, segment in enumerate(found):
            for name in declares(segment.text):
                self._declaring.setdefault(name, []).append(i)
            for word in words(segment.text):
                self._mentioning.setdefault(word, []).append(i)

    def needed(self, wanted: Iterable[int]) -> set[int]:
        """These segments and all that they build on; version and mesh are always among them."""
        return self._needed([*wanted, *self._always()], set())

    def needed_up_to(self, wanted: Sequence[int], most: int) -> tuple[set[int], set[int]]:
        """The first of some segments, as many as make about `most` with all that they build on; and these together."""
        taken: set[int] = set()
        found = self._needed(self._always(), set())
        for i in wanted:
            if len(found) >= most:
                break
            taken.add(i)
            found = self._needed([i], found)
        return taken, found

    def _always(self) -> list[int]:
        return [i for i, s in enumerate(self._segments) if s.text.startswith(("chunk", "mesh"))]

    def _needed(self, start: Sequence[int], found: set[int]) -> set[int]:
        return self._closure(start, lambda s: words(s.text), self._declaring, found)

    def affected(self, changed: Iterable[int], names: Iterable[str]) -> set[int]:
        """These segments and all that build on them or on one of the names."""
        start = [*changed, *(i for name in names for i in self._mentioning.get(name, ()))]
        return self._closure(start, lambda s: declares(s.text), self._mentioning, set())

    def _closure(self, start, names_of, index, found: set[int]) -> set[int]:
        """`found` and, added to it, `start` and what follows from them."""
        waiting = [i for i in dict.fromkeys(start) if i not in found]
        found.update(waiting)
        while waiting:
            for name in names_of(self._segments[waiting.pop()]):
                for i in index.get(name, ()):
                    if i not in found:
                        found.add(i)
                        waiting.append(i)
        return found


@record
class Excerpt:
    """Some segments of a text, joined. `places`: (start in the excerpt, start in the text, length), in order."""

    text: str
    places: tuple[tuple[int, int, int], ...]

    def outward(self, offset: int) -> int:
        """The offset in the text for one in the excerpt."""
        for inner, outer, length in reversed(self.places):
            if offset >= inner:
                return outer + min(offset - inner, length)
        return offset

    def inward(self, offset: int) -> int | None:
        """The offset in the excerpt, None if it is not part of it."""
        for inner, outer, length in self.places:
            if outer <= offset <= outer + length:
                return inner + offset - outer
        return None


def excerpt(found: Sequence[Segment], wanted: Iterable[int]) -> Excerpt:
    parts, places, at = [], [], 0
    for i in sorted(wanted):
        text = found[i].text if found[i].text.endswith("\n") else f"{found[i].text}\n"
        places.append((at, found[i].start, len(found[i].text)))
        parts.append(text)
        at += len(text)
    return Excerpt("".join(parts), tuple(places))
