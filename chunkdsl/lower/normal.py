"""Arithmetic on symbolic sizes in a normal form, so that equal sizes are equal values. Judges nothing.

A size is a polynomial with integer coefficients over atoms: run-time dims, and divisions and remainders that do not
come out even. `M + M`, `2 * M` and `M * 2` become one and the same `SizeOp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from chunkdsl.ir.types import DimRange, DimRef, SizeOp, SymSize

Polynomial = dict[tuple[SymSize, ...], int]  # product of atoms, sorted by their text -> coefficient

FACTORS, TERMS, LEVELS = 8, 32, 4  # keep the trees that come out shallow enough to walk by recursion


class TooComplex(Exception):
    """A size beyond `FACTORS`, `TERMS` or `LEVELS`."""


def combine(op: str, a: SymSize, b: SymSize) -> SymSize:
    """`a op b` in normal form; `/` rounds up. ZeroDivisionError for a literal zero, TooComplex past the limits."""
    if isinstance(a, int) and isinstance(b, int):
        match op:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
            case "/":
                return -(-a // b)
            case _:
                return a % b
    if op in ("/", "mod"):
        return _divide(op, a, b)
    p, q = polynomial(a), polynomial(b)
    if op == "*":
        product: Polynomial = {}
        for m, c in p.items():
            for n, d in q.items():
                factors = tuple(sorted((*m, *n), key=str))
                if len(factors) > FACTORS:
                    raise TooComplex
                product[factors] = product.get(factors, 0) + c * d
        return from_polynomial(product)
    sign = 1 if op == "+" else -1
    total = dict(p)
    for m, c in q.items():
        total[m] = total.get(m, 0) + sign * c
    return from_polynomial(total)


def polynomial(size: SymSize) -> Polynomial:
    if isinstance(size, int):
        return {(): size} if size else {}
    if isinstance(size, DimRef) or size.op in ("/", "mod"):
        return {(size,): 1}
    return _split(size)


@lru_cache(maxsize=4096)
def _split(size: SizeOp) -> Polynomial:
    p, q = polynomial(size.left), polynomial(size.right)
    if size.op == "*":
        return {tuple(sorted((*m, *n), key=str)): c * d for m, c in p.items() for n, d in q.items()}
    sign = 1 if size.op == "+" else -1
    return {**p, **{m: sign * c for m, c in q.items()}}


def from_polynomial(terms: Polynomial) -> SymSize:
    """The normal form: positive terms first, each by its text, a constant last."""
    live = {m: c for m, c in terms.items() if c}
    if len(live) > TERMS:
        raise TooComplex
    if not live:
        return 0
    order = sorted(live, key=lambda m: (live[m] < 0, not m, [str(f) for f in m]))
    size = _term(order[0], live[order[0]])
    for m in order[1:]:
        size = SizeOp("+" if live[m] > 0 else "-", size, _term(m, abs(live[m])))
    return size


def _term(factors: tuple[SymSize, ...], coefficient: int) -> SymSize:
    if not factors:
        return coefficient
    size: SymSize = factors[0]
    for f in factors[1:]:
        size = SizeOp("*", size, f)
    return size if coefficient == 1 else SizeOp("*", coefficient, size)


def _divide(op: str, a: SymSize, b: SymSize) -> SymSize:
    if b == 0:
        raise ZeroDivisionError
    if b == 1:
        return a if op == "/" else 0
    if isinstance(b, int) and b > 0:
        p = polynomial(a)
        if all(c % b == 0 for c in p.values()):
            return from_polynomial({m: c // b for m, c in p.items()}) if op == "/" else 0
        if op == "/" and isinstance(a, SizeOp) and a.op == "/" and isinstance(a.right, int):
            return _divide("/", a.left, a.right * b)  # ceil(ceil(x / c) / b) = ceil(x / (c * b))
    size = SizeOp(op, a, b)
    if _levels(size) > LEVELS:
        raise TooComplex
    return size


@lru_cache(maxsize=4096)
def _levels(size: SymSize) -> int:
    """Divisions and remainders inside one another."""
    if not isinstance(size, SizeOp):
        return 0
    return (size.op in ("/", "mod")) + max(_levels(size.left), _levels(size.right))


def bounds(size: SymSize, ranges: Mapping[str, DimRange]) -> tuple[int, int]:
    """Smallest and largest value over the declared ranges, by interval arithmetic: never too narrow, at times too wide.

    ZeroDivisionError if a divisor can be zero or negative.
    """
    if isinstance(size, int):
        return size, size
    if isinstance(size, DimRef):
        r = ranges[size.name]
        return -(-r.low // r.step) * r.step, r.high // r.step * r.step
    (a, b), (c, d) = bounds(size.left, ranges), bounds(size.right, ranges)
    match size.op:
        case "+":
            return a + c, b + d
        case "-":
            return a - d, b - c
        case "*":
            corners = (a * c, a * d, b * c, b * d)
            return min(corners), max(corners)
    if c <= 0:
        raise ZeroDivisionError
    if size.op == "/":
        corners = (-(-a // c), -(-a // d), -(-b // c), -(-b // d))
        return min(corners), max(corners)
    return 0, (b if 0 <= a and b < c else d - 1)
