"""What of a traced value stems from memory: taint of handles of the interpreter, and how arithmetic passes it on.

A handle bears its mark in `attr`: None for what follows from sizes, constants and program ids, else a `Taint`. One that
nobody marked counts as tainted, so what is overlooked is refused, not believed. Nothing is decided here (`addresses`).

Of an index that is loaded something stays known: `group * K` is a multiple of K. A tainted integer or address is known
modulo `modulus` (0: exactly, 1: not at all), by the congruence domain of Granger, "Static analysis of arithmetical
congruences" (1989). Integers are taken not to overflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

from chunkdsl.record import record

TensorHandle = upstream.TensorHandle
MARK = "taint"


@record
class Taint:
    """`source` says what brought it: "loads it from X" in line `line` of the kernel's file. `argument`: the one that a
    tainted address stays in, "" where that shows of none."""

    line: int | None
    source: str
    modulus: int = 1
    argument: str = ""

    def __str__(self) -> str:
        return f"line {self.line} {self.source}" if self.line else self.source


NESTED = (list, tuple, upstream.BlockPointerHandle, upstream.TensorDescHandle)
UNKNOWN = Taint(None, "where it comes from does not show")


def taint_of(handle: TensorHandle) -> Taint | None:
    return handle.attr.get(MARK, UNKNOWN)


def mark(value, taint: Taint | None) -> None:
    """Every handle in what a builder's method returned."""
    for handle in handles_in(value):
        handle.attr[MARK] = taint


def handles_in(value) -> Iterator[TensorHandle]:
    """The handles inside an argument of the builder; of a block pointer or descriptor those that say where it is."""
    if isinstance(value, TensorHandle):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from handles_in(item)
    elif isinstance(value, upstream.BlockPointerHandle):
        yield from handles_in((value.base, value.shape, value.strides, value.offsets))
    elif isinstance(value, upstream.TensorDescHandle):
        yield from handles_in((value.base, value.shape, value.strides))
    elif isinstance(value, tl.core.base_value):
        yield from handles_in(value.values if isinstance(value, tl.tuple) else getattr(value, "handle", None))


def tainted(values) -> bool:
    """Whether any handle in these is; handles that stand there themselves, nearly all, are looked at without ado."""
    for value in values:
        if type(value) is TensorHandle:
            if value.attr.get(MARK, UNKNOWN) is not None:
                return True
        elif value.__class__ in NESTED and any(taint_of(h) for h in handles_in(value)):
            return True
    return False


def joined(values) -> Taint | None:
    """Of something that depends on all of these in a way that is not known."""
    found = next((t for t in map(taint_of, handles_in(values)) if t), None)
    return found and Taint(found.line, found.source)


def known_modulo(values, modulus: int) -> Taint | None:
    """The same, where the outcome is known modulo `modulus`, and an address stays where those of `values` are."""
    taints = [t for t in map(taint_of, handles_in(values)) if t]
    if not taints:
        return None
    arguments = {t.argument for t in taints}
    return Taint(taints[0].line, taints[0].source, modulus, arguments.pop() if len(arguments) == 1 else "")


def moduli(values) -> list[int]:
    return [t.modulus if t else 0 for t in map(taint_of, handles_in(values))]


# ---- rules: (arguments of the builder's method, what it returned) -> taint of that


def same(args, out) -> Taint | None:
    """Moved, added or subtracted: what is known of all is known of the outcome."""
    return known_modulo(args, gcd(*moduli(args)))


def product(args, out) -> Taint | None:
    """(a + m u)(b + n v) with a, b known: modulo the common divisor of a n, b m and m n."""
    (a, b), (m, n) = args[:2], moduli(args[:2])
    return known_modulo(args, gcd(divisor(a) * n, divisor(b) * m, m * n))


def divisor(handle: TensorHandle) -> int:
    """Of all elements of an exact value; 1 of anything else that is no integer."""
    data = handle.data
    if data.dtype.kind not in "iu":
        return 1
    return int(np.gcd.reduce(data, axis=None)) if data.size else 0


def cast(args, out) -> Taint | None:
    """Widened or narrowed: no overflow is taken to happen, but what becomes a float and back may be rounded."""
    kept = args[0].data.dtype.kind in "iu" and out.data.dtype.kind in "iu"
    return same(args[:1], out) if kept and out.data.itemsize >= args[0].data.itemsize else joined(args)


def selected(args, out) -> Taint | None:
    """`tl.where`: one of two by what is known, or by data."""
    return joined(args) if taint_of(args[0]) else same(args[1:3], out)


MOVED = ("splat", "unsplat", "broadcast", "expand_dims", "reshape", "trans", "cat", "join", "split", "add", "sub")
RULES = {f"create_{name}": same for name in MOVED}
RULES |= {"create_mul": product, "create_select": selected, "create_int_cast": cast, "cast_impl": cast}
