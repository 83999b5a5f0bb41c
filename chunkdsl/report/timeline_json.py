"""A prediction in Chrome's trace event format: an object with `traceEvents`, for Perfetto and chrome://tracing.

A rank is a process and each row of its lanes a thread, as in the drawing; signals between lanes are flow events.
Format: "Trace Event Format", Google, 2016: `ts`, `dur` in microseconds, `ph` X complete, M metadata, s and f flow.
Viewers keep whole nanoseconds and Perfetto drops a slice that begins before the one before it in its thread has ended:
starts and ends are rounded, and a duration is what lies between. Numbers of processes and threads begin at 1, as 0 is
the idle thread's there, and no two threads share one. tests/bench/open_trace.py loads a file into both viewers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from chunkdsl.cost.predict import Prediction
from chunkdsl.cost.simulate import Span
from chunkdsl.report.timeline_drawing import label, signal_texts, tracks
from chunkdsl.report.timeline_summary import facts

THREADS = 10_000  # numbers that a process has for its threads


def render(predictions: Sequence[Prediction], generator: str) -> str:
    """One line for each event. The ops of a file follow one another as processes of their own."""
    events: list[dict] = []
    for number, p in enumerate(predictions):
        events += _events(p, number * max(q.plan.world for q in predictions) + 1, number * 1_000_000)
    lines = ",\n".join(json.dumps(e, sort_keys=True) for e in events)
    head = json.dumps({"generator": generator, "ops": [facts(p) for p in predictions]}, sort_keys=True)
    return f'{{"otherData": {head},\n"displayTimeUnit": "ns",\n"traceEvents": [\n{lines}\n]}}\n'


def _events(p: Prediction, first: int, flow: int) -> Iterator[dict]:
    named, places = signal_texts(p.plan), {}
    for rank, lanes in enumerate(tracks(p)):
        pid, tid = first + rank, (first + rank) * THREADS
        yield _meta("process_name", pid, tid, "name", f"{p.op.name}: rank {rank}")
        yield _meta("process_sort_index", pid, tid, "sort_index", pid)
        for track in lanes.values():
            for row in range(track.rows):
                more = f" ({row + 1})" if track.rows > 1 else ""
                yield _meta("thread_name", pid, tid + row, "name", f"{track.name}{more}")
                yield _meta("thread_sort_index", pid, tid + row, "sort_index", tid + row)
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
                    "ts": _us(bar.start), "dur": _us(_us(bar.end) - _us(bar.start)), "args": args,
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
            yield {**flow, "ph": "s", "pid": pid, "tid": tid, "ts": _last(p.spans[gives[s]])}
            pid, tid = places[i]
            yield {**flow, "ph": "f", "bp": "e", "pid": pid, "tid": tid, "ts": _us(p.spans[i].start)}


def _meta(what: str, pid: int, tid: int, key: str, value: str | int) -> dict:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {key: value}}


def _last(span: Span) -> float:
    """The last nanosecond of a task: an arrow that begins where it ends belongs to no slice in chrome://tracing."""
    return max(_us(span.start), _us(_us(span.end) - 0.001))


def _us(value: float) -> float:
    return round(value, 3)
