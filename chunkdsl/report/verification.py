"""The table of `chunkdsl verify`, for people and for machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chunkdsl.verify.simulate import Row

LONGEST = 24  # lines of one failure


def render_table(path: str, rows: Sequence[Row], seconds: float) -> str:
    """One line for each check; what failed or was not run is told below."""
    head = ("op", "check", "where", "result", "seconds")
    body = [(r.op, r.check, r.where, result_of(r), spent(r.seconds)) for r in rows]
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in [head, *body]]
    lines.insert(1, "  ".join("-" * w for w in widths))
    failed = [r for r in rows if not r.passed]
    left_out = [r for r in rows if not r.ran]
    told = [f"\n{tell(r)}" for r in (*failed, *left_out)]
    not_run = f", {len(left_out)} not run" if left_out else ""
    held = len(rows) - len(failed) - len(left_out)
    verdict = f"{path}: {held} of {len(rows)} checks hold{not_run} ({seconds:.0f} s)"
    return "\n".join([*lines, *told, "", verdict])


def result_of(row: Row) -> str:
    return "FAILED" if not row.passed else "ok" if row.ran else "not run"


def spent(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds else ""


def tell(row: Row) -> str:
    """A failure in full, cut where nobody would read on."""
    lines = row.detail.splitlines() or ["no detail"]
    if len(lines) > LONGEST:
        lines = [*lines[:LONGEST], f"... {len(lines) - LONGEST} more lines (--json has them)"]
    again = [f"    again: {row.again}"] if row.again else []
    return "\n".join([f"{row.op}, {row.check}, {row.where}:", *(f"    {line}" for line in lines), *again])


def render_json(path: str, rows: Sequence[Row]) -> str:
    """{path, passed, checks: [{op, check, where, passed, detail, seconds, again, ran}]}; `again` repeats what failed,
    `ran` is false for a check that was left out, which `detail` explains."""
    checks = [asdict(r) | {"seconds": round(r.seconds, 2), "again": "" if r.passed else r.again} for r in rows]
    return json.dumps({"path": path, "passed": all(r.passed for r in rows), "checks": checks}, indent=2)
