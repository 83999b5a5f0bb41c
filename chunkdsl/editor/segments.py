"""A text as segments, one for each item: what they declare, what they mention, who depends on whom. Parses nothing."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from chunkdsl.check.syntax import ITEMS
from chunkdsl.editor.memory import remember
from chunkdsl.record import record
from chunkdsl.source import Span
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
        if found and not begins(piece):
            found[-1] = Segment(found[-1].start, found[-1].text + piece)
        else:
            found.append(Segment(span.start, piece))
    return tuple(found)


@remember
def begins(piece: str) -> bool:
    """Whether a piece starts, or seems to be meant to start, with an item's keyword."""
    return head(piece, Span(0, len(piece)), ITEMS) is not None


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
    """Who declares and who mentions which name, among the segments of one text. `gives`: the names that a segment
    declares, as its uses see it; `always`: whether all others build on it, beside version and mesh."""

    def __init__(
        self, found: Sequence[Segment], gives: Callable[[str], Iterable[str]] = declares,
        always: Callable[[str], bool] = lambda text: False,
    ) -> None:  # fmt: skip
        self._segments, self._gives = found, gives
        self.declaring: dict[str, list[int]] = {}
        for i, segment in enumerate(found):
            for name in gives(segment.text):
                self.declaring.setdefault(name, []).append(i)
        version_or_mesh = ("chunk", "mesh")
        self.always = frozenset(
            i for i, s in enumerate(found) if s.text.startswith(version_or_mesh) or always(s.text)
        )

    @cached_property
    def _mentioning(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for i, segment in enumerate(self._segments):
            for word in words(segment.text):
                found.setdefault(word, []).append(i)
        return found

    @cached_property
    def _built_on(self) -> list[set[int]]:
        """For each segment those that declare a name which it mentions. What `use` reads may name any dim."""
        declaring, found = self.declaring, []
        dims = {i for i, s in enumerate(self._segments) if s.text.startswith("dim")}
        for i, segment in enumerate(self._segments):
            on = {j for w in words(segment.text) if w in declaring for j in declaring[w]}
            on.discard(i)
            found.append(on | dims if segment.text.startswith("use") else on)
        return found

    def needed(self, wanted: Iterable[int]) -> set[int]:
        """These segments and all that they build on; version and mesh are always among them."""
        return self._needed([*wanted, *self.always], set())

    def needed_up_to(self, wanted: Sequence[int], most: float) -> tuple[set[int], set[int]]:
        """The first of some segments, as many as make about `most` with all that they build on; and these together."""
        taken: set[int] = set()
        found = self.needed(())
        for i in wanted:
            if len(found) >= most:
                break
            taken.add(i)
            found = self._needed([i], found)
        return taken, found

    def roots(self) -> list[int]:
        """Segments which, with all that they build on, are all segments. Most are built on by no other."""
        used = set(self.always).union(*(on for on in self._built_on))
        found = [i for i in range(len(self._segments)) if i not in used]
        reached = self.needed(found)
        for i in range(len(self._segments)):  # those that build on each other, in a circle
            if i not in reached:
                found.append(i)
                reached = self._needed([i], reached)
        return sorted(found) or sorted(self.always)[:1]  # nothing but a mesh, so far

    def _needed(self, start: Sequence[int], found: set[int]) -> set[int]:
        """`found` and, added to it, `start` and all that they build on."""
        waiting = [i for i in start if i not in found]
        found.update(waiting)
        while waiting:
            more = self._built_on[waiting.pop()] - found
            found |= more
            waiting += more
        return found

    def affected(self, changed: Iterable[int], names: Iterable[str]) -> set[int]:
        """These segments and all that build on them or on one of the names."""
        found = {*changed, *(i for name in names for i in self._mentioning.get(name, ()))}
        waiting = list(found)
        while waiting:
            for name in self._gives(self._segments[waiting.pop()].text):
                for i in self._mentioning.get(name, ()):
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
        at = bisect_right(self.places, offset, key=lambda place: place[0])
        if not at:
            return offset
        inner, outer, length = self.places[at - 1]
        return outer + min(offset - inner, length)

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
