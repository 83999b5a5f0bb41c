"""`# chunk: ignore[CD203]`: comments that silence findings where they stand, and what is said about those that do not.

At the end of a line a comment silences findings that start on that line, on a line of its own those of the next line
that holds more than a comment. Rules are listed by code or by name, in any case. It changes what `check` reports and
nothing that is built.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from chunkdsl.check.files import unused_ignore
from chunkdsl.diagnostics import Edit, Report, Severity
from chunkdsl.source import Source, Span
from chunkdsl.syntax.items import cut

_COMMENTS = re.compile(r'"[^"\n]*"|#[^\n]*')
_MARK = r"chunk[ \t]*:[ \t]*ignore\b"
_ANY = re.compile(_MARK, re.IGNORECASE)
_IGNORE = re.compile(rf"#[ \t]*{_MARK}(?:[ \t]*\[([^\]\n]*)\])?", re.IGNORECASE)
_CODE = re.compile(r"CD[0-9]{3}")
_WORD = re.compile(r"[^\s,]+")
_STAGES = {"CD1": 0, "CD2": 1, "CD5": 2, "CD6": 2, "CD3": 3, "CD4": 3}  # proofs (3) run only when asked for
_BUILT_ON_BY_NONE = re.compile(r"(?:op|gradient)(?!\w)")
_PATH_FAMILY = "CD0"  # about the file, not about a place in it


@dataclass
class _Ignore:
    """One code of one comment. `line`: where its findings are; `span`: what to remove if it is of no use."""

    code: str
    line: int
    span: Span
    used: bool = False


def apply_ignores(report: Report) -> None:
    """Drop the findings that comments silence; add one for each code in a comment that silences nothing."""
    if not _ANY.search(report.source.text):
        return
    found, stage = _ignores(report.source), _last_stage(report)
    hidden = _hides(report, stage)
    by_place: dict[tuple[int, str], list[_Ignore]] = {}
    for ignore in found:
        by_place.setdefault((ignore.line, ignore.code), []).append(ignore)
    silenced = set()
    for d in report.diagnostics:
        place = (report.source.line_of(d.span.start), d.code) if d.span and d.code[:3] != _PATH_FAMILY else None
        for ignore in by_place.get(place, ()):
            ignore.used = True
            silenced.add(d)
    report.keep(lambda d: d not in silenced)
    for ignore in found:
        own = _STAGES.get(ignore.code[:3], 0)
        if not ignore.used and (own < stage or (own == stage and not hidden)):
            report.add(unused_ignore(ignore.span, ignore.code, _removal(report.source.text, ignore.span)))


def _last_stage(report: Report) -> int:
    """The last stage that saw the whole text: those after one with an error did not run."""
    return min((_STAGES.get(d.code[:3], 0) for d in report.diagnostics if d.severity is Severity.ERROR), default=2)


def _hides(report: Report, stage: int) -> bool:
    """Whether a declaration has an error in this stage: of what builds on it, the stage has not said all. Items are
    parsed each by itself."""
    if stage == 0:
        return False
    text = report.source.text
    starts = [item.start for item in cut(text)[1]]
    wrong = {bisect_right(starts, d.span.start) - 1 for d in report.diagnostics
             if d.severity is Severity.ERROR and d.span and _STAGES.get(d.code[:3], 0) == stage}  # fmt: skip
    return any(i >= 0 and not _BUILT_ON_BY_NONE.match(text, starts[i]) for i in wrong)


def _ignores(source: Source) -> list[_Ignore]:
    found = []
    for comment in _COMMENTS.finditer(source.text):
        for match in _IGNORE.finditer(comment[0]) if comment[0][0] == "#" else ():
            start = comment.start() + match.start()
            line = _silenced_line(source, start)
            codes = list(_WORD.finditer(match[1] or ""))
            words = [w.strip() for w in (match[1] or "").split(",")]
            named = [_code_of(c[0]) for c in codes]
            if [c[0] for c in codes] != words or not all(named):  # nothing, or something that is no rule
                found.append(_Ignore("", line, Span(start, comment.start() + match.end())))
                continue
            for code, name in zip(codes, named, strict=True):
                whole = len(codes) == 1
                at = comment.start() + match.start(1)
                span = Span(start, comment.start() + match.end()) if whole else Span(at + code.start(), at + code.end())
                found.append(_Ignore(name, line, span))
    return found


def _code_of(word: str) -> str:
    """A code in any case, also one that no rule has, or that of a rule's name. "" for any other word."""
    if _CODE.fullmatch(word.upper()):
        return word.upper()
    from chunkdsl.check.explain import find_rule  # only a name pays for it

    rule = find_rule(word)
    return rule.code if rule else ""


def _silenced_line(source: Source, offset: int) -> int:
    line, column = source.position(offset)
    if source.line_text(line)[: column - 1].partition("#")[0].strip():
        return line
    last = source.line_of(len(source.text))
    while line < last and source.line_text(line).partition("#")[0].strip() == "":
        line += 1
    return line


def _removal(text: str, span: Span) -> Edit:
    """Takes out a whole comment with the blanks before it, or one code with a comma beside it."""
    if text[span.start] == "#":
        start = len(text[: span.start].rstrip(" \t"))
        if text[start - 1 : start] in ("", "\n") and text[span.end : span.end + 1] == "\n":
            return Edit(Span(start, span.end + 1), "")  # the comment has its line to itself
        return Edit(Span(start, span.end), "")
    after = re.compile(r"[ \t]*,[ \t]*").match(text, span.end)
    if after:
        return Edit(Span(span.start, after.end()), "")
    return Edit(Span(re.search(r"[ \t]*,[ \t]*$", text[: span.start]).start(), span.end), "")
