"""The findings of a text that is being edited: those of `chunkdsl check`, kept up to date.

An item's findings follow from its text and from all that it builds on: these make an excerpt, which goes through the
same stages as a file. So of items with one structure (see `structure.py`) one is looked at, and none where that
structure was found clean before. Only items with findings are checked by themselves, unless the change cannot reach
them: then their findings move with the text.

A change may give findings to more items than can be checked between two keystrokes. Then those nearest to it are
checked, and the others keep what was found in them before; `complete` says whether all are up to date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from chunkdsl import pipeline
from chunkdsl.crash import explain_crash
from chunkdsl.diagnostics import Diagnostic, Edit, Fix, Label, Report, Severity
from chunkdsl.editor.memory import remember
from chunkdsl.editor.segments import Excerpt, Relations, Segment, excerpt
from chunkdsl.ignores import apply_ignores
from chunkdsl.lower.names import Elsewhere, nowhere
from chunkdsl.lower.program import lower
from chunkdsl.pipeline import Checked
from chunkdsl.source import Source, Span
from chunkdsl.syntax.mistakes import Failure
from chunkdsl.syntax.parse import parse, tree_of

Staged = tuple[int, Diagnostic]  # a finding and the stage that found it
_LINE = re.compile(r"\bline \d")
_tree = remember(lambda text: tree_of(text, 0))


def tree_again(text: str, base: int):
    """As `tree_of`; an item that was parsed before is not parsed again."""
    tree = _tree(text)
    return replace(tree, base=base) if isinstance(tree, Failure) else tree


@dataclass
class Part(Checked):
    """What the stages make of an excerpt. `elsewhere`: see `lower.names.Names`."""

    elsewhere: Elsewhere = nowhere


def _read(part: Part) -> None:
    """Parse and lower: one stage, as items that parse are lowered beside those that do not."""
    part.file = parse(part.report.source, part.report, tree_again)
    part.program = lower(part.file, part.report.source, part.report, part.elsewhere)


STAGES = (_read, pipeline.schedule)
LAST = len(STAGES) - 1


@dataclass(frozen=True)
class Quoted(Source):
    """An excerpt whose lines have the numbers that they have in the text that it is of: findings quote them."""

    whole: Source
    excerpt: Excerpt

    def position(self, offset: int) -> tuple[int, int]:
        return self.whole.position(self.excerpt.outward(offset))

    def line_text(self, line: int) -> str:
        return self.whole.line_text(line)

    def line_span(self, line: int) -> Span | None:
        span = self.whole.line_span(line)
        start = None if span is None else self.excerpt.inward(span.start)
        return None if start is None else Span(start, start + span.end - span.start)


class Stale(Exception):
    """The text has changed: nobody wants to know any more."""


@dataclass(frozen=True)
class Lint:
    """`found[i]`: all findings of segment i, by offsets of `text`; `known[i]`: the last stage that looked at it, -1
    where that was in an older text. `loose`: findings about no segment. `fresh`: the segments that were checked by
    themselves for this answer."""

    path: str
    text: str
    segments: tuple[Segment, ...]
    found: tuple[tuple[Staged, ...], ...]
    known: tuple[int, ...]
    loose: tuple[Staged, ...]
    fresh: frozenset[int]

    @property
    def stage(self) -> int:
        """The first stage with an error: what later ones would say is not said."""
        return stage_of(s for part in (*self.found, self.loose) for s in part)

    @property
    def complete(self) -> bool:
        """Whether `report` is what `chunkdsl check` says of the text."""
        return min(self.known, default=LAST) >= self.stage

    def report(self) -> Report:
        """What `chunkdsl check` reports for the text, as far as it is known."""
        report, last = Report(Source(self.path, self.text)), self.stage
        report.extend(d for part in (*self.found, self.loose) for stage, d in part if stage <= last)
        apply_ignores(report)
        return report


def run_stages(
    source: Source, watch: Callable[[], object] = bool, elsewhere: Elsewhere = nowhere
) -> list[Staged]:  # fmt: skip
    """What `pipeline.check_report` finds, in order of place, with the stage that found it. `watch` may raise
    `Stale`."""
    part, stages = Part(Report(source, watch), elsewhere=elsewhere), {}
    report = part.report
    for number, stage in enumerate(STAGES):
        if report.failed:
            break
        try:
            stage(part)
        except Stale:
            raise
        except Exception as error:
            report.add(explain_crash(error))
        for d in report.diagnostics:
            stages.setdefault(d, number)
    return [(stages[d], d) for d in report.diagnostics]


def sort_findings(findings: Iterable[Staged], parts: tuple[Segment, ...]) -> tuple[tuple, tuple[Staged, ...]]:
    """Findings, in order of place, by segment; and those about none."""
    found: list[list[Staged]] = [[] for _ in parts]
    loose: list[Staged] = []
    at = 0
    for stage, d in findings:
        while d.span is not None and at + 1 < len(parts) and parts[at + 1].start <= d.span.start:
            at += 1
        if d.span is None or not parts or d.span.start < parts[at].start:
            loose.append((stage, d))
        else:
            found[at].append((stage, d))
    return tuple(map(tuple, found)), tuple(loose)


def stage_of(findings: Iterable[Staged]) -> int:
    """The first stage with an error, or the last."""
    return min((stage for stage, d in findings if d.severity is Severity.ERROR), default=LAST)


def quotes_lines(d: Diagnostic) -> bool:
    """Whether the words of a finding have numbers of lines in them."""
    return any(_LINE.search(text) for text in (d.message, d.label, d.help, *(x.message for x in d.labels)))


def moved(d: Diagnostic, at: Callable[[int], int]) -> Diagnostic:
    """A finding with all its places where `at` puts them."""

    def span(s: Span) -> Span:
        return Span(at(s.start), max(at(s.start), at(s.end)))

    return replace(
        d,
        span=span(d.span) if d.span else None,
        labels=tuple(Label(span(x.span), x.message) for x in d.labels),
        fixes=tuple(Fix(f.title, tuple(Edit(span(e.span), e.text) for e in f.edits), f.safe) for f in d.fixes),
    )


def lint_whole(path: str, text: str, parts: tuple[Segment, ...], watch: Callable[[], object] = bool) -> Lint:
    """All of a text through all stages."""
    found, loose = sort_findings(run_stages(Source(path, text), watch), parts)
    stage = stage_of((*loose, *(s for part in found for s in part)))
    return Lint(path, text, parts, found, (stage,) * len(parts), loose, frozenset(range(len(parts))))


def lint_part(
    whole: Source, parts: tuple[Segment, ...], wanted: Collection[int], elsewhere: Elsewhere,
    watch: Callable[[], object],
) -> tuple[tuple[tuple[Staged, ...], ...], tuple[Staged, ...]]:  # fmt: skip
    """Some segments of a text through all stages, with all that they build on: as `sort_findings`."""
    part = excerpt(parts, wanted)
    found = run_stages(Quoted(whole.path, part.text, whole, part), watch, elsewhere)
    return sort_findings(((stage, moved(d, part.outward)) for stage, d in found), parts)


def part_for(found: tuple[Segment, ...], index: int) -> Excerpt:
    """All that segment `index` builds on, and itself."""
    return excerpt(found, Relations(found).needed([index]))
