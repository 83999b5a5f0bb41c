"""From which size on an op is worth running fused, by what was measured: the gate, and the sizes at which one more
measurement would tell more. Functions of the results; measures nothing.

A size is won where a call of the best setting takes no longer than the library's by more than `lost` of
cost/data/choices.toml, every time that it was measured. Calls one by one must have won in CUDA graphs too: a host that
keeps ahead of the device leaves of them what the device takes, and how fast a host is differs from one machine to the
next. The gate is the least measured size of a dim from which on every measured size is won: of all below, also where
some are won and larger ones lost, the library's way is taken, which cannot be slower than itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from chunkdsl.cost.constants import margin
from chunkdsl.ir.meshes import World
from chunkdsl.ir.policy import FuseFrom
from chunkdsl.ir.types import DimRange
from chunkdsl.tune.evidence import Result, Sizes, Tuned
from chunkdsl.tune.scores import ranking

CAPTURED, EAGER = "captured", "eager"  # how calls are made: inside CUDA graphs, one by one
CLOSE = 2  # sizes that are so many times as large as each other have none between them
SMALLEST = 64  # no gate is looked for below


def gate_of(tuned: Tuned, op: str, world: World, how: Iterable[str] = (CAPTURED, EAGER)) -> FuseFrom | None:
    """The gate of calls that are made in these ways; None where nothing ran at all sizes, or none was made so."""
    results = of_best(tuned, op, world)
    ways = [way for way in how if any(way == CAPTURED or r.eager_us for r in results)]
    return _gate(results, tuple(ways)) if ways else None


def of_best(tuned: Tuned, op: str, world: World) -> list[Result]:
    """All that was measured of the best setting, a size as often as it was."""
    order = ranking(tuned, op, world)
    best = order[0][1] if order else None
    return [r for r in tuned.results if (r.op, r.world, r.setting) == (op, world, best)]


def gate_reason(tuned: Tuned, op: str, world: World, how: Iterable[str] = (CAPTURED, EAGER)) -> str:
    """Why the gate of calls that are made in these ways is where it is, for a person."""
    lost = sorted({r.sizes for r in of_best(tuned, op, world) if not won(r, how)})
    where = "; ".join(", ".join(f"{name} = {value}" for name, value in sizes) for sizes in lost)
    return f"tuned: the library is faster for {where}" if lost else "tuned: no slower than the library where measured"


def _gate(results: Sequence[Result], how: tuple[str, ...]) -> FuseFrom:
    names = [name for name, _ in results[0].sizes]
    if not names:
        return FuseFrom(0 if won(results[0], how) else None)
    several = [name for name in names if len({dict(r.sizes)[name] for r in results}) > 1]
    found: list[tuple[int, FuseFrom]] = []
    for name in several or names[:1]:
        least = _least(results, name, how)
        if least is not None:
            found.append((sum(dict(r.sizes)[name] >= least for r in results), FuseFrom(least, name)))
    return max(found, key=lambda f: f[0])[1] if found else FuseFrom(None)


def _least(results: Iterable[Result], name: str, how: tuple[str, ...]) -> int | None:
    """The least size of a dim from which on all is won."""
    at: dict[int, bool] = {}
    for r in results:
        size = dict(r.sizes)[name]
        at[size] = at.get(size, True) and won(r, how)
    least = None
    for size in sorted(at, reverse=True):
        if not at[size]:
            break
        least = size
    return least


def won(result: Result, how: Iterable[str]) -> bool:
    """Whether fused calls are no slower than the library's in CUDA graphs, and in any of these ways that was
    measured."""
    ratios = {CAPTURED: result.ratio, EAGER: result.eager_ratio}
    return all(ratios[way] is None or ratios[way] <= 1 + margin("lost") for way in {CAPTURED, *how})


def next_size(ranges: Mapping[str, DimRange], results: Sequence[Result]) -> Sizes | None:
    """Sizes at which the best setting is measured next, to place its gates more closely: between neighbours of which
    one is won and one lost, or below the least if that is won. None where gates are placed, or go by two dims."""
    several = [name for name in ranges if len({dict(r.sizes)[name] for r in results}) > 1]
    name = several[0] if several else next(iter(ranges), "")
    if len(several) > 1 or not name:
        return None
    measured = {dict(r.sizes)[name] for r in results}
    for how in (CAPTURED, EAGER) if any(r.eager_us for r in results) else (CAPTURED,):
        gate = _gate(results, (how,))
        if gate.count is None:
            continue
        below = max((size for size in measured if size < gate.count), default=0)
        middle = _between(below, gate.count, ranges[name])
        if middle:
            return tuple((n, middle if n == name else size) for n, size in results[0].sizes)
    return None


def _between(low: int, high: int, r: DimRange) -> int:
    """A size of the range between two that are far apart, or half of the upper one where there is no lower; else 0."""
    middle = 1 << ((low * high).bit_length() // 2) if low else high // 2
    middle = middle // r.step * r.step
    fits = max(low, r.low, SMALLEST) < middle < high if low else max(r.low, SMALLEST) <= middle < high
    return middle if fits and high > CLOSE * low else 0
