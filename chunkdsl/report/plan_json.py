"""Plans for programs: one JSON array, an object for each op.

Keys: op, plan (the form of plan/dump.py, for one call), choices (where, key, value, why, runner_up, margin), summary
(the fields of plan/summary.py; pairs by name become objects), predicted (the cost model's totals; a string that
says why where it has none). Sizes are bytes and elements, times microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType

from chunkdsl.cost.predict import Prediction
from chunkdsl.plan.dump import dump
from chunkdsl.plan.plan import Plan
from chunkdsl.plan.schedule import OpSchedule
from chunkdsl.plan.summary import Summary
from chunkdsl.report.timeline_summary import facts as totals

PAIRS = ("dims", "bounds", "programs", "stages")


def render(
    plans: Sequence[tuple[OpSchedule, Plan, Summary]],
    predictions: Mapping[str, Prediction | str] = MappingProxyType({}),
) -> str:
    """One op a block, one task a line."""
    return "[" + ",".join(_op(*p, predictions.get(p[0].name)) for p in plans) + "\n]\n"


def _op(op: OpSchedule, plan: Plan, summary: Summary, predicted: Prediction | str | None) -> str:
    facts = asdict(summary)
    facts |= {k: dict(facts[k]) for k in PAIRS if k in facts}
    facts["started"] = [{**s, **{k: dict(s[k]) for k in PAIRS if k in s}} for s in facts["started"]]
    facts["memory"] = [{**asdict(m), "bytes": m.bytes} for m in summary.memory]
    parts = {
        "op": json.dumps(op.name),
        "choices": json.dumps([asdict(c) for c in op.choices]),
        "summary": json.dumps(facts),
        "predicted": json.dumps(totals(predicted) if isinstance(predicted, Prediction) else predicted),
        "plan": dump(plan).rstrip("\n"),
    }
    return "\n{" + ",\n".join(f'"{key}": {text}' for key, text in parts.items()) + "}"
