"""A finding of one item, told of another of the same structure: places move from token to token, names are exchanged.

A guess, good until the other item has been checked by itself: a word of a message may be spelt like a name, and what is
near to one name is not near to another.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter

from chunkdsl.diagnostics import Diagnostic, Edit, Fix, Label
from chunkdsl.editor.segments import Segment
from chunkdsl.editor.structure import shape_of, tokens
from chunkdsl.source import Span

_WORD = re.compile(r"((?<!\w)[A-Za-z_]\w*)")
Place = tuple[int, int, int, bool]


class Carrier:
    """From an item and all that it builds on, in order, to any others: where a place lies and which words of a text
    are names is looked up once for all of them."""

    def __init__(self, here: Sequence[Segment]) -> None:
        self._here = here
        self._starts = [s.start for s in here]
        shapes = [shape_of(s.text) for s in here]
        free = frozenset().union(*(s.names for s in shapes))
        self._names: dict[str, tuple[int, int]] = {}  # which item, and which of its words
        for at, shape in enumerate(shapes):
            for nth, word in enumerate(shape.words):
                if word in free:
                    self._names.setdefault(word, (at, nth))
        self._places: dict[int, Place | None] = {}
        self._forms: dict[str, tuple[str, tuple[tuple[int, int], ...]]] = {}

    def to(self, there: Sequence[Segment]) -> Callable[[Diagnostic], Diagnostic]:
        """What tells a finding of another item, and what that builds on."""
        starts = [y.start for y in there]
        words, ends = {}, {}  # of items, as far as they are asked for

        def text(old: str) -> str:
            if not old:
                return old
            form, slots = self._forms.get(old) or self._form(old)
            if not slots:
                return old
            for at, _ in slots:
                if at not in words:
                    words[at] = shape_of(there[at].text).words
            return form % tuple([words[at][nth] for at, nth in slots])

        def offset(old: int) -> int:
            place = self._places[old] if old in self._places else self._place(old)
            if place is None:
                return old
            at, token, by, behind = place
            if token < 0:
                return starts[at]
            if at not in ends:
                ends[at] = tokens(there[at].text)
            other, last = ends[at][token]
            return starts[at] + (last + min(by, 1) if behind else min(other + by, last))

        def span(old: Span) -> Span:
            start = offset(old.start)
            return Span(start, max(start, offset(old.end)))

        def carry(d: Diagnostic) -> Diagnostic:
            labels = tuple([Label(span(x.span), text(x.message)) for x in d.labels])
            fixes = tuple([
                Fix(text(f.title), tuple([Edit(span(e.span), text(e.text)) for e in f.edits]), f.safe) for f in d.fixes
            ])
            return Diagnostic(d.code, d.name, d.severity, text(d.message), span(d.span), text(d.label), labels,
                              text(d.help), fixes)  # fmt: skip

        return carry

    def _form(self, text: str) -> tuple[str, tuple[tuple[int, int], ...]]:
        """A text with a `%s` for each name, and where these stand."""
        pieces = _WORD.split(text)
        slots = tuple(self._names[piece] for piece in pieces if piece in self._names)
        form = "".join("%s" if piece in self._names else piece.replace("%", "%%") for piece in pieces)
        self._forms[text] = form, slots
        return form, slots

    def _place(self, offset: int) -> Place | None:
        """Which segment, which of its tokens, how far behind the start of that, or behind its end; None outside."""
        self._places[offset] = self._find(offset)
        return self._places[offset]

    def _find(self, offset: int) -> Place | None:
        at = bisect_right(self._starts, offset) - 1
        if at < 0 or offset > self._here[at].end:
            return None
        inner = offset - self._starts[at]
        old = tokens(self._here[at].text)
        token = bisect_right(old, inner, key=itemgetter(0)) - 1
        if token < 0:
            return at, token, 0, False
        start, end = old[token]
        return (at, token, inner - end, True) if inner >= end else (at, token, inner - start, False)
