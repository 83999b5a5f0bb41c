"""Findings as SARIF 2.1.0, which code-scanning services and editors read.

Format: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from urllib.parse import quote

import chunkdsl
from chunkdsl.check.explain import load_rules
from chunkdsl.diagnostics import Diagnostic, Report
from chunkdsl.source import Source, Span

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render(reports: Sequence[Report]) -> str:
    """One run with the findings of all reports in order, and the rules that they name."""
    found = [(d, r.source) for r in reports for d in r.diagnostics]
    codes = sorted({d.code for d, _ in found})
    driver = {"name": "chunkdsl", "version": chunkdsl.__version__, "rules": _rules(codes)}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(d, source, codes.index(d.code)) for d, source in found],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rules(codes: Iterable[str]) -> list[dict]:
    rules = load_rules() if codes else {}
    return [
        {
            "id": code,
            "name": rules[code].name,
            "shortDescription": {"text": rules[code].text.partition("\n\n")[0].replace("\n", " ")},
            "help": {"text": f"{rules[code].text}\n\nFails:\n\n{rules[code].fails}\nMended:\n\n{rules[code].mended}"},
            "defaultConfiguration": {"level": rules[code].severity.value},
        }
        for code in codes
    ]


def _result(d: Diagnostic, source: Source, index: int) -> dict:
    result = {
        "ruleId": d.code,
        "ruleIndex": index,
        "level": d.severity.value,
        "message": {"text": "; ".join(part for part in dict.fromkeys((d.message, d.label, d.help)) if part)},
        "locations": [{"physicalLocation": _place(d.span, source)}],
    }
    if d.labels:
        result["relatedLocations"] = [
            {"id": i, "message": {"text": x.message}, "physicalLocation": _place(x.span, source)}
            for i, x in enumerate(d.labels)
        ]
    if d.fixes:
        result["fixes"] = [
            {
                "description": {"text": f.title},
                "artifactChanges": [
                    {
                        "artifactLocation": {"uri": quote(source.path)},
                        "replacements": [
                            {"deletedRegion": _region(e.span, source), "insertedContent": {"text": e.text}}
                            for e in f.edits
                        ],
                    }
                ],
            }
            for f in d.fixes
        ]
    return result


def _place(span: Span | None, source: Source) -> dict:
    place: dict = {"artifactLocation": {"uri": quote(source.path)}}
    if span is not None:
        place["region"] = _region(span, source)
    return place


def _region(span: Span, source: Source) -> dict:
    line, column = source.position(span.start)
    last, end = source.position(span.end)
    return {"startLine": line, "startColumn": column, "endLine": last, "endColumn": end}
