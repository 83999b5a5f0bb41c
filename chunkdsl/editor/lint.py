"""The findings of a text that is being edited: those of `chunkdsl check`, kept up to date.

After a change only what it can reach is checked again: these items and what declares the names that they mention make
an excerpt, which goes through the same stages as a file. Findings elsewhere move with their text. Where a change
reaches more than can be checked between two keystrokes (the mesh, a dim that everything uses), the items that changed
and those nearest to them are checked, and the others keep what was found in them before.

Such an answer is a first one: `complete` says whether every item is up to date in it. Near names are looked for among
those of the excerpt, so a suggestion may be missing. `lint_whole` says all, and gives way when the text changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from chunkdsl import pipeline
from chunkdsl.crash import explain_crash
from chunkdsl.diagnostics import Diagnostic, Edit, Fix, Label, Report, Severity
from chunkdsl.editor.memory import remember
from chunkdsl.editor.segments import Excerpt, Relations, Segment, declares, excerpt, segments, solid
from chunkdsl.ignores import apply_ignores
from chunkdsl.pipeline import Checked
from chunkdsl.source import Source, Span
from chunkdsl.syntax.mistakes import Failure
from chunkdsl.syntax.parse import parse, tree_of

LARGEST_PART = 40  # items that are checked for a first answer: 20 to 40 ms
Staged = tuple[int, Diagnostic]  # a finding and the stage that found it
_tree = remember(lambda text: tree_of(text, 0))


def _tree_of(text: str, base: int):
    tree = _tree(text)
    return replace(tree, base=base) if isinstance(tree, Failure) else tree


def _parse(checked: Checked) -> None:
    """As `pipeline.parse`; an item that was parsed before is not parsed again."""
    checked.file = parse(checked.report.source, checked.report, _tree_of)


STAGES = (_parse, pipeline.lower, pipeline.schedule)
LAST = len(STAGES) - 1


class Stale(Exception):
    """The text has changed: nobody wants to know any more."""


@dataclass(frozen=True)
class Lint:
    """`found[i]`: all findings of segment i, by offsets of `text`; `known[i]`: the last stage that looked at it.
    `loose`: findings about no segment. `fresh`: the segments that were checked for this answer. `complete`: all are up
    to date. `whole`: the text was checked at once, so that near names are those of the file."""

    path: str
    text: str
    segments: tuple[Segment, ...]
    found: tuple[tuple[Staged, ...], ...]
    known: tuple[int, ...]
    loose: tuple[Staged, ...]
    fresh: frozenset[int]
    complete: bool
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


def lint(path: str, text: str, before: Lint | None = None, watch: Callable[[], object] = bool) -> Lint:
    """The findings of a text; quickly, if it is `before` with a small change. `watch`: see `Report`."""
    return (_update(before, text, watch) if before is not None else None) or lint_whole(path, text, watch)


def lint_whole(path: str, text: str, watch: Callable[[], object] = bool) -> Lint:
    """All of it through all stages. `watch` may raise `Stale`."""
    parts = segments(text)
    found, loose = _sort(_check(path, text, watch), parts)
    stage = _stage_of((*loose, *(s for part in found for s in part)))
    fresh = frozenset(range(len(parts)))
    return Lint(path, text, parts, found, (stage,) * len(parts), loose, fresh, complete=True, whole=True)


def _check(path: str, text: str, watch: Callable[[], object]) -> list[Staged]:
    """What `pipeline.check_report` finds, in order of place, with the stage that found it."""
    checked, stages = Checked(Report(Source(path, text), watch)), {}
    report = checked.report
    for number, stage in enumerate(STAGES):
        if report.failed:
            break
        try:
            stage(checked)
        except Stale:
            raise
        except Exception as error:
            report.add(explain_crash(error))
        for d in report.diagnostics:
            stages.setdefault(d, number)
    return [(stages[d], d) for d in report.diagnostics]


def _update(before: Lint, text: str, watch: Callable[[], object]) -> Lint | None:
    """None where the text is better checked whole: nothing of it is known, very much has changed, or a stage fails."""
    old, new = before.segments, segments(text)
    if not new or not old or any(d.span is None for _, d in before.loose):
        return None
    head, tail = _common(old, new)
    changed = range(head, len(new) - tail)
    gone = old[head : len(old) - tail]
    relations = Relations(new)
    if [solid(s.text) for s in gone] == [solid(new[i].text) for i in changed]:
        affected: Collection[int] = changed
    elif any(map(_is_global, gone)) or any(_is_global(new[i]) for i in changed):
        affected = range(len(new))
    else:
        affected = relations.affected(changed, {n for s in gone for n in declares(s.text)})
    near = sorted(affected, key=lambda i: max(head - i, i - changed.stop + 1, 0))
    wanted, needed = relations.needed_up_to(near, LARGEST_PART)
    if not wanted.issuperset(changed):
        return None
    part = excerpt(new, needed)
    findings = _check(before.path, part.text, watch)
    sorted_in, loose = _sort(((stage, _moved(d, part.outward)) for stage, d in findings), new)
    if loose:
        return None
    reached = _stage_of(s for part in sorted_in for s in part)
    move = _shift(before.text, text, old[head:], tail)
    found, known = [], []
    for i in range(len(new)):
        at = i if i < head else i - len(new) + len(old)
        if i in wanted:
            found.append(sorted_in[i])
            known.append(reached)
        else:
            kept = before.found[at]
            found.append(tuple((stage, _moved(d, move)) for stage, d in kept) if kept else kept)
            known.append(before.known[at])
    lead = text[: new[0].start]
    above = tuple(_check(before.path, lead, watch)) if lead.strip() else ()
    fresh = frozenset(wanted)
    result = Lint(before.path, text, new, tuple(found), tuple(known), above, fresh, complete=False, whole=False)
    complete = before.complete and len(wanted) == len(affected) and min(known) >= result.stage
    return replace(result, complete=complete)


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


def _shift(old: str, new: str, rest: tuple[Segment, ...], tail: int) -> Callable[[int], int]:
    """Where an offset of the old text went. `rest`: its segments from the first that differs; the last `tail` do not.
    An offset among those that differ stays among them."""
    by = len(new) - len(old)
    first = rest[0].start if rest else len(old)
    last = rest[-tail].start if tail else len(old)
    return lambda o: o if o < first else o + by if o >= last else min(o, last + by)


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
