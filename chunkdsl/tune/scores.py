"""How good the settings of an op are, by what was measured.

A setting is as good as the geometric mean, over the sizes and over calls in CUDA graphs and one by one, of its time
against the library's, counted as 1 where the library is faster: below its gate an op takes the library's way. So it
does one by one wherever it does in graphs (tune/gates). Settings that are equal in that go by the plain mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import exp, log

from chunkdsl.cost.constants import margin
from chunkdsl.ir.meshes import World
from chunkdsl.tune.evidence import Result, Setting, Sizes, Tuned

Score = tuple[float, float]
NEVER: Score = (float("inf"), float("inf"))


def table(tuned: Tuned, op: str, world: World) -> dict[Setting, dict[Sizes, Result]]:
    """The results of an op on so many ranks, by setting and size, in the order in which they were found. Where a size
    was measured again for the gate alone, that is not one of them."""
    found: dict[Setting, dict[Sizes, Result]] = {}
    for r in tuned.results:
        if (r.op, r.world) == (op, world) and (r.compared or r.sizes not in found.get(r.setting, {})):
            found.setdefault(r.setting, {})[r.sizes] = r
    return found


def compared_sizes(known: Mapping[Setting, Mapping[Sizes, Result]]) -> tuple[Sizes, ...]:
    """Those of the setting that was measured first, without what was measured for its gate alone."""
    first = next(iter(known.values()), {})
    return tuple(sizes for sizes, r in first.items() if r.compared)


def score(results: Mapping[Sizes, Result], calls: Iterable[Sizes]) -> Score:
    """Less is better; NEVER where it failed or was not measured at one of the sizes."""
    pairs = [results[c].ratios if c in results else NEVER for c in calls]
    found = [ratio for pair in pairs for ratio in pair]
    if not found or max(found) == float("inf"):
        return NEVER
    gated = [min(1.0, ratio) if pair[0] <= 1 else 1.0 for pair in pairs for ratio in pair]
    return tuple(exp(sum(log(r) for r in ratios) / len(ratios)) for ratios in (gated, found))


def ranking(tuned: Tuned, op: str, world: World) -> list[tuple[Score, Setting]]:
    """All settings that were measured at every size at which the first one was, the best first. That first one is the
    op without tuning: it leads unless another is faster by more than `gain` of cost/data/choices.toml."""
    known = table(tuned, op, world)
    calls = compared_sizes(known)
    found = [(score(results, calls), setting) for setting, results in known.items()]
    order = sorted((f for f in found if f[0] != NEVER), key=lambda f: f[0])
    near = [f for f in order if f[0][0] <= order[0][0][0] * (1 + margin("gain"))]
    plain = [f for f in near if f[1] == next(iter(known))]
    return [*plain, *(f for f in order if f not in plain)]
