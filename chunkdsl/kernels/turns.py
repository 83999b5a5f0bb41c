"""Loops over the rows of a gathered argument: may a kernel wait for them chunk by chunk, inside the loop?

It may where every load of the gathered arguments stands in such a loop: its round with value v reads rows lead * v up
to lead * v + each of all of them that it reads, for all programs and sizes traced. There may be several, one behind the
other: keys in one, values in the next. They go on in turns, one for each chunk (`turn_splices`). Any other kernel that
reads any rows waits for all of them before it starts; nothing is refused here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from chunkdsl.kernels.source import KernelSource
from chunkdsl.record import record

if TYPE_CHECKING:
    from chunkdsl.kernels.trace import Touch


@record
class Loop:
    """A `for` over a `range` in `function`. Lines are of the kernel's file: of the statement, of its body."""

    function: str
    line: int
    begin: int
    end: int
    variable: str


@record
class Turns:
    """A loop whose rounds read whole blocks of `each` rows of the gathered arguments `names`: value v reads those that
    begin with row `lead` * v."""

    function: str
    line: int
    lead: int
    each: int
    names: tuple[str, ...] = ()


def candidate_loops(source: KernelSource) -> tuple[Loop, ...]:
    """Loops that can be cut into turns, outer ones first."""
    found = []
    for function in source.needed:
        if isinstance(function, ast.FunctionDef):
            for node, around in loops_in(function.body, ()):
                if divisible(source, function, node, around):
                    first, last = node.body[0].lineno, node.end_lineno
                    found.append(Loop(function.name, node.lineno, first, last, node.target.id))
    return tuple(found)


def loops_in(body: Sequence[ast.stmt], around: tuple[ast.For, ...]) -> Iterator[tuple[ast.For, tuple[ast.For, ...]]]:
    """(loop, loops around it)."""
    for node in body:
        inside = around
        if isinstance(node, ast.For):
            yield node, around
            inside = (*around, node)
        for part in ("body", "orelse"):
            yield from loops_in(getattr(node, part, ()), inside)


def divisible(source: KernelSource, function: ast.FunctionDef, node: ast.For, around: tuple[ast.For, ...]) -> bool:
    """Do the splices keep its meaning? Its bounds are the same in every round, its variable is its own, its body stands
    on lines of its own. A loop that the compiler specialises or flattens keeps its form: a wait does not fit in."""
    call = node.iter
    if not (isinstance(call, ast.Call) and isinstance(node.target, ast.Name) and not node.orelse):
        return False
    if getattr(call.func, "attr", getattr(call.func, "id", "")) != "range" or not 1 <= len(call.args) <= 3:
        return False
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg in KEPT for k in call.keywords):
        return False
    if any(option(loop, "flatten") or option(loop, "warp_specialize") for loop in (node, *around)):
        return False
    inside = [n for part in node.body for n in ast.walk(part)]
    hints = {id(n.targets[0]) for n in inside if isinstance(n, ast.Assign) and hint(n, node.target.id)}
    stored = {n.id for n in inside if isinstance(n, ast.Name) and stores(n) and id(n) not in hints}
    named = {n.id for a in call.args for n in ast.walk(a) if isinstance(n, ast.Name)}
    if stored & (named | {node.target.id}) or node.target.id in named or read_outside(function, node):
        return False
    before = source.text.splitlines()[node.lineno - 1].encode()[: node.col_offset]
    first = node.body[0]
    return not before.strip(b" ") and first.lineno > call.end_lineno and first.col_offset >= node.col_offset + 2


KEPT = (None, "arg1", "arg2", "step")  # bounds that are given by name, or in a dict


HINTS = ("multiple_of", "max_contiguous", "max_constancy")


def hint(node: ast.Assign, name: str) -> bool:
    """`start = tl.multiple_of(start, BN)` gives a variable its own value."""
    call, target = node.value, node.targets[0]
    if not (len(node.targets) == 1 and isinstance(target, ast.Name) and isinstance(call, ast.Call) and call.args):
        return False
    first = call.args[0]
    same = target.id == name and isinstance(first, ast.Name) and first.id == name
    return same and getattr(call.func, "attr", "") in HINTS


def stores(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def option(loop: ast.For, name: str) -> bool:
    keywords = loop.iter.keywords if isinstance(loop.iter, ast.Call) else ()
    return any(k.arg == name and not (isinstance(k.value, ast.Constant) and not k.value.value) for k in keywords)


def read_outside(function: ast.FunctionDef, node: ast.For) -> bool:
    inside = {id(n) for n in ast.walk(node)}
    name = node.target.id
    return any(isinstance(n, ast.Name) and n.id == name and id(n) not in inside for n in ast.walk(function))


# ---- what was traced


def fit_turns(loops: Sequence[Loop], names: Sequence[str], touches: Sequence[Sequence[Touch]]) -> tuple[Turns, ...]:
    """The loops, outer ones before those in them, that hold all loads of the arguments `names` in all traces, in the
    order in which programs come to them. None if a load is left over."""
    left = loads = [[t for t in part if t.argument in names] for part in touches]
    begins: dict[Turns, int] = {}
    for number, loop in enumerate(loops):
        inside = [[t for t in part if number in t.rounds] for part in left]
        read = sorted({t.argument for part in inside for t in part}, key=names.index)
        found = {fit_loop(number, loop, [[t for t in part if t.argument == n] for part in inside]) for n in read}
        if len(found) != 1 or None in found:
            continue
        begins[replace(found.pop(), names=tuple(read))] = min(first_round(part, number) for part in loads)
        left = [[t for t in part if number not in t.rounds] for part in left]
    return () if any(left) else tuple(sorted(begins, key=begins.get))


def first_round(touches: Sequence[Touch], number: int) -> int:
    """Which of a trace's loads is the first in a loop."""
    return next((i for i, t in enumerate(touches) if number in t.rounds), len(touches))


def fit_loop(number: int, loop: Loop, traces: Sequence[Sequence[Touch]]) -> Turns | None:
    starts: dict[int, int] = {}
    for part in traces:
        for t in part:
            value, first = t.rounds[number], int(t.rows[0])
            starts[value] = min(starts.get(value, first), first)
    values = sorted(starts)
    if len(values) < 2 or not all(rises(part, number) for part in traces):
        return None
    step = min(b - a for a, b in pairwise(values))
    lead, rest = divmod(starts[values[1]] - starts[values[0]], values[1] - values[0])
    each = lead * step
    if rest or lead < 1:
        return None
    for part in traces:
        for t in part:
            first = lead * t.rounds[number]
            if first % each or int(t.rows[0]) < first or int(t.rows[-1]) >= first + each:
                return None
    return Turns(loop.function, loop.line, lead, each)


def rises(touches: Sequence[Touch], number: int) -> bool:
    """Does every program go through the rounds upwards? It may go through them again."""
    seen: dict[tuple, list[int]] = {}
    for t in touches:
        seen.setdefault(t.program, []).append(t.rounds[number])
    for values in seen.values():
        change = next((b - a for a, b in pairwise(values) if a != b), 1)
        if change < 0:
            return False
    return True


def loops_by_function(loops: Sequence[Loop]) -> Mapping[str, list[tuple[int, Loop]]]:
    found: dict[str, list[tuple[int, Loop]]] = {}
    for number, loop in enumerate(loops):
        found.setdefault(loop.function, []).append((number, loop))
    return found
