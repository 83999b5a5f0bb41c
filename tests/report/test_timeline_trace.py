"""The trace as Perfetto and chrome://tracing read it: every rule of the format that either of them enforces by dropping
what breaks it. tests/bench/open_trace.py loads a trace into both."""

import copy
import json
import math
from functools import cache
from pathlib import Path

import pytest

from chunkdsl.pipeline import timeline
from chunkdsl.report import timeline_json

ROOT = Path(__file__).parent.parent.parent
KEYS = {
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"},
    "M": {"name", "ph", "pid", "tid", "args"},
    "s": {"name", "cat", "ph", "ts", "pid", "tid", "id"},
    "f": {"name", "cat", "ph", "ts", "pid", "tid", "id", "bp"},
}
META = {"process_name": "name", "thread_name": "name", "process_sort_index": "sort_index",
        "thread_sort_index": "sort_index"}  # fmt: skip
CASES = [("tp_mlp", 8, {"M": 2048}), ("decode_all_reduce", 4, {"T": 16}), ("two_tier_gather", None, {"M": 4096}),
         ("gemm_rs", 2, {"M": 5})]  # fmt: skip


@cache
def text_of(stem, world, rows):
    checked, found = timeline(str(ROOT / "specs" / f"{stem}.chunk"), world, "h200", dict(rows))
    assert not checked.report.failed
    return timeline_json.render(found, "generator")


def trace_of(stem, world, dims):
    return json.loads(text_of(stem, world, tuple(dims.items())), parse_constant=lambda word: pytest.fail(word))


def nanoseconds(value):
    """None for what is no whole number of nanoseconds from 0 on."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        return None
    whole = round(value * 1000)
    return whole if abs(whole - value * 1000) < 1e-6 * max(1, whole) else None


def faults(trace):
    """Names of rules that a trace breaks."""
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        return ["an object with traceEvents"]
    if trace.get("displayTimeUnit") not in ("ns", "ms"):
        return ["displayTimeUnit"]
    events, found = trace["traceEvents"], set()
    for e in events:
        if KEYS.get(e.get("ph")) != set(e):
            return ["keys"]
        if any(type(e[key]) is not int or e[key] < 1 for key in ("pid", "tid")) or not e["name"]:
            found.add("numbers")
        if any(nanoseconds(e[key]) is None for key in ("ts", "dur") if key in e):
            return ["times"]
    found |= meta_faults([e for e in events if e["ph"] == "M"], [e for e in events if e["ph"] == "X"])
    found |= slice_faults([e for e in events if e["ph"] == "X"])
    return sorted(found | flow_faults(events))


def meta_faults(metas, slices):
    found = set()
    for e in metas:
        if META.get(e["name"]) is None or list(e["args"]) != [META[e["name"]]]:
            found.add("metadata")
    named = {name: [(e["pid"], e["tid"]) for e in metas if e["name"] == name] for name in META}
    threads = named["thread_name"]
    if len(set(threads)) < len(threads) or {(e["pid"], e["tid"]) for e in slices} - set(threads):
        found.add("every thread is named once")
    if len({tid for _, tid in threads}) < len(threads):
        found.add("no two threads share a number")
    processes = [pid for pid, _ in named["process_name"]]
    if len(set(processes)) < len(processes) or {e["pid"] for e in slices} != set(processes):
        found.add("every process is named once")
    return found


def slice_faults(slices):
    until, found = {}, set()
    for e in sorted(slices, key=lambda e: (nanoseconds(e["ts"]), nanoseconds(e["dur"]))):
        place, start = (e["pid"], e["tid"]), nanoseconds(e["ts"])
        if start < until.get(place, 0):
            found.add("slices of a thread do not overlap")
        until[place] = max(until.get(place, 0), start + nanoseconds(e["dur"]))
    return found


def flow_faults(events):
    spans, found = {}, set()
    for e in events:
        if e["ph"] == "X":
            start = nanoseconds(e["ts"])
            spans.setdefault((e["pid"], e["tid"]), []).append((start, start + max(1, nanoseconds(e["dur"]))))
    ends = {ph: [e for e in events if e["ph"] == ph] for ph in "sf"}
    by_id = {ph: {e["id"]: e for e in ends[ph]} for ph in "sf"}
    if set(by_id["s"]) != set(by_id["f"]) or any(len(by_id[ph]) < len(ends[ph]) for ph in "sf"):
        return {"every flow has two ends"}
    for number, first in by_id["s"].items():
        last = by_id["f"][number]
        if (first["name"], first["cat"]) != (last["name"], last["cat"]) or last["bp"] != "e":
            found.add("both ends agree")
        if nanoseconds(first["ts"]) > nanoseconds(last["ts"]):
            found.add("time runs forward")
        for e in (first, last):
            at = nanoseconds(e["ts"])
            if not any(a <= at < b for a, b in spans.get((e["pid"], e["tid"]), ())):
                found.add("a flow begins and ends in a slice")
    return found


@pytest.mark.parametrize(("stem", "world", "dims"), CASES)
def test_a_trace_keeps_every_rule(stem, world, dims):
    trace = trace_of(stem, world, dims)
    assert faults(trace) == []
    phases = [e["ph"] for e in trace["traceEvents"]]
    tasks = sum(op["tasks"] for op in trace["otherData"]["ops"])
    assert phases.count("X") == tasks and phases.count("s") == phases.count("f") > 0


def some(trace, ph, skip=0):
    return [e for e in trace["traceEvents"] if e["ph"] == ph][skip]


def busy(trace):
    """A slice that has another one directly behind it in its thread."""
    ends = {(e["pid"], e["tid"], round(1000 * (e["ts"] + e["dur"]))): e for e in trace["traceEvents"] if e["ph"] == "X"}
    return next(e for e in trace["traceEvents"] if e["ph"] == "X" and e["dur"] > 1
                and (e["pid"], e["tid"], round(1000 * e["ts"])) in ends)  # fmt: skip


BREAKS = {
    "an object with traceEvents": lambda t: t.update(traceEvents={}),
    "displayTimeUnit": lambda t: t.update(displayTimeUnit="us"),
    "keys": lambda t: some(t, "X").pop("dur"),
    "numbers": lambda t: some(t, "X").update(tid=0),
    "times": lambda t: some(t, "X").update(ts=0.0004),
    "metadata": lambda t: some(t, "M").update(args={"label": "x"}),
    "every thread is named once": lambda t: t["traceEvents"].append(copy.copy(some(t, "M", 2))),
    "no two threads share a number": lambda t: t["traceEvents"].append({**some(t, "M", 2), "pid": 2}),
    "every process is named once": lambda t: t["traceEvents"].remove(some(t, "M")),
    "slices of a thread do not overlap": lambda t: (lambda e: e.update(ts=round(e["ts"] - 0.001, 3)))(busy(t)),
    "every flow has two ends": lambda t: t["traceEvents"].remove(some(t, "f")),
    "both ends agree": lambda t: some(t, "f").update(cat="other"),
    "time runs forward": lambda t: some(t, "s").update(ts=1e6),
    "a flow begins and ends in a slice": lambda t: some(t, "s").update(tid=99),
}


@pytest.mark.parametrize("rule", BREAKS)
def test_each_rule_is_seen_broken(rule):
    trace = copy.deepcopy(trace_of("gemm_rs", 2, {"M": 700}))
    assert faults(trace) == []
    BREAKS[rule](trace)
    assert rule in faults(trace)
