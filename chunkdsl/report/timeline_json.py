"""A prediction in Chrome's trace event format: an object with `traceEvents`, for Perfetto and chrome://tracing.

A rank is a process and each row of its lanes a thread, as in the drawing; signals between lanes are flow events.
Format: "Trace Event Format", Google, 2016: `ts`, `dur` in microseconds, `ph` X complete, M metadata, s and f flow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from chunkdsl.cost.predict import Prediction
from chunkdsl.report.timeline_drawing import label, signal_texts, tracks
from chunkdsl.report.timeline_summary import facts


def render(predictions: Sequence[Prediction], generator: str) -> str:
    """One line for each event. The ops of a file follow one another as processes of their own."""
    events: list[dict] = []
    for number, p in enumerate(predictions):
        events += _events(p, number * max(q.plan.world for q in predictions), number * 1_000_000)
    lines = ",\n".join(json.dumps(e, sort_keys=True) for e in events)
    head = json.dumps({"generator": generator, "ops": [facts(p) for p in predictions]}, sort_keys=True)
    return f'{{"otherData": {head},\n"displayTimeUnit": "ns",\n"traceEvents": [\n{lines}\n]}}\n'


def _events(p: Prediction, first: int, flow: int) -> Iterator[dict]:
    named, places = signal_texts(p.plan), {}
    for rank, lanes in enumerate(tracks(p)):
        pid, tid = first + rank, 0
        yield _meta("process_name", pid, 0, f"{p.op.name}: rank {rank}")
        yield {"name": "process_sort_index", "ph": "M", "pid": pid, "tid": 0, "args": {"sort_index": pid}}
        for track in lanes.values():
            for row in range(track.rows):
                more = f" ({row + 1})" if track.rows > 1 else ""
                yield _meta("thread_name", pid, tid + row, f"{track.name}{more}")
            for bar in track.bars:
                task, span = p.plan.tasks[bar.task], p.spans[bar.task]
                places[bar.task] = pid, tid + bar.row
                args = {
                    "line": task.line,
                    "count": task.count,
                    "bytes": span.bytes,
                    "source": bar.source,
                    "exposed_us": _us(span.start - p.stood_still(bar.task)),
                    "waits": [named[s] for s in task.waits],
                    "signals": [named[s] for s in task.signals],
                }
                yield {
                    "name": label(task), "cat": task.kind, "ph": "X", "pid": pid, "tid": tid + bar.row,
                    "ts": _us(bar.start), "dur": _us(bar.end - bar.start), "args": args,
                }  # fmt: skip
            tid += track.rows
    yield from _flows(p, places, flow)


def _flows(p: Prediction, places: dict[int, tuple[int, int]], first: int) -> Iterator[dict]:
    """From the last task that gives a signal to the first that waits for it, where they are not in one row."""
    gives: dict[int, int] = {}
    for i, task in enumerate(p.plan.tasks):
        for s in task.signals:
            gives[s] = i if s not in gives or p.spans[i].end > p.spans[gives[s]].end else gives[s]
    drawn: set[int] = set()
    for i, task in enumerate(p.plan.tasks):
        for s in task.waits:
            if s not in gives or s in drawn or places[gives[s]] == places[i]:
                continue
            drawn.add(s)
            flow = {"name": p.plan.signals[s].flags, "cat": "signal", "id": first + s}
            pid, tid = places[gives[s]]
            yield {**flow, "ph": "s", "pid": pid, "tid": tid, "ts": _us(p.spans[gives[s]].end)}
            pid, tid = places[i]
            yield {**flow, "ph": "f", "bp": "e", "pid": pid, "tid": tid, "ts": _us(p.spans[i].start)}


def _meta(what: str, pid: int, tid: int, name: str) -> dict:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _us(value: float) -> float:
    return round(value, 3)
