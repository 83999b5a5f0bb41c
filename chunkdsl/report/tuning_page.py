"""What tuning tried as one HTML page or one SVG image: for each op a row a setting, the best first, with a dot for each
size where its time stands against the library's. Places everything; templates/timeline/tuned.* print it.
"""

from __future__ import annotations

from collections.abc import Sequence

from chunkdsl.ir.meshes import World, world_text
from chunkdsl.render.environment import page_environment
from chunkdsl.tune.evidence import Setting, Tuned
from chunkdsl.tune.progress import setting_text, sizes_text
from chunkdsl.tune.scores import NEVER, compared_sizes, score, table
from chunkdsl.tune.search import Candidates

KINDS = (".html", ".svg")
LEFT, WIDTH, ROW, TOP = 560, 560, 18, 64  # pixels: text beside the axis, the axis, a row, what stands above
SIZES = 8  # that have a colour of their own in the style sheet


def render(path: str, found: Sequence[Candidates], tuned: Tuned, world: World, generator: str) -> str:
    """The page or image that the ending of the path asks for; nothing else is needed to look at it."""
    template = "tuned.svg.jinja" if path.endswith(".svg") else "tuned.html.jinja"
    ops = [op for space in found if (op := _op(space, tuned, world))]
    top = 0.0
    for op in ops:
        op["y"], top = top, top + op["height"]
    title = f"{world_text(world)} x {tuned.origin.gpu}"
    versions = ", ".join(f"{name} {version}" for name, version in tuned.origin.versions)
    return page_environment().get_template(template).render(
        ops=ops, generator=generator.replace("--", "- -"), title=title, versions=versions, height=top or 40.0,
        width=LEFT + WIDTH + 80,
    )  # fmt: skip


def _op(space: Candidates, tuned: Tuned, world: World) -> dict | None:
    """None if nothing of it was measured."""
    known = table(tuned, space.name, world)
    if not known:
        return None
    calls = tuple(dict.fromkeys(sizes for results in known.values() for sizes in results))
    compared = compared_sizes(known)
    order = sorted(known, key=lambda setting: score(known[setting], compared))
    ratios = [r.ratio for results in known.values() for r in results.values() if r.us]
    low, high = min([0.9, *ratios]) * 0.98, max([1.1, *ratios]) * 1.02

    def place(ratio: float) -> float:
        return round(LEFT + WIDTH * (ratio - low) / (high - low), 1)

    rows = []
    for i, setting in enumerate(order):
        dots = [(place(r.ratio), calls.index(sizes) % SIZES, _told(r.ratio, sizes))
                for sizes, r in known[setting].items() if r.us]  # fmt: skip
        failed = next((r.failed for r in known[setting].values() if r.failed), "")
        rows.append((TOP + ROW * i, _name(setting, space, score(known[setting], compared) == NEVER), dots, failed[:90]))
    step = next(s for s in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 1000) if (high - low) / s <= 10)
    marks = [round(step * n, 2) for n in range(int(low / step) + 1, int(high / step) + 1)]
    return {
        "name": space.name, "rows": rows, "height": TOP + ROW * len(rows) + 28, "one": place(1.0),
        "marks": [(place(m), f"{m:g}") for m in marks],
        "legend": [(i % SIZES, sizes_text(sizes)) for i, sizes in enumerate(calls)],
    }  # fmt: skip


def _name(setting: Setting, space: Candidates, incomplete: bool) -> str:
    text = setting_text(setting) + (" (untuned)" if setting == space.base else "")
    return f"{text[:92]} (not at all sizes)" if incomplete else text[:110]


def _told(ratio: float, sizes) -> str:
    return f"{sizes_text(sizes)}: {ratio:.3f} of the library's time"
