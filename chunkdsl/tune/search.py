"""What to measure next, and what was found: functions of the results so far, so that a search goes on where it stopped.

First each op as it is without tuning, then for one collective after the other all its other values, beside the best of
the collectives before. A setting is measured at all sizes. Of several ops the one that has come least far is next, so
that time which runs out is missed by all alike.

A setting is as good as the geometric mean over the sizes of its time against the library's, counted as 1 where the
library is faster: below its gate an op takes the library's way. Settings that are equal in that go by the plain mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import exp, log

from chunkdsl.cost.constants import margin
from chunkdsl.ir.meshes import World
from chunkdsl.record import record
from chunkdsl.tune.evidence import Result, Setting, Sizes, Tuned
from chunkdsl.tune.space import Space, replaced, schedule_of

Score = tuple[float, float]
NEVER: Score = (float("inf"), float("inf"))


@record(eq=False)
class Job:
    """A setting of an op, and the sizes at which it has not been measured."""

    space: Space
    setting: Setting
    sizes: tuple[Sizes, ...]


@record
class Standing:
    """How far the search of one op is. `setting` is next, None at its end."""

    done: int
    best: Setting
    setting: Setting | None


def search(
    found: Sequence[Space], tuned: Tuned, world: World, calls: Sequence[Sizes],
    measure: Callable[[Job], Iterable[Result]], may_go_on: Callable[[Job, int], bool],
) -> Iterator[Tuned]:  # fmt: skip
    """The results after each setting. `may_go_on` gets the next job and how many settings are done."""
    while (job := next_job(found, tuned, world, calls)) and may_go_on(job, progress(found, tuned, world, calls)):
        tuned = tuned.with_more(measure(job))
        yield tuned


def next_job(found: Sequence[Space], tuned: Tuned, world: World, calls: Sequence[Sizes]) -> Job | None:
    """None when all is measured."""
    standing = [(s, standing_of(s, tuned, world, calls)) for s in found]
    behind = [(at.done / s.count, i) for i, (s, at) in enumerate(standing) if at.setting is not None]
    if not behind:
        return None
    space, at = standing[min(behind)[1]]
    known = table(tuned, space.op.name, world).get(at.setting, {})
    return Job(space, at.setting, tuple(c for c in calls if c not in known))


def progress(found: Sequence[Space], tuned: Tuned, world: World, calls: Sequence[Sizes]) -> int:
    """Settings that are measured."""
    return sum(standing_of(s, tuned, world, calls).done for s in found)


def standing_of(space: Space, tuned: Tuned, world: World, calls: Sequence[Sizes]) -> Standing:
    known = table(tuned, space.op.name, world)

    def measured(setting: Setting) -> bool:
        return set(calls) <= known.get(setting, {}).keys()

    best, done = space.base, 1
    if not measured(best):
        return Standing(0, best, best)
    for label, parts in space.options:
        others = [replaced(best, label, part) for part in parts]
        for setting in others:
            if not measured(setting) and schedule_of(space, setting) is not None:
                return Standing(done, best, setting)
            done += 1
        best = min((best, *others), key=lambda s: score(known.get(s, {}), calls))
    return Standing(done, best, None)


def table(tuned: Tuned, op: str, world: World) -> dict[Setting, dict[Sizes, Result]]:
    """The results of an op on so many ranks, by setting and size, in the order in which they were found."""
    found: dict[Setting, dict[Sizes, Result]] = {}
    for r in tuned.results:
        if (r.op, r.world) == (op, world):
            found.setdefault(r.setting, {})[r.sizes] = r
    return found


def score(results: Mapping[Sizes, Result], calls: Iterable[Sizes]) -> Score:
    """Less is better; NEVER where it failed or was not measured at one of the sizes."""
    ratios = [results[c].ratio if c in results else float("inf") for c in calls]
    if not ratios or max(ratios) == float("inf"):
        return NEVER
    return tuple(exp(sum(log(r) for r in found) / len(found)) for found in ([min(1.0, r) for r in ratios], ratios))


def ranking(tuned: Tuned, op: str, world: World) -> list[tuple[Score, Setting]]:
    """All settings that were measured at every size at which the first one was, the best first. That first one is the
    op without tuning: it leads unless another is faster by more than `gain` of cost/data/choices.toml."""
    known = table(tuned, op, world)
    calls = tuple(next(iter(known.values()), {}))
    found = [(score(results, calls), setting) for setting, results in known.items()]
    order = sorted((f for f in found if f[0] != NEVER), key=lambda f: f[0])
    near = [f for f in order if f[0][0] <= order[0][0][0] * (1 + margin("gain"))]
    plain = [f for f in near if f[1] == next(iter(known))]
    return [*plain, *(f for f in order if f not in plain)]
