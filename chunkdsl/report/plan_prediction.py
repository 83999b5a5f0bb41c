"""What the cost model says of a plan, as lines for a person: totals, and time per rank and lane."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from chunkdsl.cost.lanes import lane_times, place
from chunkdsl.cost.predict import Prediction
from chunkdsl.report.timeline_summary import KINDS, assumptions, us_text

MOST_RANKS = 16  # more have the same to do


def totals(p: Prediction) -> Iterator[tuple[str, str]]:
    """(name, text) of every total."""
    parts: dict[str, float] = {}
    for stage in p.stages:
        parts[stage.kind] = parts.get(stage.kind, 0.0) + stage.us
    stages = " + ".join(f"{KINDS[kind]} {us_text(us)}" for kind, us in parts.items())
    way = "slower" if p.speedup < 1 else "faster"
    yield "call", f"{us_text(p.total)}, on {assumptions(p)}"
    yield "compute alone", us_text(p.compute)
    hidden = f"{100 * p.hidden:.0f} % hidden, {us_text(p.exposed)} exposed"
    yield "communication", f"{us_text(p.communication)} alone; {hidden}"
    yield "ideal", f"{us_text(p.ideal)}, the longer of both; the call reaches {100 * p.ideal / p.total:.0f} % of it"
    yield "stream by stream", f"{us_text(p.baseline)}: {stages}" if stages else us_text(p.baseline)
    yield "speed-up over it", f"{p.speedup:.2f}x ({way})"


def lanes(p: Prediction) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and rows of the table of ranks and lanes: microseconds busy, and in brackets those that the lane stands
    still for communication."""
    found = lane_times(p)
    names = sorted({x.lane for x in found}, key=place)
    rows = []
    for rank, group in groupby(found, key=lambda x: x.rank):
        if rank == MOST_RANKS:
            break
        mine = {x.lane: x for x in group}
        cells = [_cell(mine[n].busy, mine[n].exposed) if n in mine else "" for n in names]
        rows.append((str(rank), us_text(max(x.end for x in mine.values())), *cells))
    return ("rank", "ends at", *names), rows


def _cell(busy: float, exposed: float) -> str:
    return f"{us_text(busy)} ({us_text(exposed)})" if exposed >= 0.05 else us_text(busy)
