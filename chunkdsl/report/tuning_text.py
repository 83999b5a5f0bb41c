"""What tuning has found, as a person reads it on a terminal: a table for each op. Takes medians, decides nothing."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from chunkdsl.cost.constants import margin
from chunkdsl.ir.meshes import World, world_text
from chunkdsl.plan.summary import gate_text
from chunkdsl.tune.evidence import Setting, Tuned
from chunkdsl.tune.gates import CAPTURED, EAGER, gate_of
from chunkdsl.tune.progress import setting_text, sizes_text
from chunkdsl.tune.scores import compared_sizes, ranking, table
from chunkdsl.tune.search import Candidates, standing_of


def render(found: Sequence[Candidates], tuned: Tuned, world: World) -> str:
    """All ops; an op that was not measured yet says so."""
    return "".join("\n".join(_op(space, tuned, world)) + "\n" for space in found)


def _op(space: Candidates, tuned: Tuned, world: World) -> Iterator[str]:
    name, gpu = space.name, tuned.origin.gpu
    done = standing_of(space, tuned, world).done
    yield f"{name} on {world_text(world)} x {gpu}: {done} of {space.count} settings"
    order = ranking(tuned, name, world)
    if not order:
        yield "  none ran at all sizes" if done else "  not measured yet: run the same command again"
        return
    known, best = table(tuned, name, world), order[0][1]
    for eager in (False, True) if any(r.eager_us for r in known[best].values()) else (False,):
        yield from _times(known, space.base, best, eager)
    yield f"  best: {setting_text(best)}" + (", which is untuned" if best == space.base else "")
    for sizes in compared_sizes(known):
        ratio, other = min((r[sizes].ratio, setting) for setting, r in known.items() if sizes in r)
        gain = known[best][sizes].ratio / ratio - 1
        if other != best and gain > margin("gain") and ratio < 1:
            yield f"  at {sizes_text(sizes)} {100 * gain:.1f} % faster: {setting_text(other)}"
    for how in (CAPTURED, EAGER):
        if gate := gate_of(tuned, name, world, (how,)):
            yield f"  fused, {how}: {gate_text(gate)}"


def _times(known: dict, base: Setting, best: Setting, eager: bool) -> Iterator[str]:
    """A row for each size of the best setting."""
    rows = [("eager" if eager else "captured", "library us", "untuned us", "tuned us", "over library", "over untuned")]
    for sizes, r in sorted(known[best].items()):
        plain = known.get(base, {}).get(sizes)
        ours, library = (r.eager_us, r.eager_library) if eager else (r.us, r.library)
        first = plain and (plain.eager_us if eager else plain.us)
        if ours:
            over = f"{_median(library) / _median(ours):.3f}", f"{_median(first) / _median(ours):.3f}" if first else "-"
            untuned = f"{_median(first):.1f}" if first else "failed" if plain else "-"
            rows.append((sizes_text(sizes), f"{_median(library):.1f}", untuned, f"{_median(ours):.1f}", *over))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *times = (c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        yield "  " + "  ".join([first, *times])


def _median(times: tuple[float, ...]) -> float:
    return statistics.median(times)

