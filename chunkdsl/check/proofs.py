"""Verdicts of the proof to findings: CD3 and CD4 with their counterexamples, CD606 for sizes that cannot run fused.

Nothing is proven here. Findings that differ in the world size alone are one, for the smallest that fails.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from chunkdsl.check.plans import line_span
from chunkdsl.check.routes import explain_breach
from chunkdsl.check.targets import world_size_not_served
from chunkdsl.diagnostics import Diagnostic, Severity
from chunkdsl.ir.meshes import World, in_order, world_text
from chunkdsl.source import Source

if TYPE_CHECKING:
    from chunkdsl.check.worlds import Verdict
    from chunkdsl.plan.schedule import Schedule


def explain_verdicts(
    verdicts: Sequence[Verdict], schedule: Schedule, source: Source, wanted: Container[World]
) -> Iterator[Diagnostic]:
    """Findings for what was refuted or is not served. Errors for the `wanted` world sizes, notes for the others."""
    lines = {op.name: op.line for op in schedule.ops}
    groups: dict[tuple, list[tuple[Verdict, int]]] = {}
    for v in verdicts:
        for i, r in enumerate(v.refutations):
            groups.setdefault((v.op, r.code, v.world in wanted), []).append((v, i))
        if v.note and not v.refutations:
            groups.setdefault((v.op, "note", v.world in wanted), []).append((v, -1))
    for (op, _, is_wanted), found in groups.items():
        first, index = found[0]
        worlds = in_order(v.world for v, _ in found)
        if index < 0:
            diagnostic = world_size_not_served(op, worlds, first.note, line_span(source, lines[op]))
        else:
            diagnostic = explain_breach(first.refutations[index], source)
            diagnostic = replace(diagnostic, message=f"{diagnostic.message} ({op} on {ranks(worlds)})")
        yield diagnostic if is_wanted else replace(diagnostic, severity=Severity.NOTE)


def proven_sizes(verdicts: Sequence[Verdict]) -> tuple[World, ...]:
    """World sizes for which every op is proven, ascending."""
    failed = {v.world for v in verdicts if not v.proven}
    return tuple(in_order({v.world for v in verdicts} - failed))


def ranks(worlds: Sequence[World]) -> str:
    """`3 ranks`, `3, 5 and 6 ranks`, `2x3 ranks`."""
    *head, last = map(world_text, worlds)
    return f"{', '.join(head)} and {last} ranks" if head else f"{last} rank{'s' * (worlds[0] != 1)}"
