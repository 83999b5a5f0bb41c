"""A traced value of many programs at once, in many rounds of a loop: arrays with an axis of programs and one of rounds
in front, as sums or conjunctions of parts.

`rows[:, None] * stride + cols[None, :]` of a thousand programs stays two parts, one along each axis of the block, and
is not added up; so does `program * size + round`. From the parts of an address follow the rows and columns of an
argument that each program touches in each round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

from chunkdsl.record import record

EACH = "each"  # the attribute of a handle that bears its `Spread`; its data are then those of the first program
MOST = 1 << 25  # elements of an array
LEADING = 2  # axes in front of those of a block: programs, rounds


class TooMany(Exception):
    """An array would have more than MOST elements."""


class TooLong(Exception):
    """The operations that were allowed are used up."""


class Parted(Exception):
    """Programs do not go on alike. `groups`: numbers of those that do, in this batch, and which of its rounds; None are
    all."""

    def __init__(self, groups: Sequence[tuple[np.ndarray | None, np.ndarray | None]]) -> None:
        super().__init__("programs part")
        self.groups = groups


@record
class Spread:
    """`parts`: of shapes [programs or 1, rounds or 1, ...], where a block's axes are whole or 1. The value is their
    sum, or with `every` whether all are true."""

    parts: tuple[np.ndarray, ...]
    every: bool = False

    def whole(self) -> np.ndarray:
        found, *rest = self.parts
        for part in rest:
            if np.prod(np.broadcast_shapes(found.shape, part.shape)) > MOST:
                raise TooMany
            found = found & part if self.every else found + part
        return found


class Later(Spread):
    """Worked out when it is asked for: much of what is compared only chooses between values."""

    def __init__(self, work: Callable[[], np.ndarray]) -> None:
        object.__setattr__(self, "work", work)
        object.__setattr__(self, "every", False)

    @cached_property
    def parts(self) -> tuple[np.ndarray, ...]:
        return (self.work(),)


def spread_of(handle: upstream.TensorHandle) -> Spread:
    """Of a value that is the same in all programs: one part, without the axes along which it was repeated."""
    found = handle.attr.get(EACH)
    axes = handle.data.ndim
    if found is None:
        data = handle.data
        return Spread((data[tuple(slice(0, 1) if not step else slice(None) for step in data.strides)][None, None],))
    if all(p.ndim == axes + LEADING for p in found.parts):
        return found
    return Spread(tuple(p.reshape(*p.shape[:2], *[1] * axes) for p in found.parts), found.every)  # a number, repeated


def merged(parts: Iterable[np.ndarray], every: bool = False) -> Spread:
    """Parts along the same axes become one; what differs from round to round stays by itself."""
    found: dict[tuple[bool, ...], np.ndarray] = {}
    for part in parts:
        key = (part.shape[1] > 1, *axes_of(part))
        if key not in found:
            found[key] = part
        else:
            found[key] = found[key] & part if every else found[key] + part
    return Spread(tuple(found.values()), every)


def axes_of(part: np.ndarray) -> tuple[bool, ...]:
    return tuple(n > 1 for n in part.shape[LEADING:])


def each_of(value) -> np.ndarray:
    """A number in every program and round, [programs or 1, rounds or 1, 1]."""
    if not isinstance(value, tl.tensor):
        return np.array([[[int(value)]]])
    whole = spread_of(value.handle).whole()
    return whole.reshape(*whole.shape[:2], 1)


# ---- what is touched


@record
class Lanes:
    """What programs touch: every row of `rows` where `row_mask`, with every column of `columns` where `column_mask`;
    with `paired` the n th row with the n th column. All are of shape [programs or 1, rounds or 1, lanes]."""

    rows: np.ndarray
    columns: np.ndarray
    row_mask: np.ndarray
    column_mask: np.ndarray
    paired: bool

    def along(self, columns: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, or columns, which of them are touched, and whether any are, which is not multiplied out."""
        if self.paired:
            return (self.columns if columns else self.rows), self.row_mask, np.ones((1, 1, 1), bool)
        at, mask, other = self.rows, self.row_mask, self.column_mask
        if columns:
            at, mask, other = self.columns, self.column_mask, self.row_mask
        return at, mask, other.any(axis=-1, keepdims=True)


