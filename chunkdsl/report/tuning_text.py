"""What tuning has found, as a person reads it on a terminal: a table for each op. Takes medians, decides nothing."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from chunkdsl.ir.meshes import World, world_text
from chunkdsl.plan.summary import gate_text
from chunkdsl.tune.evidence import Result, Sizes, Tuned
from chunkdsl.tune.progress import setting_text
from chunkdsl.tune.search import ranking, standing_of, table
from chunkdsl.tune.settle import gate_of
from chunkdsl.tune.space import Space


def render(found: Sequence[Space], tuned: Tuned, world: World, calls: Sequence[Sizes]) -> str:
    """All ops; an op that was not measured yet says so."""
    return "".join("\n".join(_op(space, tuned, world, calls)) + "\n" for space in found)


def _op(space: Space, tuned: Tuned, world: World, calls: Sequence[Sizes]) -> Iterator[str]:
    name, gpu = space.op.name, tuned.origin.gpu
    done = standing_of(space, tuned, world, calls).done
    yield f"{name} on {world_text(world)} x {gpu}: {done} of {space.count} settings"
    order = ranking(tuned, name, world)
    if not order:
        yield "  none ran at all sizes" if done else "  not measured yet: run the same command again"
        return
    known, best = table(tuned, name, world), order[0][1]
    rows = [("", "library us", "untuned us", "tuned us", "over untuned")]
    for sizes in sorted(known[best]):
        plain, tuned_here = known.get(space.base, {}).get(sizes), known[best][sizes]
        times = _median(tuned_here.library), _time(plain), _time(tuned_here)
        gain = f"{_median(plain.us) / _median(tuned_here.us):.3f}" if plain and plain.us else "-"
        rows.append((", ".join(f"{n} = {v}" for n, v in sizes), f"{times[0]:.1f}", *times[1:], gain))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *times = (c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        yield "  " + "  ".join([first, *times])
    yield f"  best: {setting_text(best)}" + (", which is untuned" if best == space.base else "")
    gate = gate_of(tuned, name, world)
    if gate:
        yield f"  fused: {gate_text(gate)}"


def _median(times: tuple[float, ...]) -> float:
    return statistics.median(times)


def _time(result: Result | None) -> str:
    return f"{_median(result.us):.1f}" if result and result.us else "failed" if result else "-"
