"""Levels of the flows of a route: how many flows must be over before one can start. Nothing is said of contents.

A flow waits for those whose data it moves on, and for the step before it in its rank's lane. Taken up in the order of
levels, whatever is waited for was taken up before, on every rank; so lanes of one rank mix as they would run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chunkdsl.plan.trace import Flow


def find_levels(flows: list[Flow], watch: Callable[[], object] = bool) -> list[Flow]:
    """Set `level` of every flow (Kahn's algorithm). Flows that wait for each other round in a circle, or none. `watch`
    is called for every flow."""
    before = {f: list(f.inputs) for f in flows}
    lanes: dict[tuple[int, int], dict[int, list[Flow]]] = {}
    for f in flows:
        lanes.setdefault((f.issuer, f.step.lane), {}).setdefault(f.number, []).append(f)
    for numbers in lanes.values():
        earlier: list[Flow] = []
        for number in sorted(numbers):
            for f in numbers[number]:
                before[f] += earlier
            earlier = numbers[number]
    after: dict[Flow, list[Flow]] = {f: [] for f in flows}
    for f, causes in before.items():
        for cause in causes:
            after[cause].append(f)
    missing = {f: len(causes) for f, causes in before.items()}
    ready = deque(f for f in flows if not missing[f])
    done = 0
    while ready:
        watch()
        f = ready.popleft()
        done += 1
        for g in after[f]:
            g.level = max(g.level, f.level + 1)
            missing[g] -= 1
            if not missing[g]:
                ready.append(g)
    return _circle(before, missing) if done < len(flows) else []


def _circle(before: dict[Flow, list[Flow]], missing: dict[Flow, int]) -> list[Flow]:
    f = next(f for f, n in missing.items() if n)
    path: list[Flow] = []
    while f not in path:
        path.append(f)
        f = next(g for g in before[f] if missing[g])
    return path[path.index(f) :]
