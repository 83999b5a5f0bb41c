"""Findings for programs: one JSON array, an object for each finding.

Keys: code, name, severity (error, warning, note), message, path, span, label, labels, help, fixes. A place is
{"start": P, "end": P} with P = {"line", "column", "offset"}: line and column count from 1, offset from 0, all in code
points; the end is exclusive. `span` is null if the finding is about the whole file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from chunkdsl.diagnostics import Diagnostic, Report
from chunkdsl.source import Source, Span


def render(reports: Iterable[Report]) -> str:
    """All findings of all reports in order, as ASCII text that ends with a line break."""
    found = [_finding(d, r.source) for r in reports for d in r.diagnostics]
    return json.dumps(found, indent=2) + "\n"


def _finding(d: Diagnostic, source: Source) -> dict:
    return {
        "code": d.code,
        "name": d.name,
        "severity": d.severity.value,
        "message": d.message,
        "path": source.path,
        "span": None if d.span is None else _place(d.span, source),
        "label": d.label,
        "labels": [{"span": _place(x.span, source), "message": x.message} for x in d.labels],
        "help": d.help,
        "fixes": [
            {
                "title": f.title,
                "safe": f.safe,
                "edits": [{"span": _place(e.span, source), "text": e.text} for e in f.edits],
            }
            for f in d.fixes
        ],
    }


def _place(span: Span, source: Source) -> dict:
    return {"start": _point(span.start, source), "end": _point(span.end, source)}


def _point(offset: int, source: Source) -> dict:
    line, column = source.position(offset)
    return {"line": line, "column": column, "offset": offset}
