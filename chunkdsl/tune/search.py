"""What to measure next, and what was found: functions of the results so far, so that a search goes on where it stopped.

First each op as it is without tuning, then one step after the other: all other values of a collective or product,
beside the best of the steps before, which is left only for one that is faster by `gain` of cost/data/choices.toml. A
setting is measured at all sizes. Then the best one is measured at further sizes, until its gates are placed (gates.py).
Of several ops the one that has come least far is next, so that time which runs out is missed by all alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from chunkdsl.cost.constants import margin
from chunkdsl.ir.meshes import World
from chunkdsl.ir.types import DimRange
from chunkdsl.record import record
from chunkdsl.tune.evidence import Result, Setting, Sizes, Tuned
from chunkdsl.tune.gates import next_size, of_best
from chunkdsl.tune.scores import score, table


class Candidates(Protocol):
    """What a search may try for an op. `base`: the setting that it has without tuning; `calls`: sizes at which settings
    are compared; `ranges`: the run-time dims, by name; `steps`: how many there are; `count`: settings that a search
    measures. `step`: those of a step, beside the best of the steps before; None for one that is not legal there."""

    name: str
    base: Setting
    calls: tuple[Sizes, ...]
    ranges: Mapping[str, DimRange]
    steps: int
    count: int

    def step(self, i: int, best: Setting) -> list[Setting | None]: ...


@record(eq=False)
class Job:
    """A setting of an op, and the sizes at which it has not been measured. `compared`: as in Result."""

    space: Candidates
    setting: Setting
    sizes: tuple[Sizes, ...]
    compared: bool = True


@record
class Standing:
    """How far the search of one op is. `settings` are next, in this order; none at its end."""

    done: int
    best: Setting
    settings: tuple[Setting, ...]


def search(
    found: Sequence[Candidates], tuned: Tuned, world: World,
    measure: Callable[[Job, Sequence[Job]], Iterable[Result]], may_go_on: Callable[[Job, int], bool],
) -> Iterator[Tuned]:  # fmt: skip
    """The results after each setting. `measure` gets the next job and those that come after it, `may_go_on` the next
    one and how many settings are done."""
    while jobs := next_jobs(found, tuned, world):
        if not may_go_on(jobs[0], progress(found, tuned, world)):
            return
        tuned = tuned.with_more(measure(jobs[0], jobs[1:]))
        yield tuned


def next_jobs(found: Sequence[Candidates], tuned: Tuned, world: World) -> list[Job]:
    """The next job, and those that are measured in any case, whatever it shows; none when all is measured. Gates come
    last, one size at a time."""
    standing = [(s, standing_of(s, tuned, world)) for s in found]
    behind = [(at.done / s.count, i) for i, (s, at) in enumerate(standing) if at.settings]
    jobs = []
    for _, i in sorted(behind):
        space, at = standing[i]
        for setting in at.settings:
            known = table(tuned, space.name, world).get(setting, {})
            jobs.append(Job(space, setting, tuple(c for c in space.calls if c not in known)))
    return jobs or _gate_jobs(found, tuned, world)


def _gate_jobs(found: Sequence[Candidates], tuned: Tuned, world: World) -> list[Job]:
    """One more size for the best setting of each op whose gates are not placed."""
    jobs = []
    for space in found:
        results = of_best(tuned, space.name, world)
        if results:
            sizes = next_size(space.ranges, results)
            if sizes and not any(r.failed for r in results):
                jobs.append(Job(space, results[0].setting, (sizes,), compared=False))
    return jobs


def progress(found: Sequence[Candidates], tuned: Tuned, world: World) -> int:
    """Settings that are measured."""
    return sum(standing_of(s, tuned, world).done for s in found)


def standing_of(space: Candidates, tuned: Tuned, world: World) -> Standing:
    known, calls = table(tuned, space.name, world), set(space.calls)

    def measured(setting: Setting | None) -> bool:
        return setting is None or calls <= known.get(setting, {}).keys()

    best, done = space.base, 1
    if not measured(best):
        return Standing(0, best, (best,))
    for i in range(space.steps):
        others = space.step(i, best)
        left = tuple(s for s in others if not measured(s))
        done += len(others) - len(left)
        if left:
            return Standing(done, best, left)
        scores = {s: score(known.get(s, {}), space.calls) for s in (best, *others) if s is not None}
        first = min(scores, key=scores.__getitem__)
        best = first if scores[best][0] > scores[first][0] * (1 + margin("gain")) else best
    return Standing(done, best, ())
