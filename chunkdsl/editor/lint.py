"""The findings of a text that is being edited: those of `chunkdsl check`, kept up to date.

After a change only the items that it can reach are checked again: they, what declares the names that they mention, and
nothing else make an excerpt, which goes through the same stages as a file. Findings elsewhere move with their text.
Near names are looked for among those of the excerpt, so a suggestion may be missing until the text is checked whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from chunkdsl import pipeline
from chunkdsl.crash import explain_crash
from chunkdsl.diagnostics import Diagnostic, Edit, Fix, Label, Report, Severity
from chunkdsl.editor.segments import Excerpt, Relations, Segment, declares, excerpt, segments
from chunkdsl.ignores import apply_ignores
from chunkdsl.pipeline import Checked
from chunkdsl.source import Source, Span

STAGES = (pipeline.parse, pipeline.lower, pipeline.schedule)
LAST = len(STAGES) - 1
LARGEST_PART = 0.3  # of the items: above it a whole check is as quick

Staged = tuple[int, Diagnostic]  # a finding and the stage that found it


@dataclass(frozen=True)
class Lint:
    """`found[i]`: all findings of segment i, by offsets of `text`; `known[i]`: the last stage that looked at it.
    `loose`: findings about no segment. `whole`: the text was checked as one."""

    path: str
    text: str
    segments: tuple[Segment, ...]
    found: tuple[tuple[Staged, ...], ...]
    known: tuple[int, ...]
    loose: tuple[Staged, ...]
    whole: bool

    @property
    def stage(self) -> int:
        """The first stage with an error: what later ones would say is not said."""
        return _stage_of(s for part in (*self.found, self.loose) for s in part)

    def report(self) -> Report:
        """What `chunkdsl check` reports for the text."""
        report, last = Report(Source(self.path, self.text)), self.stage
        report.extend(d for part in (*self.found, self.loose) for stage, d in part if stage <= last)
        apply_ignores(report)
        return report


def lint(path: str, text: str, before: Lint | None = None) -> Lint:
    """The findings of a text; quickly, if it is `before` with a small change."""
    return (_update(before, text) if before is not None else None) or lint_whole(path, text)


def lint_whole(path: str, text: str) -> Lint:
    """All of it through all stages."""
    parts = segments(text)
    found, loose = _sort(_check(path, text), parts)
    stage = _stage_of((*loose, *(s for part in found for s in part)))
    return Lint(path, text, parts, found, (stage,) * len(parts), loose, whole=True)


def _check(path: str, text: str) -> list[Staged]:
    """What `pipeline.check_report` finds, in order of place, with the stage that found it."""
    checked, stages = Checked(Report(Source(path, text))), {}
    report = checked.report
    for number, stage in enumerate(STAGES):
        if report.failed:
            break
        try:
            stage(checked)
        except Exception as error:
            report.add(explain_crash(error))
        for d in report.diagnostics:
            stages.setdefault(d, number)
    return [(stages[d], d) for d in report.diagnostics]


def _update(before: Lint, text: str) -> Lint | None:
    """None where the text is better checked whole."""
    old, new = before.segments, segments(text)
    head, tail = _common(old, new)
    changed = range(head, len(new) - tail)
    gone = old[head : len(old) - tail]
    lead = before.segments[0].start if old else 0
    if before.loose or not new or not old or text[: new[0].start] != before.text[:lead] or any(map(_is_global, gone)):
        return None
    if any(_is_global(new[i]) for i in changed):
        return None
    relations = Relations(new)
    names = {n for s in gone for n in declares(s.text)}
    affected = relations.affected(changed, names)
    if len(affected) > max(20, LARGEST_PART * len(new)):
        return None
    part = excerpt(new, relations.needed(affected))
    findings = [(stage, _moved(d, part.outward)) for stage, d in _check(before.path, part.text)]
    fresh, loose = _sort(findings, new)
    if loose:
        return None
    reached = _stage_of(findings)
    shift = len(text) - len(before.text)
    border = old[head].start if head < len(old) else len(before.text)
    found, known = [], []
    for i in range(len(new)):
        at = i if i < head else i - len(new) + len(old)
        if i in affected:
            found.append(fresh[i])
            known.append(reached)
        else:
            kept = before.found[at]
            if shift:
                kept = tuple((stage, _moved(d, lambda o: o + shift * (o >= border))) for stage, d in kept)
            found.append(kept)
            known.append(before.known[at])
    result = Lint(before.path, text, new, tuple(found), tuple(known), (), whole=False)
    return result if min(known) >= result.stage else None


def _is_global(segment: Segment) -> bool:
    return segment.text.startswith(("mesh", "chunk"))


def _common(old: tuple[Segment, ...], new: tuple[Segment, ...]) -> tuple[int, int]:
    """How many segments are alike at the start and at the end."""
    most = min(len(old), len(new))
    head = next((i for i in range(most) if old[i].text != new[i].text), most)
    most -= head
    tail = next((i for i in range(most) if old[-1 - i].text != new[-1 - i].text), most)
    return head, tail


def _sort(findings: Iterable[Staged], parts: tuple[Segment, ...]) -> tuple[tuple, tuple[Staged, ...]]:
    """Findings by segment, and those about none."""
    found: list[list[Staged]] = [[] for _ in parts]
    loose: list[Staged] = []
    at = 0
    for stage, d in findings:  # in order of place
        while d.span is not None and at + 1 < len(parts) and parts[at + 1].start <= d.span.start:
            at += 1
        if d.span is None or not parts or d.span.start < parts[at].start:
            loose.append((stage, d))
        else:
            found[at].append((stage, d))
    return tuple(map(tuple, found)), tuple(loose)


def _stage_of(findings: Iterable[Staged]) -> int:
    """The first stage with an error, or the last."""
    return min((stage for stage, d in findings if d.severity is Severity.ERROR), default=LAST)


def _moved(d: Diagnostic, at: Callable[[int], int]) -> Diagnostic:
    def span(s: Span) -> Span:
        return Span(at(s.start), max(at(s.start), at(s.end)))

    return replace(
        d,
        span=span(d.span) if d.span else None,
        labels=tuple(Label(span(x.span), x.message) for x in d.labels),
        fixes=tuple(Fix(f.title, tuple(Edit(span(e.span), e.text) for e in f.edits), f.safe) for f in d.fixes),
    )


def part_for(found: tuple[Segment, ...], index: int) -> Excerpt:
    """All that segment `index` builds on, and itself."""
    return excerpt(found, Relations(found).needed([index]))
