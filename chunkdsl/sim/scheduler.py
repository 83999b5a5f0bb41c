"""Who runs next: seeded chance, or one of a few orders that bring out mistakes. The same seed gives the same run."""

from __future__ import annotations

import random
from collections.abc import Sequence

from chunkdsl.sim.actors import Actor, Host, Program
from chunkdsl.sim.changes import Changes
from chunkdsl.sim.lanes import Lane

POLICIES = ("random", "round-robin", "last-first", "copies-last", "copies-first", "hosts-last")


class Scheduler:
    """`policy` is one of POLICIES; `slow` a rank that runs only when no other rank can do anything but poll.

    `random` draws among all; `round-robin` goes in turn; `last-first` prefers who started last; `copies-last` and
    `copies-first` draw, but copy engines wait for, or go before, everyone; `hosts-last` keeps hosts back."""

    def __init__(self, seed: int, policy: str, slow: int | None) -> None:
        if policy not in POLICIES:
            raise ValueError(f"unknown policy {policy!r}, one of {', '.join(POLICIES)}")
        self.random = random.Random(seed)
        self._policy = policy
        self._slow = slow
        self._turn = 0

    def choose(self, actors: Sequence[Actor], changes: Changes) -> Actor:
        """One of `actors`; those that would only poll again come when there is nobody else, and now and then."""
        self._turn += 1
        pool = [a for a in actors if not a.stuck(changes)]
        if not pool or (self._policy == "random" and self.random.random() < 0.02):
            return actors[self._turn % len(actors)] if self._policy != "random" else self.random.choice(actors)
        if self._slow is not None:
            pool = [a for a in pool if a.rank != self._slow] or pool
        if self._policy == "round-robin":
            return pool[self._turn % len(pool)]
        if self._policy == "last-first":
            return max(pool, key=lambda a: (isinstance(a, Program), a.order))
        if self._policy != "random":
            kind, first = _PREFERENCES[self._policy]
            pool = [a for a in pool if isinstance(a, kind) == first] or pool
        return self.random.choice(pool)


_PREFERENCES = {"copies-last": (Lane, False), "copies-first": (Lane, True), "hosts-last": (Host, False)}
