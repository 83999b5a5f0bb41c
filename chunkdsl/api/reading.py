"""Which size each number of a call is, and what the grid is of them: readings of calls, the likeliest first.

A reading gives every number and grid axis of the calls seen so far. Sizes are named like the kernel's own parameters
(`M`); where equal values leave a choice, names such as `stride_am` come first. Whether a reading is the kernel's is for
a trace to say (`kernels.plausible`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice, product
from math import prod

from chunkdsl.api.call import Call, safe
from chunkdsl.api.roles import Roles
from chunkdsl.record import record

MOST, MOST_GRIDS, MOST_NUMBERS = 96, 6, 4  # readings that are looked at; of these with one choice of dimensions
MOST_DIMS = 4096  # choices of dimensions
Size = str | int
Values = tuple[int, ...]  # one for each call that was seen


@record
class Meaning:
    """`text` as a kernel item has it; its value is the product of the `factors`, each a size or number and what it is
    divided by, rounded up."""

    text: str
    factors: tuple[tuple[Size, int], ...]

    def at(self, sizes: Mapping[str, int]) -> int:
        return prod(-(-(sizes[f] if isinstance(f, str) else f) // by) for f, by in self.factors)


@record
class Reading:
    """`dims`: of each tensor, names of sizes or numbers. `numbers`: what integers mean. `rows`: the size that is
    gathered or reduced along."""

    dims: tuple[tuple[str, tuple[Size, ...]], ...]
    numbers: tuple[tuple[str, Meaning], ...]
    grid: tuple[Meaning, ...]
    rows: str

    @property
    def shapes(self) -> dict[str, tuple[Size, ...]]:
        return dict(self.dims)

    def sizes(self, seen: Mapping[str, tuple[int, ...]]) -> dict[str, int] | None:
        """Values of all sizes in a call, None where it does not fit."""
        found: dict[str, int] = {}
        for name, shape in self.dims:
            for d, n in zip(shape, seen[name], strict=True):
                if (found.setdefault(d, n) if isinstance(d, str) else d) != n:
                    return None
        return found

    def fits(self, call: Call, seen: Mapping[str, tuple[int, ...]]) -> bool:
        sizes = self.sizes(seen)
        if sizes is None:
            return False
        integers = all(meaning.at(sizes) == call.integers[n] for n, meaning in self.numbers)
        return integers and call.grid == tuple(g.at(sizes) for g in self.grid)


def readings(
    calls: Sequence[Call], seen: Sequence[Mapping[str, tuple[int, ...]]], roles: Roles,
    told: Mapping[str, tuple[Size, ...]], persistent: bool,
) -> Iterator[Reading]:  # fmt: skip
    """`seen`: shapes of each call as the kernel sees them. `told`: shapes in the kernel's names, as the user gave
    them. `persistent`: the grid is a number of programs, whatever the sizes."""
    yield from islice(Reader(calls, seen, roles, told, persistent).readings(), MOST)


class Reader:
    def __init__(self, calls, seen, roles: Roles, told, persistent: bool) -> None:
        self.calls, self.roles, self.told, self.persistent = calls, roles, told, persistent
        self.shapes: dict[str, list[Values]] = {
            name: [tuple(s[name][i] for s in seen) for i in range(len(shape))] for name, shape in seen[0].items()
        }
        self.integers: dict[str, Values] = {
            name: tuple(c.integers[name] for c in calls) for name in calls[0].integers
        }
        self.constants = {n: v for n, v in calls[0].constants if isinstance(v, int) and not isinstance(v, bool)}
        self.row_slots = [(n, 0) for n in (roles.gathered or roles.results)]

    def readings(self) -> Iterator[Reading]:
        slots = [(name, i) for name, shape in self.shapes.items() for i in range(len(shape))]
        choices = (dict(zip(slots, c, strict=True)) for c in product(*(self.names_of(slot) for slot in slots)))
        found = [(self.dims(named), named) for named in islice(choices, MOST_DIMS) if self.consistent(named)]
        first = self.row_slots[0]
        # Programs that store the rows that they read can start sooner: where sizes allow that reading, it comes first.
        found.sort(key=lambda f: sum(f[1][r, 0] != f[1][first] for r in self.roles.results))
        for dims, named in found:
            yield from self.with_numbers(dims, named[first])

    def dims(self, named: Mapping[tuple[str, int], Size]) -> dict[str, tuple[Size, ...]]:
        return {n: tuple(named[n, i] for i in range(len(shape))) for n, shape in self.shapes.items()}

    def consistent(self, named: Mapping[tuple[str, int], Size]) -> bool:
        rows = named[self.row_slots[0]]
        if isinstance(rows, int) or any(named[s] != rows for s in self.row_slots):
            return False
        return not any(repeats(shape) for shape in self.dims(named).values())

    def with_numbers(self, dims, rows: str) -> Iterator[Reading]:
        sizes = {d: self.shapes[n][i] for n, s in dims.items() for i, d in enumerate(s) if isinstance(d, str)}
        own = [d for r in self.roles.results for d in dims[r] if isinstance(d, str)]
        axes = range(len(self.calls[0].grid))
        grids = list(islice(product(*(self.axis(i, sizes, own, rows) for i in axes)), MOST))
        grids.sort(key=lambda grid: repeats([size for axis in grid for size, _ in axis.factors]))
        numbers = product(*(self.meanings(name, dims, sizes) for name in self.integers))
        for values in islice(numbers, MOST_NUMBERS):
            for grid in grids[:MOST_GRIDS]:
                yield Reading(tuple(dims.items()), tuple(zip(self.integers, values, strict=True)), grid, rows)

    # ---- names of dimensions

    def names_of(self, slot: tuple[str, int]) -> list[Size]:
        name, i = slot
        if name in self.told:
            return [self.told[name][i] if isinstance(self.told[name][i], int) else safe(self.told[name][i])]
        values = self.shapes[name][i]
        found = [n for n, v in self.integers.items() if v == values and not is_stride(n)]
        found.sort(key=lambda n: not self.hinted(slot, n))
        fixed = len(set(values)) == 1
        found = [safe(n) for n in found]
        if slot in self.row_slots:
            return found or ["rows"]
        inputs = [v for n, shape in self.shapes.items() if n not in self.roles.results for v in shape]
        if fixed and (values not in inputs or (not found and values[0] in self.constants.values())):
            return [values[0]]  # a size of the result alone, or one that a constant fixes
        if not found and values == self.shapes[self.row_slots[0][0]][0]:
            return ["rows", f"d{values[0]}"]
        return found or [f"d{values[0]}"]

    def hinted(self, slot: tuple[str, int], size: str) -> bool:
        """Is there a stride that is named after this tensor and this size: `stride_am` of `a_ptr` and `M`?"""
        strides = self.strides(self.shapes)[slot]
        return any(v == strides and is_stride(n) and self.says(n, slot[0], size) for n, v in self.integers.items())

    @staticmethod
    def says(stride: str, tensor: str, size: str = "") -> bool:
        rest = re.sub(r"^_?strides?_?|_?strides?_?$", "", stride.lower()).replace("_", "")
        stem = re.sub(r"_?(ptr|desc)$", "", tensor.lower()).replace("_", "")
        return bool(rest) and rest.startswith(stem[: max(1, len(rest) - 1)]) and rest.endswith(size.lower()[:1])

    # ---- numbers

    def strides(self, shapes: Mapping[str, Sequence[Values]]) -> dict[tuple[str, int], Values]:
        return {
            (name, i): tuple(prod(v[c] for v in shape[i + 1 :]) for c in range(len(self.calls)))
            for name, shape in shapes.items()
            for i in range(len(shape))
        }

    def meanings(self, name: str, dims, sizes: Mapping[str, Values]) -> list[Meaning]:
        """What an integer may be: a size, a stride, the elements of a tensor, itself."""
        if safe(name) in sizes:
            return [Meaning(safe(name), ((safe(name), 1),))]
        values = self.integers[name]
        as_sizes = [Meaning(s, ((s, 1),)) for s, v in sizes.items() if v == values]
        slots = [slot for slot, v in self.strides(self.shapes).items() if v == values]
        slots.sort(key=lambda slot: not self.says(name, slot[0]))
        as_strides = [Meaning(f"{safe(t)}.stride({i})", tuple((d, 1) for d in dims[t][i + 1 :])) for t, i in slots]
        found = [*as_strides, *as_sizes] if is_stride(name) else [*as_sizes, *as_strides]
        if not found:
            whole = [Meaning(" * ".join(map(str, s)), tuple((d, 1) for d in s)) for s in dims.values() if len(s) > 1]
            found = [m for m in whole if self.over_calls(m, sizes) == values]
        return [*found, literal(values[0])] if len(set(values)) == 1 else found

    def over_calls(self, meaning: Meaning, sizes: Mapping[str, Values]) -> Values:
        return tuple(meaning.at({s: v[c] for s, v in sizes.items()}) for c in range(len(self.calls)))

    # ---- the grid

    def axis(self, axis: int, sizes: Mapping[str, Values], own: Sequence[str], rows: str) -> list[Meaning]:
        """Block counts, or products of two, that have the axis's values: of the rows first, of sizes that are not the
        result's (`own`) late, a plain number last."""
        wanted = tuple(c.grid[axis] for c in self.calls)
        counts = [Meaning(s, ((s, 1),)) for s in sizes]
        counts += [Meaning(f"cdiv({s}, {n})", ((s, by),)) for n, by in self.constants.items() for s in sizes if by > 1]
        pairs = [
            Meaning(f"{a.text} * {b.text}", a.factors + b.factors)
            for a, b in combinations(counts, 2)
            if a.factors[0][0] != b.factors[0][0]
        ]
        found = [m for m in (*counts, *pairs) if self.over_calls(m, sizes) == wanted]

        def unlikely(m: Meaning) -> tuple:
            of = [size for size, _ in m.factors]
            unlike = sum(not re.search(rf"{s[0]}\w*, \w*{s[0]}\)", m.text, re.IGNORECASE) for s in of)
            return rows not in of, sum(s not in own for s in of), len(of), sum(by == 1 for _, by in m.factors), unlike

        found.sort(key=unlikely)
        fixed = [literal(wanted[0])] if len(set(wanted)) == 1 else []
        return [*fixed, *found] if self.persistent else [*found, *fixed]


def repeats(shape: Sequence[Size]) -> bool:
    """Does a size occur twice? A spec has each once in a tensor."""
    names = [d for d in shape if isinstance(d, str)]
    return len(set(names)) < len(names)


def is_stride(name: str) -> bool:
    return "stride" in name.lower()


def literal(value: int) -> Meaning:
    return Meaning(str(value), ((value, 1),))
