"""Every name in a spec and what it stands for: definitions, references, new names. Types nothing. `uses` reads
items."""

from __future__ import annotations

import re

from chunkdsl.diagnostics import Edit
from chunkdsl.editor.segments import Segment, words
from chunkdsl.editor.uses import FILE, Use, item_of, uses_of
from chunkdsl.source import Span
from chunkdsl.syntax.parse import grammar

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def word_at(text: str, offset: int) -> str:
    """The identifier that an offset touches; "" if none."""
    for match in _IDENTIFIER.finditer(text, text.rfind("\n", 0, offset) + 1):
        if match.start() > offset:
            break
        if offset <= match.end():
            return match[0]
    return ""


def given_to(text: str, start: int, offset: int) -> str:
    """The word to which `=` gives what an offset lies in, as far as `start`; "" if none."""
    # From behind, a look at each character: a search for the word first would take minutes in a line of one long word.
    equals = max(text.rfind(mark, start, offset) for mark in "={}#\n")
    if equals < start or text[equals] != "=":
        return ""
    before = text[start:equals].rstrip(" \t")
    return word_at(before, len(before))


class Index:
    """The names of a text. A place is (segment, use)."""

    def __init__(self, segments: tuple[Segment, ...]) -> None:
        self.segments = segments
        self._kinds: dict[str, tuple[str, int, Use]] = {}
        for i, segment in enumerate(segments):
            for use in uses_of(segment.text):
                if use.declares and not use.local:
                    self._kinds.setdefault(use.name, (use.kind, i, use))

    def segment_at(self, offset: int) -> int | None:
        """The segment that an offset lies in: of two that touch, the one that goes on there."""
        found = [i for i, s in enumerate(self.segments) if s.start <= offset <= s.end]
        return found[-1] if found else None

    def at(self, offset: int) -> tuple[int, Use] | None:
        """The name at an offset (also just behind it)."""
        i = self.segment_at(offset)
        if i is None:
            return None
        at = offset - self.segments[i].start
        use = next((u for u in uses_of(self.segments[i].text) if u.span.start <= at <= u.span.end), None)
        return (i, use) if use is not None and self.kind(i, use) else None

    def kind(self, i: int, use: Use) -> str:
        """What a name stands for; "" if that is unknown."""
        if use.local:
            return use.kind
        if (place := self._in_owner(use)) is not None:
            return place[1].kind
        return self._kinds.get(use.name, ("",))[0]

    def declared(self) -> dict[str, str]:
        """The file's names and their kinds."""
        return {name: kind for name, (kind, _, _) in self._kinds.items()}

    def definition(self, offset: int) -> Span | None:
        found = self.at(offset)
        if found is None:
            return None
        i, use = found
        if (place := self._in_owner(use)) is not None:
            i, use = place
        if use.local:
            own = (u for u in uses_of(self.segments[i].text) if u.name == use.name and u.scope == use.scope)
            first = next((u for u in own if u.declares), use)
        else:
            _, i, first = self._kinds[use.name]
        return self.span(i, first)

    def references(self, offset: int) -> list[Span]:
        """All places of the name at an offset, its declaration too, in order."""
        found = self.at(offset)
        if found is None:
            return []
        meaning = self._meaning(*found)
        return [
            self.span(j, u)
            for j, segment in enumerate(self.segments)
            for u in uses_of(segment.text)
            if u.name == found[1].name and self._meaning(j, u) == meaning
        ]

    def _in_owner(self, use: Use) -> tuple[int, Use] | None:
        """Where a name means what it means in an op: the op, and the statement that binds it."""
        kind, i, _ = self._kinds.get(use.owner, ("", 0, None))
        if kind != "op":
            return None
        own = (u for u in uses_of(self.segments[i].text) if u.name == use.name and u.local and u.declares)
        return next(((i, u) for u in own), None)

    def _meaning(self, i: int, use: Use) -> tuple[int, int]:
        """The item and the place in it that give a name its meaning; the same for all of the file's names."""
        if (place := self._in_owner(use)) is not None:
            i, use = place
        return (i, use.scope) if use.local else (FILE, FILE)

    def rename(self, offset: int, new: str) -> list[Edit]:
        """Edits that rename. ValueError with a sentence if the name cannot be given."""
        places = self.references(offset)
        if not places:
            raise ValueError("there is no name here that can be changed")
        if not _IDENTIFIER.fullmatch(new):
            raise ValueError(f"{new!r} is not a name: ASCII letters, digits and _")
        if new in grammar().keywords:
            raise ValueError(f"`{new}` is a keyword")
        _, use = self.at(offset)
        touched = {self.segment_at(p.start) for p in places}
        taken = {u.name for j in touched for u in uses_of(self.segments[j].text)}
        if new != use.name and (new in taken or new in self._kinds):
            raise ValueError(f"`{new}` means something else here already")
        if not use.local and any(use.name in words(s.text) and item_of(s.text) is None for s in self.segments):
            raise ValueError(f"an item that mentions `{use.name}` cannot be read: mend it first")
        return [Edit(p, new) for p in places]

    def span(self, i: int, use: Use) -> Span:
        start = self.segments[i].start
        return Span(start + use.span.start, start + use.span.end)
