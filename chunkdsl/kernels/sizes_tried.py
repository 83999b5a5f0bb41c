"""Sizes at which a kernel is looked at: small ones that stand for large ones in traces (`footprint`), and those at
which every program is held beside them (`every_program`).

What a kernel does may hang on a size itself: on its residue, or on whether it is one number. Runs of neighbouring sizes
show the first; for the second the kernel's text says where to look, since a size is compared with what stands in it. A
size that it gets to otherwise (as a root of a polynomial) is not found.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator, Mapping
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from chunkdsl.kernels.source import KernelSource

if TYPE_CHECKING:
    from chunkdsl.kernels.footprint import Finder
    from chunkdsl.kernels.order import Order

SHORT, LONG = 160, 512  # sizes above LONG are traced at about SHORT elements, with their powers of two kept up to 256
RUN = 32  # neighbouring sizes
BLOCKS = 16  # whole blocks of rows, and one row more
RESIDUES = 256  # the largest modulus all of whose residues are tried
PROGRAMS = 1 << 13  # in all
FOLDED = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
}  # fmt: skip


def shorter(value: int) -> int:
    """A small stand-in for a large size."""
    if value <= LONG:
        return value
    power = gcd(value, 256)
    times = -(-SHORT // power)
    return power * (times + 1 - times % 2)


def alike(wanted: int, most: int, block: int) -> int:
    """A size up to `most` whose last block of `block` is as long as that of `wanted`: surplus rows of a ragged block
    show only where there is a block before it."""
    short = most - (most - wanted) % block
    return wanted if wanted <= most else short if short > 0 else most


def telling_size(finder: Finder, order: Order, other: Order, small: Mapping[str, int]):
    """(sizes with few blocks of rows, a program for which two orders of the same groups differ there), which the
    samples need not show; None if they do not differ."""
    most = finder.q.sizes[finder.row]
    for blocks in range(2, min(2 * order.group + 2, -(-most // finder.block) + 1)):
        sizes = {**small, finder.row: min(blocks * finder.block, most)}
        columns = int(np.prod(finder.grid(sizes))) // blocks
        pairs = [(b, c, blocks, columns) for b in range(blocks) for c in range(columns)]
        for pair in pairs:
            if order.number(*pair) != other.number(*pair):
                return sizes, order.program(order.number(*pair), finder.grid(sizes))
    return None


def more_sizes(finder: Finder, small: Mapping[str, int]) -> list[dict[str, int]]:
    """The most telling first, as many as PROGRAMS allow: of rows, and of each size of `ranges`, the others small."""
    numbers, moduli = numbers_of(finder.source, dict(finder.binding.constants))
    few = dict(small)
    rows = finder.row and finder.row not in finder.q.fixed
    if finder.row:
        few[finder.row] = min(finder.q.sizes[finder.row], 2 * finder.block + 1)
    others = [n for n in finder.q.ranges if n != finder.row and n in finder.q.sizes]
    found: dict[tuple[int, ...], dict[str, int]] = {}
    left = PROGRAMS
    for name in [finder.row] * bool(rows) + others:
        low, step = (1, 1) if name == finder.row else finder.q.ranges[name]
        most = finder.q.sizes[name]
        block = finder.block if name == finder.row else 1
        for value in values(numbers, moduli, low, step, most, block):
            sizes = few | {name: value}
            x, y, z = finder.grid(sizes)
            if tuple(sizes.values()) not in found and 0 < x * y * z <= left:
                left -= x * y * z
                found[tuple(sizes.values())] = sizes
    return list(found.values())


def values(numbers: set[int], moduli: set[int], low: int, step: int, most: int, block: int) -> list[int]:
    """Of a size that is `low`, or more by a multiple of `step`, up to `most`."""

    def wanted() -> Iterator[int]:
        yield from range(low, low + RUN * step, step)
        yield from sorted(numbers)
        products = {k * n for k in moduli for n in numbers}
        yield from sorted({n + d for n in numbers | products for d in (-1, 0, 1)})
        longest = max((k for k in moduli if k <= RESIDUES), default=0)
        yield from range(low, low + longest * step, step)
        for i in range(1, BLOCKS + 1):
            yield from (i * block, i * block + 1)
        for middle in (most // 2, most):
            last = middle - (middle - low) % step
            yield from range(last, last - 4 * step, -step)

    return list(dict.fromkeys(v for v in wanted() if low <= v <= most and (v - low) % step == 0))


def numbers_of(source: KernelSource, constants: Mapping[str, object]) -> tuple[set[int], set[int]]:
    """Whole numbers above 0 that stand in a kernel, its helpers and constants, or that the spec pins, and what
    operations on them alone make; and those by which something is divided, or with which it is masked."""
    known = {n: v for n, v in constants.items() if type(v) is int}
    for name, node in source.definitions.items():
        if isinstance(node, ast.Assign) and (value := folded(node.value, known)) is not None:
            known.setdefault(name, value)
    numbers, moduli = set(), set()
    for top in source.needed:
        for node in ast.walk(top):
            if id(node) in source.dead or not isinstance(node, ast.expr):
                continue
            numbers.add(folded(node, known))
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.FloorDiv):
                moduli.add(folded(node.right, known))
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
                moduli |= {1 + (folded(side, known) or 0) for side in (node.left, node.right)}
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("cdiv") and len(node.args) > 1:
                moduli.add(folded(node.args[1], known))
    return {abs(n) for n in numbers if n}, {k for k in moduli if k and k > 1}


def folded(node: ast.expr, known: Mapping[str, int]) -> int | None:
    """The whole number that an expression is, if it is one."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("constexpr") and node.args:
        return folded(node.args[0], known)
    if isinstance(node, ast.BinOp) and type(node.op) in FOLDED:
        left, right = folded(node.left, known), folded(node.right, known)
        if left is None or right is None or (isinstance(node.op, ast.FloorDiv) and not right):
            return None
        if isinstance(node.op, ast.LShift) and not 0 <= right < 62:
            return None
        return FOLDED[type(node.op)](left, right)
    return None
