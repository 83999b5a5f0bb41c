"""A loop of a batch of programs: all of its rounds at once, by induction.

The body runs three times: for the first round; for all rounds, of which each begins with what the rounds before it
leave of the values that it carries on; for the last one, after which the kernel goes on. What is carried must grow by
as much in every round as in the first, and that is held in every round: pointers that advance, counters, offsets of
block pointers (induction variables, as of Allen, Cocke and Kennedy, "Reduction of operator strength", 1981). What stems
from memory may be carried as it likes, since it decides nothing. A loop that carries anything else raises NotAlike: its
rounds are gone through one by one (`decisions`), and so are those of loops inside of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

from chunkdsl.kernels.spread import EACH, LEADING, MOST, Spread, TooMany, merged, together
from chunkdsl.kernels.spread_rules import conditions, sum_parts
from chunkdsl.kernels.taint import MARK, Taint, handles_in, joined, taint_of
from chunkdsl.record import record

TensorHandle, BlockPointerHandle = upstream.TensorHandle, upstream.BlockPointerHandle
FEW = 3  # rounds that are gone through one by one
PASSES = 8  # in which what stems from memory spreads over the values that are carried


class NotAlike(Exception):
    """Rounds of the loop in line `line` carry on what does not grow evenly."""

    def __init__(self, line: int) -> None:
        super().__init__(f"the loop in line {line}")
        self.line = line


class TooShort(Exception):
    """A loop has `rounds`, and fewer are looked at."""

    def __init__(self, rounds: int) -> None:
        super().__init__(f"{rounds} rounds")
        self.rounds = rounds


@record
class RoundsLooked:
    """Which rounds of every loop are looked at in a run: the `numbers` among the first `most`, ascending."""

    numbers: np.ndarray
    most: int

    def up_to(self, rounds: int) -> RoundsLooked:
        return RoundsLooked(np.concatenate([self.numbers, np.arange(self.most, rounds)]), rounds)

    def some(self, which: np.ndarray | None, count: int) -> RoundsLooked:
        """Those of the first `count`, which a loop has; of longer loops the others go with the first one."""
        if which is None:
            return self
        others = self.numbers[count:] if which[0] == 0 else self.numbers[:0]
        return RoundsLooked(np.concatenate([self.numbers[which], others]), self.most)


ONE = RoundsLooked(np.arange(1), 1)


class ByRounds:
    """Where a run is. `one_by_one`: lines of loops whose rounds are not looked at at once. `steps`: the least step of
    each loop, by its line."""

    def __init__(self) -> None:
        self.one_by_one: set[int] = set()
        self.steps: dict[int, int] = {}
        self.start(ONE, [])

    def start(self, part: RoundsLooked, accesses: list) -> None:
        self.part, self.accesses = part, accesses
        self.under_way = False  # in a loop whose rounds are looked at at once
        self.count = 1  # rounds that values differ in now
        self.active: np.ndarray | None = None  # which rounds each program has, [programs or 1, rounds]

    @property
    def again(self) -> bool:
        """What is touched outside of such loops is so in every part of the rounds."""
        return not self.under_way and self.part.numbers[0] > 0

    def masked(self, mask: Spread) -> Spread:
        if self.active is None:
            return mask
        axes = mask.parts[0].ndim - LEADING
        kept = mask.parts if mask.every else (mask.whole(),)
        return merged([*kept, self.active.reshape(*self.active.shape, *[1] * axes)], True)

    def loop(self, line: int, first: np.ndarray, last: np.ndarray, each: np.ndarray) -> AllRounds | None:
        """None for one whose rounds are to be gone through one by one. Bounds are [programs or 1, rounds or 1, 1]."""
        self.steps[line] = min(self.steps.get(line, 1), int(each.min()))
        counts = np.maximum(0, -(-(last.astype(np.int64) - first) // each))
        most = int(counts.max())
        if self.under_way or most <= FEW or line in self.one_by_one:
            return None
        together(counts > 0)
        if most > self.part.most and not self.again:
            raise TooShort(most)
        return AllRounds(self, line, first.astype(np.int64), each.astype(np.int64), counts)


class AllRounds:
    """What a `for` goes through, and what it asks about each value that it carries on."""

    at_once = True

    def __init__(self, by: ByRounds, line: int, first: np.ndarray, each: np.ndarray, counts: np.ndarray) -> None:
        self.by, self.line, self.first, self.each, self.counts = by, line, first, each, counts
        self.before: dict[str, object] = {}  # values when the loop begins
        self.entered: dict[str, object] = {}
        self.steps: dict[str, Step] = {}
        self.at = np.zeros((1, 1, 1), np.int64)  # the rounds that are looked at now
        self.first_pass = self.stable = True

    def __iter__(self) -> Iterator[tl.tensor]:
        by, begin = self.by, len(self.by.accesses)
        by.under_way = True
        yield self.variable()
        del by.accesses[begin:]
        self.first_pass = False
        numbers = by.part.numbers[by.part.numbers < self.counts.max()]
        if numbers.size:
            by.count = len(numbers)
            if self.counts.size * numbers.size > MOST:
                raise TooMany
            self.at = np.minimum(numbers.reshape(1, -1, 1), self.counts - 1)
            active = numbers.reshape(1, -1) < self.counts[:, :, 0]
            by.active = None if active.all() else active
            for _ in range(PASSES):
                del by.accesses[begin:]
                self.stable = True
                yield self.variable()
                if self.stable:
                    break
            else:
                raise NotAlike(self.line)
        done = len(by.accesses)
        by.active, by.count = None, 1
        self.at = self.counts - 1
        yield self.variable()
        del by.accesses[done:]
        by.under_way = False

    def variable(self) -> tl.tensor:
        at = (self.first + self.at * self.each).astype(np.int32)
        spread = {EACH: Spread((at,))} if at.size > 1 else {}
        return tl.tensor(TensorHandle(at[0, 0], tl.int32, {MARK: None, **spread}), tl.int32)

    def enter(self, name: str, value):
        """What a value is when the rounds that are looked at begin."""
        if self.first_pass:
            self.before[name] = value
        elif name in self.steps:
            value = self.steps[name].taken(self.before[name], self.at)
        self.entered[name] = value
        return value

    def leave(self, name: str, value) -> None:
        if name not in self.entered:
            return
        step = step_of(self.entered[name], value, self.by.active)
        if step is None:
            raise NotAlike(self.line)
        if self.first_pass:
            self.steps[name] = step
        elif self.by.count > 1 or self.at.any():
            known = self.steps[name]
            if step.same_as(known, self.by.active):
                return
            if not step.value:
                raise NotAlike(self.line)
            self.steps[name], self.stable = step, False


class OneByOne:
    at_once = False

    def __init__(self, values) -> None:
        self.values = values

    def __iter__(self):
        return iter(self.values)


@record
class Step:
    """By how much a value grows in a round: `grown` for each of its numbers, [programs or 1, rounds or 1, ...]; of what
    stems from memory the `value` itself, as a round left it."""

    grown: tuple[np.ndarray, ...] = ()
    value: tuple = ()

    def taken(self, before, rounds: np.ndarray):
        if self.value:
            return self.value[0]
        if not any(g.any() for g in self.grown):
            return before
        handle = before.handle
        if isinstance(handle, BlockPointerHandle):
            offsets = [grown(o, g, rounds) for o, g in zip(handle.offsets, self.grown, strict=True)]
            handle = BlockPointerHandle(
                handle.base, handle.shape, handle.strides, offsets, handle.block_shape, handle.order
            )
            return tl.tensor(handle, before.type)
        return tl.tensor(grown(handle, self.grown[0], rounds), before.type)

    def same_as(self, other: Step, active: np.ndarray | None) -> bool:
        if self.value or other.value:
            return bool(self.value and other.value) and known_of(self.value[0]) == known_of(other.value[0])
        return len(self.grown) == len(other.grown) and all(
            bool((np.equal(a, b) | inactive(active, max(a.ndim, b.ndim))).all())
            for a, b in zip(self.grown, other.grown, strict=True)
        )


def inactive(active: np.ndarray | None, axes: int) -> np.ndarray:
    """Rounds that a program does not have, with `axes`."""
    found = np.zeros((1, 1), bool) if active is None else ~active
    return found.reshape(*found.shape, *[1] * (axes - LEADING))


def known_of(value) -> list[tuple[int, str]]:
    """What is known of what stems from memory."""
    taints: list[Taint | None] = [taint_of(h) for h in handles_in(value)]
    return [(t.modulus, t.argument) if t else (0, "") for t in taints]


def step_of(before, after, active: np.ndarray | None) -> Step | None:
    """None where it does not show. A number that stays is one that grows by nothing."""
    if joined(after):
        return Step((), (after,))
    if joined(before):  # data at first, and a number from then on: it is none
        return None
    if not (isinstance(before, tl.tensor) and isinstance(after, tl.tensor)):
        return Step() if before is after or (plain(before) and plain(after) and before == after) else None
    old, new = before.handle, after.handle
    if isinstance(old, BlockPointerHandle) and isinstance(new, BlockPointerHandle):
        kept, left = ([h.base, *h.shape, *h.strides] for h in (old, new))
        if any(a is not b for a, b in zip(kept, left, strict=True)):
            return None
        return Step(tuple(difference(a, b) for a, b in zip(old.offsets, new.offsets, strict=True)))
    if not (isinstance(old, TensorHandle) and isinstance(new, TensorHandle)) or before.type != after.type:
        return None
    if old is new:
        return Step((np.zeros((1, 1, 1), np.int64),))
    if old.data.dtype.kind not in "iub":
        same = EACH not in old.attr and EACH not in new.attr and np.array_equal(old.data, new.data, equal_nan=True)
        return Step((np.zeros((1, 1, 1), np.int64),)) if same else None
    return Step((difference(old, new),))


def plain(value) -> bool:
    return isinstance(value, bool | int | float | str | tl.constexpr)


def numbers_of(handle: TensorHandle) -> tuple[np.ndarray, ...]:
    parts = conditions(handle) if handle.data.dtype == np.bool_ else sum_parts(handle)
    return tuple(p.astype(np.int64) for p in parts)


def difference(old: TensorHandle, new: TensorHandle) -> np.ndarray:
    if old.data.dtype == np.bool_:
        a, b = (np.logical_and.reduce(np.broadcast_arrays(*conditions(h))).astype(np.int64) for h in (old, new))
        return compact(b - a)
    parts = merged([*numbers_of(new), *(-p for p in numbers_of(old))]).parts
    return Spread(tuple(compact(p) for p in parts)).whole()


def compact(part: np.ndarray) -> np.ndarray:
    """Without the axes along which it is the same."""
    for axis in range(part.ndim):
        one = part.take([0], axis)
        if part.shape[axis] > 1 and (part == one).all():
            part = one
    return part


def grown(handle: TensorHandle, step: np.ndarray, rounds: np.ndarray) -> TensorHandle:
    kind = handle.data.dtype
    more = step * rounds.reshape(*rounds.shape[:LEADING], *[1] * (step.ndim - LEADING))
    spread = merged([*(p.astype(kind) for p in sum_parts(handle)), more.astype(kind)])
    first = sum(p[0, 0] for p in spread.parts)
    attr = {MARK: None, EACH: spread} if any(p.shape[:LEADING] != (1, 1) for p in spread.parts) else {MARK: None}
    return TensorHandle(np.broadcast_to(first, handle.data.shape).astype(kind), handle.dtype, attr)
