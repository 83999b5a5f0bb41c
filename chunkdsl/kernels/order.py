"""The order in which a kernel's programs go through (row block, column block): a closed family, fitted to traces.

A program's number is that of its grid index with some axes faster than others. Within that, `group` blocks of rows are
visited column by column before the next group: 1 is row-major, 0 (all) column-major; anything between is the grouped
order of Triton's matrix multiplication tutorial. `across` exchanges the roles: groups of columns. `turned`: an older
form of the tutorial, which begins each column of a ragged group elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations

from chunkdsl.record import record

Program = tuple[int, int, int]
WIDEST_GROUP = 64


@record
class Order:
    """`axes`: grid axes, fastest first."""

    axes: tuple[int, int, int] = (0, 1, 2)
    group: int = 1
    across: bool = False
    turned: bool = False

    def number(self, block: int, column: int, blocks: int, columns: int) -> int:
        """Number of the program of a row block and a column, 0-based, of `blocks` x `columns`. Of arrays, one each."""
        if self.across:
            block, column, blocks, columns = column, block, columns, blocks
        group = self.group or max(1, blocks)
        first = block // group * group
        left = blocks - first
        height = left + (group - left) * (left > group)  # the lesser, of arrays too
        within = block - first
        if self.turned:
            within = (within - first * columns) % height
        return first * columns + column * height + within

    def program(self, number: int, grid: Program) -> Program:
        """Grid index of a program's number. Of arrays, one each."""
        index = [0, 0, 0]
        for axis in self.axes:
            index[axis] = number % grid[axis]
            number //= grid[axis]
        return tuple(index)

    def __str__(self) -> str:
        what = "columns" if self.across else "rows"
        if self.group == 1:
            return "column by column" if self.across else "row by row"
        return f"groups of {self.group} {what}" if self.group else "all rows of a column first"


def orders(grid: Program) -> Iterator[Order]:
    """Candidates, simplest first; axes of size 1 keep their place."""
    long = [a for a in range(3) if grid[a] > 1]
    short = [a for a in range(3) if grid[a] == 1]
    for axes in permutations(long):
        chosen = (*axes, *short)
        yield Order(chosen, 1)
        yield Order(chosen, 0)
        for group in range(2, WIDEST_GROUP + 1):
            for across in (False, True):
                for turned in (False, True):
                    yield Order(chosen, group, across, turned)


def fits(order: Order, placed: Mapping[Program, int], grid: Program, blocks: int) -> bool:
    """Does the order give every program the row block that it was seen with? One that stored nothing, as in a grid that
    is wider than the result, may belong to any."""
    columns, rest = divmod(grid[0] * grid[1] * grid[2], blocks)
    if rest:
        return False
    return all(
        placed.get(order.program(order.number(block, column, blocks, columns), grid), block) == block
        for block in range(blocks)
        for column in range(columns)
    )
