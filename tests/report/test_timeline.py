"""What `chunkdsl timeline` draws: every task, its signals, totals equal to the model's, one file without others."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from chunkdsl.pipeline import timeline
from chunkdsl.report import timeline_json
from chunkdsl.report.timeline_drawing import hover, signal_texts, ticks, tracks
from chunkdsl.report.timeline_page import render_image, render_page
from chunkdsl.report.timeline_summary import facts, us_text

ROOT = Path(__file__).parent.parent.parent
SVG = "{http://www.w3.org/2000/svg}"
CASES = [("tp_mlp", 2, 4096), ("tp_mlp", 8, 2048), ("gemm_ar", 4, 1000), ("tp_mlp_swiglu", 2, 5)]


def predictions(stem, world, rows):
    checked, found = timeline(str(ROOT / "specs" / f"{stem}.chunk"), world, "h200", {"M": rows})
    assert not checked.report.failed
    return found


def bars(root):
    return [r for r in root.iter(f"{SVG}rect") if r.get("data-task") is not None]


@pytest.mark.parametrize(("stem", "world", "rows"), CASES)
def test_an_image_has_every_task_with_its_place_and_text(stem, world, rows):
    (p,) = predictions(stem, world, rows)
    root = ElementTree.fromstring(render_image([p], "generator"))
    drawn = {int(b.get("data-task")): b for b in bars(root)}
    assert len(bars(root)) == len(drawn) == len(p.plan.tasks)
    named = signal_texts(p.plan)
    for i, (task, span) in enumerate(zip(p.plan.tasks, p.spans, strict=True)):
        start, width = (float(drawn[i].get(key).removesuffix("%")) for key in ("x", "width"))
        assert start == pytest.approx(100 * span.start / p.total, abs=1e-3)
        assert width == pytest.approx(100 * (span.end - span.start) / p.total, abs=1e-3)
        text = drawn[i].find(f"{SVG}title").text
        assert text == hover(p, i, named) and f"line {task.line} of" in text
        assert all(f"waits for {named[s]}" in text for s in task.waits[:8])
        assert all(f"signals {named[s]}" in text for s in task.signals[:8])
        assert drawn[i].get("data-signals") == " ".join(map(str, task.signals))


@pytest.mark.parametrize(("stem", "world", "rows"), CASES)
def test_bars_of_a_row_do_not_overlap(stem, world, rows):
    (p,) = predictions(stem, world, rows)
    for lanes in tracks(p):
        for track in lanes.values():
            until = {}
            for bar in sorted(track.bars, key=lambda b: (b.row, b.start, b.end)):
                assert bar.start >= until.get(bar.row, 0.0) - 1e-6
                until[bar.row] = bar.end
            assert {w.task for w in track.waits} <= {b.task for b in track.bars}


def test_exposed_communication_is_marked_where_it_is():
    (p,) = predictions("tp_mlp", 8, 2048)
    waits = [w for lanes in tracks(p) for track in lanes.values() for w in track.waits]
    assert waits and all(0 <= w.start < w.end <= p.total for w in waits)
    root = ElementTree.fromstring(render_image([p], "generator"))
    drawn = [r for r in root.iter(f"{SVG}rect") if r.get("class") == "exposed"]
    assert len(drawn) == len(waits) and all("exposed communication" in r.find(f"{SVG}title").text for r in drawn)


def test_tiles_have_the_colour_of_the_rank_whose_rows_they_compute():
    (p,) = predictions("tp_mlp", 4, 4096)
    for rank, lanes in enumerate(tracks(p)):
        first = sorted((b for b in lanes["compute"].bars if "mlp_h" in b.text), key=lambda b: (b.start, b.task))
        assert first[0].source == rank and {b.source for b in first} == {0, 1, 2, 3}
        assert {b.source for b in lanes["copy engine"].bars} == {rank}, "it pushes its own"


@pytest.mark.parametrize("world", [2, 8])
def test_a_page_holds_everything_and_says_the_totals(world):
    found = predictions("tp_mlp", world, 4096)
    page, p = render_page(found, "made by a <test>"), found[0]
    assert "made by a &lt;test&gt;" in page
    loaded = re.findall(r"(?:\bsrc|\bhref)\s*=|@import|\burl\((?!#)|https?://(?!www\.w3\.org)", page)
    assert loaded == []
    assert f"<b>{us_text(p.total)}</b>" in page and f'<b class="good">{p.speedup:.2f}x</b>' in page
    assert f"{100 * p.hidden:.0f}%" in page and us_text(p.ideal) in page and us_text(p.baseline) in page
    assert "prefers-color-scheme: dark" in page
    charts = re.findall(r"<svg class=\"drawing.*?</svg>", page, re.DOTALL)
    trees = [ElementTree.fromstring(c.replace("<svg", f'<svg xmlns="{SVG[1:-1]}"', 1)) for c in charts]
    assert sum(len(bars(tree)) for tree in trees) == len(p.plan.tasks)
    assert [name for name in (f"rank {r}" for r in range(world)) if f">{name}</text>" not in page] == []
    assert page.count("<td>") == world * 6 and ">communication</th>" in page  # time per rank and lane


def test_text_of_a_spec_cannot_break_out():
    found = predictions("ag_gemm", 2, 300)
    evil = replace(found[0], plan=replace(found[0].plan, spec="</title><script>alert(1)</script>"))
    assert "<script>alert" not in render_page([evil], "x") and "<script>alert" not in render_image([evil], "x")


@pytest.mark.parametrize(("stem", "world", "rows"), CASES)
def test_events_are_a_trace(stem, world, rows):
    (p,) = predictions(stem, world, rows)
    trace = json.loads(timeline_json.render([p], "generator"))
    assert trace["otherData"]["ops"] == [json.loads(json.dumps(facts(p)))]
    events = trace["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == len(p.plan.tasks) and {e["pid"] for e in slices} == set(range(1, world + 1))
    assert max(e["ts"] + e["dur"] for e in slices) == pytest.approx(p.total, abs=0.01)
    named = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert named == {f"{p.op.name}: rank {rank}" for rank in range(world)}


def test_drawings_do_not_depend_on_the_run():
    first, second = predictions("gemm_rs", 4, 3000), predictions("gemm_rs", 4, 3000)
    for draw in (render_page, render_image, timeline_json.render):
        assert draw(first, "g") == draw(second, "g")


def test_ticks_are_few_and_round():
    for total in (3.0, 48.0, 867.0, 2243.0, 9.9e6):
        found = list(ticks(total))
        assert found[0] == 0 and found[-1] <= total and 6 <= len(found) <= 17
