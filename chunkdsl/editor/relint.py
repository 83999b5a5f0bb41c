"""Which items of a text are looked at after a change, and how their findings make those of the text. See `lint.py`.

In three steps: one item of each structure that is not known to be clean; where its findings stem from, itself or
something that it builds on; then all items that this is so for, by themselves. Each step runs the stages on an
excerpt; mostly the first has looked at all that the third asks for.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from functools import cached_property

from chunkdsl.editor.carry import Carrier
from chunkdsl.editor.lint import LAST, Lint, Staged, lint_part, lint_whole, moved, quotes_lines, run_stages, stage_of
from chunkdsl.editor.segments import Relations, Segment, segments, solid
from chunkdsl.editor.standing import gives, looks_like_mesh, names_of, stands
from chunkdsl.editor.structure import Clean, shape_of, structure_of
from chunkdsl.source import Source

LARGEST_LOOK = 40  # items that are looked at, at least one of each structure, to learn what has findings
LARGEST_PART = 24  # items that are then checked by themselves for a first answer: what a screen shows
CLEAN = Clean()
Watch = Callable[[], object]
Found = tuple[tuple[Staged, ...], ...]


def lint(path: str, text: str, before: Lint | None = None, watch: Watch = bool, clean: Clean = CLEAN) -> Lint:
    """The findings of a text. With `before`, those of an older text, at most about `LARGEST_LOOK` items are looked at
    and `LARGEST_PART` checked, without it as many as need be. `clean`: what is known of structures, and learns.
    `watch` may raise `Stale`."""
    parts = segments(text)
    meshed = any(s.text.startswith("mesh") or looks_like_mesh(s.text) for s in parts)
    if not meshed or any(s.text.startswith("chunk") for s in parts[1:]):
        return lint_whole(path, text, parts, watch)  # such findings are about the text as a whole
    if before is not None and (not before.segments or any(d.span is None for _, d in before.loose)):
        before = None
    try:
        return _Change(path, text, parts, before, clean, watch).check()
    except _Failed:
        return lint_whole(path, text, parts, watch)


class _Failed(Exception):
    """A stage has failed: its finding is about no item."""


class _Change:
    """A text, what is known of it from `before` and `clean`, and what is found out about it."""

    def __init__(
        self, path: str, text: str, parts: tuple[Segment, ...], before: Lint | None, clean: Clean, watch: Watch
    ) -> None:  # fmt: skip
        self.path, self.text, self.parts, self.before, self.clean, self.watch = path, text, parts, before, clean, watch
        self.most = (math.inf, math.inf) if before is None else (LARGEST_LOOK, LARGEST_PART)
        old = () if before is None else before.segments
        self.head, self.tail = _common(old, parts)
        self.changed = range(self.head, len(parts) - self.tail)
        self.gone = old[self.head : len(old) - self.tail]
        self.relations = Relations(parts, gives, looks_like_mesh)
        self.closures = {root: sorted(self.relations.needed([root])) for root in self.relations.roots()}
        self.found: list[tuple[Staged, ...]] = [()] * len(parts)
        self.known = [LAST] * len(parts)
        self.elsewhere: dict[str, tuple[str, ...]] = {}

    def check(self) -> Lint:
        groups, kept = self._look()
        firsts, taken = self._nearest((members[0] for members in groups.values()), self.most[0])
        seen, stage = self._stages(taken)
        stale: set[int] = set()
        alike: list[list[int]] = []
        for structure, members in groups.items():
            if members[0] not in firsts:
                stale.update(members)
            elif any(seen[i] for i in self.closures[members[0]]):
                alike.append(members)
            else:
                self.clean.add(structure, stage)
                self._note(members, stage)
        bad = self._sources(alike, seen)
        bad |= self._beside(kept, bad)
        found = seen
        if not self.relations.needed(bad) <= taken:
            _, taken = self._nearest(bad, self.most[1])
            found, stage = self._stages(taken)
            stale |= bad - taken
        self._keep(set(kept) - bad, stale)
        checked = self.relations.needed(bad & taken) if bad else set()
        for i in checked:
            self.found[i], self.known[i] = found[i], stage
        if bad - checked:
            for members in alike:
                self._guess(members, seen, checked)
        lead = self.text[: self.parts[0].start]
        loose = tuple(run_stages(Source(self.path, lead), self.watch)) if lead.strip() else ()
        fresh = frozenset(bad & taken)
        return Lint(self.path, self.text, self.parts, tuple(self.found), tuple(self.known), loose, fresh)

    def _look(self) -> tuple[dict[Hashable, list[int]], list[int]]:
        """The roots that are not known to be clean: by their structure, the nearest to the change first; and those
        whose findings the change leaves alone."""
        folder = os.path.dirname(self.path)
        groups: dict[Hashable, list[int]] = {}
        kept: list[int] = []
        shapes = [shape_of(s.text) for s in self.parts]
        for root, closure in self.closures.items():
            structure = structure_of([shapes[i] for i in closure], folder)
            if self.clean.stage(structure) == LAST:
                continue
            if self._holds(closure):
                kept.append(root)
            else:
                groups.setdefault(structure, []).append(root)
        for members in groups.values():
            members.sort(key=self._distance)
        return groups, kept

    def _holds(self, closure: Sequence[int]) -> bool:
        """Whether what was found before in a root and all that it builds on still says all about them. Not where
        nothing was found: why then is it not known to be clean? Nor where it speaks of lines, which move."""
        if self.before is None or not self._same_names or any(i in self.changed for i in closure):
            return False
        old = [self._old(i) for i in closure]
        found = [d for i in old for _, d in self.before.found[i]]
        if not found or any(self.before.known[i] < 0 for i in old) or any(map(quotes_lines, found)):
            return False
        return not any(i in self._affected for i in closure)

    def _sources(self, alike: Sequence[Sequence[int]], found: Found) -> set[int]:
        """What the findings of roots, in lists of one structure each, stem from. `found`: those of the first of each.
        It is the roots, or else what they build on, if that says the same by itself."""
        built_on = [i for members in alike if not found[members[0]] for i in self.closures[members[0]] if found[i]]
        alone, _ = self._stages(self.relations.needed(built_on) if built_on else ())
        sources: set[int] = set()
        for members in alike:
            first = self.closures[members[0]]
            if not found[members[0]] and all(alone[i] == found[i] for i in first):
                sources.update(self.closures[root][at] for at, i in enumerate(first) if found[i] for root in members)
            else:
                sources.update(members)
        return sources

    def _beside(self, kept: Sequence[int], bad: Collection[int]) -> set[int]:
        """Those of the kept roots that build on something which is checked again and had findings: these may be
        theirs."""
        more: set[int] = set()
        while True:
            again = self.relations.needed(more | set(bad)) if bad else set()
            new = {root for root in kept if root not in more
                   and any(i in again and self.before.found[self._old(i)] for i in self.closures[root])}
            if not new:
                return more
            more |= new

    def _guess(self, members: Sequence[int], found: Found, checked: Collection[int]) -> None:
        """What will be found in roots of one structure, from what was `found` in the first, but for what is
        `checked`."""
        here = self.closures[members[0]]
        places = [at for at, i in enumerate(here) if found[i]]
        carrier = Carrier([self.parts[i] for i in here])
        for root in members:
            there = self.closures[root]
            new = [at for at in places if there[at] not in checked]
            if new:
                carry = carrier.to([self.parts[i] for i in there])
                for at in new:
                    self.found[there[at]] = tuple((stage, carry(d)) for stage, d in found[here[at]])

    def _keep(self, kept: Collection[int], stale: Collection[int]) -> None:
        """What was found before in roots, and in all that they build on, or in an item that is none."""
        for i in {i for root in (*kept, *stale) for i in self.closures.get(root, (root,))}:
            if (old := self._old(i)) is not None:
                if before := self.before.found[old]:
                    self.found[i] = tuple((stage, moved(d, self._shift)) for stage, d in before)
                self.known[i] = min(self.known[i], self.before.known[old])
        for root in stale:
            self.known[root] = -1

    def _note(self, roots: Iterable[int], stage: int) -> None:
        """No later stage than this one has looked at these roots."""
        for root in roots:
            for i in self.closures.get(root, (root,)):
                self.known[i] = min(self.known[i], stage)

    def _nearest(self, roots: Iterable[int], most: float) -> tuple[set[int], set[int]]:
        """See `Relations.needed_up_to`."""
        nearest = sorted(roots, key=self._distance)
        return self.relations.needed_up_to(nearest, most) if nearest else (set(), set())

    def _distance(self, i: int) -> int:
        return max(self.changed.start - i, i - self.changed.stop + 1, 0)

    def _stages(self, wanted: Collection[int]) -> tuple[Found, int]:
        """The findings in an excerpt, by segment, and the stage that it reached. Nothing about nothing."""
        if not wanted:
            return ((),) * len(self.parts), LAST
        found, loose = lint_part(self._source, self.parts, wanted, self._elsewhere, self.watch)
        if loose:
            raise _Failed
        return found, stage_of(s for part in found for s in part)

    @cached_property
    def _source(self) -> Source:
        return Source(self.path, self.text)

    def _elsewhere(self, kind: str) -> Iterable[str]:
        if kind not in self.elsewhere:
            self.elsewhere[kind] = tuple(names_of(self.parts, self.relations.declaring, kind))
        return self.elsewhere[kind]

    def _old(self, i: int) -> int | None:
        """Which segment of the text before a segment was; None if it was another one."""
        if i in self.changed or self.before is None:
            return None
        return i if i < self.head else i - len(self.parts) + len(self.before.segments)

    @cached_property
    def _shift(self) -> Callable[[int], int]:
        """Where an offset of the text before went. One in what has changed stays in it."""
        old, by = self.before.segments, len(self.text) - len(self.before.text)
        lead = self.parts[0].start - old[0].start if self.head else 0
        first = old[self.head].start if self.head < len(old) else len(self.before.text) + 1
        last = old[-self.tail].start if self.tail else len(self.before.text)
        return lambda o: o + lead if o < first else o + by if o >= last else min(o, last + by)

    @cached_property
    def _affected(self) -> Collection[int]:
        """Segments that the change can reach."""
        if [solid(s.text) for s in self.gone] == [solid(self.parts[i].text) for i in self.changed]:
            return self.changed
        everywhere = {i for i in self.changed if i in self.relations.always}
        if everywhere or any(s.text.startswith(("mesh", "chunk")) or looks_like_mesh(s.text) for s in self.gone):
            return range(len(self.parts))
        return self.relations.affected(self.changed, {n for s in self.gone for n in gives(s.text)})

    @cached_property
    def _same_names(self) -> bool:
        """Whether the text has the names that it had, so that what is near to a name is what it was."""
        now, then = ([(shape_of(s.text).kind, gives(s.text), stands(s.text)) for s in found]
                     for found in ([self.parts[i] for i in self.changed], self.gone))
        return now == then


def _common(old: Sequence[Segment], new: Sequence[Segment]) -> tuple[int, int]:
    """How many segments are alike at the start and at the end."""
    most = min(len(old), len(new))
    head = next((i for i in range(most) if old[i].text != new[i].text), most)
    most -= head
    tail = next((i for i in range(most) if old[-1 - i].text != new[-1 - i].text), most)
    return head, tail
