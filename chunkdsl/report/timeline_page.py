"""A prediction as one HTML page or one SVG image: places of all shapes, then the templates of templates/timeline.

Along the time axis shapes are placed in per cent, so that a page can stretch a drawing without distorting its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chunkdsl.cost.predict import Prediction
from chunkdsl.render.environment import page_environment
from chunkdsl.report.plan_prediction import MOST_RANKS, lanes
from chunkdsl.report.timeline_drawing import Track, ticks, tracks
from chunkdsl.report.timeline_summary import assumptions, cards, comparisons, us_text

AXIS, GAP, LANE_GAP, LABELS = 26, 14, 3, 138  # pixels: time axis, between ranks, between lanes, width of the labels
TALLEST = 96  # pixels of a lane with many rows
COLOURS = 8  # ranks that have a colour of their own in the style sheet


@dataclass(frozen=True)
class Shape:
    """`x`, `w` per cent of the call, `y`, `h` pixels; `style` are classes."""

    x: str
    w: str
    y: float
    h: float
    style: str
    text: str
    colour: str = ""
    task: int = -1
    waits: str = ""
    signals: str = ""


@dataclass(frozen=True)
class Label:
    y: float
    text: str
    style: str


@dataclass(frozen=True)
class Drawing:
    """One op. `number` keeps the names of its patterns apart from those of other drawings in a page."""

    number: int
    height: float
    labels: tuple[Label, ...]
    bands: tuple[tuple[float, float], ...]
    ticks: tuple[tuple[str, str], ...]
    shapes: tuple[Shape, ...]
    waits: tuple[Shape, ...]
    legend: tuple[tuple[str, str], ...]
    legend_title: str
    outer: str


def render_page(predictions: Sequence[Prediction], generator: str) -> str:
    """HTML with everything inside: no other file, no network."""
    return _render("page.html.jinja", predictions, generator)


def render_image(predictions: Sequence[Prediction], generator: str) -> str:
    """SVG, ops below one another, with the totals above each."""
    return _render("image.svg.jinja", predictions, generator)


def _render(template: str, predictions: Sequence[Prediction], generator: str) -> str:
    views = [view(p, number) for number, p in enumerate(predictions)]
    return page_environment().get_template(template).render(
        ops=views, generator=generator, spec=predictions[0].plan.spec, label_width=LABELS
    )


def view(p: Prediction, number: int) -> dict:
    """What the templates print of one op."""
    bars = comparisons(p)
    longest = max(total for _, total, _ in bars) or 1.0
    stacks = []
    for title, total, parts in bars:
        at, drawn = 0.0, []
        for kind, text, us in parts:
            drawn.append((kind, text, percent(at, longest), percent(us, longest)))
            at += us
        stacks.append((title, us_text(total), drawn))
    return {
        "name": p.op.name,
        "drawing": draw(p, number),
        "cards": cards(p),
        "stacks": stacks,
        "assumptions": assumptions(p),
        "title": p.machine.gpu.title,
        "lanes": lanes(p),
        "left_out": f"; the first {MOST_RANKS} ranks of {p.plan.world}" if p.plan.world > MOST_RANKS else "",
    }


def draw(p: Prediction, number: int) -> Drawing:
    labels, bands, shapes, waits = [], [], [], []
    y, total = float(AXIS), p.total or 1.0
    for rank, found in enumerate(tracks(p)):
        top = y
        for track in found.values():
            each = row_height(track)
            high = track.rows * each
            labels.append(Label(y + high / 2, track.name, "lane"))
            for bar in track.bars:
                colour, style = _colour(bar.source, p.plan.world), f"bar {bar.kind}"
                numbers = (" ".join(map(str, found)) for found in (bar.waits, bar.signals))
                place = percent(bar.start, total), percent(bar.end - bar.start, total)
                at = round(y + bar.row * each + 0.5, 2), round(each - 1, 2)
                shapes.append(Shape(*place, *at, style, bar.text, colour, bar.task, *numbers))
            for w in track.waits:
                span = percent(w.start, total), percent(w.end - w.start, total)
                still = max(4.0, round(high * w.part, 1)) if w.row is None else each - 1
                at = y + high - still if w.row is None else round(y + w.row * each + 0.5, 2)
                waits.append(Shape(*span, at, still, "exposed", w.text))
            y += high + LANE_GAP
        labels.append(Label(top - 3, rank_text(p, rank), "rank"))
        bands.append((top - 2, y - top + 1))
        y += GAP
    return Drawing(
        number,
        y,
        tuple(labels),
        tuple(bands),
        tuple((percent(t, total), us_text(t) if t else "0") for t in ticks(p.total)),
        tuple(shapes),
        tuple(waits),
        tuple((_colour(r, p.plan.world), f"rank {r}") for r in range(p.plan.world)),
        "Words of" if p.op.exchange else "Rows of",
        p.machine.outer.name if p.machine.outer else "",
    )


def rank_text(p: Prediction, rank: int) -> str:
    """Of an op over two axes with its indices on both."""
    at = divmod(rank, p.machine.inner) if p.machine.outer else ()
    return f"rank {rank}" + (f" ({', '.join(map(str, at))})" if at else "")


def row_height(track: Track) -> float:
    """Pixels of each row of a lane: less where a lane has many."""
    return max(3.0, min(11.0, TALLEST / track.rows))


def percent(us: float, total: float) -> str:
    return f"{100 * us / total:.4f}"


def _colour(source: int | None, world: int) -> str:
    """A name in the style sheet, or a hue of its own where the ranks are many."""
    if source is None:
        return ""
    return f"var(--r{source})" if world <= COLOURS else f"hsl({360 * source // world} 55% 55%)"