def lanes_of(offsets: Spread, mask: Spread, pitch: int) -> Lanes:
    """`offsets`: in elements from the argument's first; its rows are `pitch` elements apart."""
    axes = offsets.parts[0].ndim - LEADING
    keys = {axes_of(p) for p in offsets.parts} | {axes_of(p) for p in mask.parts}
    along = sorted((k for k in keys if any(k)), key=lambda k: reach(offsets, k), reverse=True)  # rows first
    if len(along) <= 2 and (len(along) < 2 or not any(a and b for a, b in zip(*along, strict=True))):
        nothing = (False,) * axes
        for first, second in ([*along, nothing, nothing][:2], [*along, nothing, nothing][1::-1]):
            found = _separate(offsets, mask, pitch, first, second)
            if found:
                return found
    total, masked = np.broadcast_arrays(offsets.whole(), mask.whole())
    if total.size > MOST:
        raise TooMany
    rows, columns = np.divmod(total.reshape(*total.shape[:2], -1), pitch)
    masked = masked.reshape(*masked.shape[:2], -1)
    return Lanes(rows, columns, masked, masked, True)


def reach(offsets: Spread, axes: tuple[bool, ...]) -> int:
    """How far a block goes along these axes."""
    return sum(int(np.ptp(p[0, 0])) for p in offsets.parts if axes_of(p) == axes)


def _separate(offsets: Spread, mask: Spread, pitch: int, first, second) -> Lanes | None:
    """Rows from the parts along `first`, columns from those along `second`; None where it does not come apart so. A
    number that differs from round to round is of whole rows, or of columns, or is taken apart."""
    high, low = _along(offsets.parts, second)
    high_mask, low_mask = _along(mask.parts, second)
    for i, part in enumerate(high):
        if part.shape[1] > 1 and part.shape[-1] == 1:
            columns = part if np.abs(part).max() < pitch else part % pitch
            high[i] = part - columns
            if columns.any():
                low.append(columns)
                low_mask += [m for m in high_mask if m.shape[1] > 1 and m.shape[-1] == 1]
                high_mask = [m for m in high_mask if m.shape[1] == 1 or m.shape[-1] > 1]
    high = [part for part in high if part.shape[1] == 1 or part.any()]
    at, there = all_of(high_mask), all_of(low_mask)
    rows, begin = np.divmod(sum(high, np.zeros((1, 1, 1), np.int64)), pitch)
    used = at.any(axis=-1, keepdims=True)
    most = np.where(at, begin, -1).max(axis=-1, keepdims=True)
    least = np.where(at, begin, pitch).min(axis=-1, keepdims=True)
    if (used & (most > least)).any():
        return None
    everywhere, there_too = np.broadcast_arrays(most, used)
    begins = np.unique(everywhere[there_too])
    columns = sum(low, np.zeros((1, 1, 1), np.int64)) + (most if begins.size > 1 else begins.sum())
    outside = there & ((columns < 0) | (columns >= pitch))
    if outside.any() and (outside & used).any():
        return None
    return Lanes(rows, columns, at, there, False)


def _along(parts: Sequence[np.ndarray], axes: tuple[bool, ...]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Parts that do not lie along these axes, and those that do, as [programs or 1, rounds or 1, lanes]."""
    found: tuple[list[np.ndarray], list[np.ndarray]] = [], []
    for part in parts:
        found[any(axes) and axes_of(part) == axes].append(part.reshape(*part.shape[:2], -1))
    return found


def all_of(parts: Sequence[np.ndarray]) -> np.ndarray:
    found = np.ones((1, 1, 1), bool)
    for part in parts:
        found = found & part
    return found


# ---- who goes on together


def together(values: np.ndarray) -> None:
    """Parted where these, [programs or 1, rounds or 1, 1], are not all the same."""
    values = values.reshape(values.shape[:2])
    if (values == values[0, 0]).all():
        return
    groups: list[tuple[np.ndarray | None, np.ndarray | None]] = []
    kinds, which = np.unique(values, axis=0, return_inverse=True)
    for i, kind in enumerate(kinds):
        programs = np.flatnonzero(which.reshape(-1) == i) if len(values) > 1 else None
        for value in np.unique(kind):
            groups.append((programs, np.flatnonzero(kind == value) if len(kind) > 1 else None))
    raise Parted(groups)


def alone(programs: int, rounds: int) -> Parted:
    """Each program by itself, and each round."""
    each = [np.array([i]) for i in range(rounds)] if rounds > 1 else [None]
    return Parted([(np.array([i]), turn) for i in range(programs) for turn in each])


def halves(programs: int, rounds: int) -> Parted:
    if programs == 1 < rounds:
        return Parted([(None, half) for half in np.array_split(np.arange(rounds), 2)])
    return Parted([(half, None) for half in np.array_split(np.arange(programs), 2)])
