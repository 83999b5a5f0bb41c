"""Vector clocks whose components outlive the programs that use them.

A component belongs to one place in a grid of one rank (or to a copy lane, or a host). A later kernel on the same
stream starts after the earlier one has ended, so its program at that place continues the component; clocks stay as
short as the largest grids. Source: Lamport's happens-before with the vector clocks of Fidge and Mattern; a stamp
(component, value) for each access follows FastTrack (Flanagan and Freund, PLDI 2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

Clock = np.ndarray  # int32, one value for each component


class Kind(IntEnum):
    """How an access is made. Two atomics do not race if each one's scope includes the other."""

    PLAIN = 0
    ATOMIC_GPU = 1
    ATOMIC_SYS = 2


@dataclass(frozen=True, slots=True)
class Stamp:
    """Everything about an access that a later conflicting one may want to know."""

    component: int
    value: int
    kind: Kind
    rank: int
    who: str


NOBODY = Stamp(0, 0, Kind.ATOMIC_SYS, -1, "nobody")


class Clocks:
    """Makes components and stamps."""

    def __init__(self) -> None:
        self._components: dict[tuple, int] = {}
        self.stamps: list[Stamp] = [NOBODY]
        self._ids: dict[Stamp, int] = {NOBODY: 0}
        self._component_of = np.zeros(1024, np.int32)
        self._value_of = np.zeros(1024, np.int32)

    def component(self, key: tuple) -> int:
        """The component that `key` names, made at the first call. Component 0 is nobody's."""
        return self._components.setdefault(key, len(self._components) + 1)

    def fresh(self) -> Clock:
        return np.zeros(len(self._components) + 1, np.int32)

    def join(self, clock: Clock, other: Clock) -> Clock:
        """The least clock that knows what both know; may be `clock` itself, changed in place."""
        if len(clock) < len(other):
            clock, other = other.copy(), clock
        part = clock[: len(other)]
        np.maximum(part, other, out=part)
        return clock

    def grown(self, clock: Clock) -> Clock:
        """`clock` with a value for every component there is."""
        missing = len(self._components) + 1 - len(clock)
        return np.concatenate((clock, np.zeros(missing, np.int32))) if missing else clock

    def stamp(self, stamp: Stamp) -> int:
        """A small number for a stamp; equal stamps have equal numbers."""
        found = self._ids.get(stamp)
        if found is None:
            found = self._ids[stamp] = len(self.stamps)
            self.stamps.append(stamp)
            if found >= len(self._component_of):
                self._component_of = np.concatenate((self._component_of, np.zeros_like(self._component_of)))
                self._value_of = np.concatenate((self._value_of, np.zeros_like(self._value_of)))
            self._component_of[found] = stamp.component
            self._value_of[found] = stamp.value
        return found

    def unordered(self, stamps: np.ndarray, clock: Clock) -> list[int]:
        """The distinct stamps in the array that `clock` does not know."""
        low, high = int(stamps.min()), int(stamps.max())
        if low == high:
            s = self.stamps[low]
            return [low] if clock[s.component] < s.value else []
        late = clock[self._component_of[low : high + 1]] < self._value_of[low : high + 1]
        if not late.any():
            return []
        return np.unique(stamps[late[stamps - low]]).tolist()
