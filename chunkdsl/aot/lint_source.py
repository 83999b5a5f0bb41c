"""Lints over a kernel's Python source, for faults of the front end that leave no trace in the compiler's output."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from chunkdsl.aot.findings import lint_rule
from chunkdsl.parsing import parse_python

Found = Iterator[tuple[int, str, str]]


@lint_rule("loop-carried-copy", "source")
def loop_carried_copies(text: str) -> Found:
    """`prev = x` before a loop and again in it makes `prev` loop-invariant, silently.

    Triton finds carried names by comparing values: on entry `prev` and `x` are one value, so the copy in the body
    looks like no change (Triton and Gluon, 3.6 to 3.9). Start `prev` from a value of its own, or compute it.
    """
    lines = text.splitlines()
    for function in _kernels(text):
        for loop in (n for n in ast.walk(function) if isinstance(n, ast.For | ast.While)):
            before = _aliases(function, loop)
            for node in ast.walk(loop):
                pair = _plain_copy(node)
                if pair is None or not _same(*pair, before):
                    continue
                name, source = pair
                changes = [n.lineno for n in ast.walk(loop) if source in _bound(n)]
                if changes and min(changes) >= node.lineno:
                    yield (
                        node.lineno,
                        lines[node.lineno - 1],
                        f"{name} keeps the value that {source} had before the loop",
                    )


@lint_rule("carried-bound", "source")
def carried_bounds(text: str) -> Found:
    """A loop does not set the bound of a loop inside it to a number that it had not before.

    Gluon of triton 3.6 and 3.7 takes such a bound for one that never changes: the inner loop keeps running from, or to,
    where it did in the first round. Use `gl.where(round == first, start, 0)`.
    """
    lines = text.splitlines()
    for function in _kernels(text):
        for outer in (n for n in ast.walk(function) if isinstance(n, ast.For | ast.While)):
            before = {name for node in _statements_before(function, outer) for name in _bound(node)}
            inner = [n for n in ast.walk(outer) if isinstance(n, ast.For) and n is not outer]
            bounds = {n.id for loop in inner for n in ast.walk(loop.iter) if isinstance(n, ast.Name)} & before
            for node in ast.walk(outer):
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                    for name in sorted(_bound(node) & bounds):
                        yield node.lineno, lines[node.lineno - 1], f"{name}, a bound inside, keeps its first value"


@lint_rule("flattened-loop-carries", "source")
def flattened_loops(text: str) -> Found:
    """A flattened loop carries at most one flag, and no `tl.debug_barrier`.

    Two names that start from one constant are merged, and the epilogue reads the prefetch stage's value: results
    stay right, signals are lost. The barrier switches pipelining off; `bar.sync 0` in inline asm does not.
    """
    lines = text.splitlines()
    for function in _kernels(text):
        for loop in (n for n in ast.walk(function) if isinstance(n, ast.For) and _is_flattened(n.iter)):
            for node in ast.walk(loop):
                if isinstance(node, ast.Call) and _called(node) == "debug_barrier":
                    yield node.lineno, lines[node.lineno - 1], "a barrier in a flattened loop: it is not pipelined"
            start = _constants(function, loop)
            carried = {b for n in ast.walk(loop) for b in _bound(n)} & set(start)
            for value in sorted({start[c] for c in carried}):
                names = sorted(c for c in carried if start[c] == value)
                if len(names) > 1:
                    yield (
                        loop.lineno,
                        lines[loop.lineno - 1],
                        f"carries {' and '.join(names)}, all from {value}",
                    )


@lru_cache(maxsize=1)  # each lint asks for those of the same text
def _kernels(text: str) -> tuple[ast.FunctionDef, ...]:
    functions = (n for n in ast.walk(parse_python(text)) if isinstance(n, ast.FunctionDef))
    return tuple(f for f in functions if any("jit" in ast.unparse(d) for d in f.decorator_list))


def _statements_before(function: ast.FunctionDef, loop: ast.AST) -> Iterator[ast.AST]:
    yield from sorted(
        (n for n in ast.walk(function) if isinstance(n, ast.stmt) and n.lineno < loop.lineno and n is not function),
        key=lambda n: (n.lineno, n.col_offset),
    )


def _aliases(function: ast.FunctionDef, loop: ast.AST) -> dict[str, str]:
    """For each name bound before the loop, the name whose value it holds (itself unless a plain copy)."""
    held: dict[str, str] = {}
    for node in _statements_before(function, loop):
        pair = _plain_copy(node)
        for name in _bound(node):
            held = {k: v for k, v in held.items() if v != name or k == name}
            held[name] = held.get(pair[1], pair[1]) if pair else name
    return held


def _same(one: str, two: str, held: dict[str, str]) -> bool:
    return one != two and one in held and held.get(one, one) == held.get(two, two)


def _constants(function: ast.FunctionDef, loop: ast.AST) -> dict[str, str]:
    """Names whose last binding before the loop is a literal number, with its text."""
    start: dict[str, str] = {}
    for node in _statements_before(function, loop):
        for name in _bound(node):
            start.pop(name, None)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.UnaryOp):
                start[name] = ast.unparse(node.value)
    return start


def _plain_copy(node: ast.AST) -> tuple[str, str] | None:
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        if isinstance(node.value, ast.Name):
            return node.targets[0].id, node.value.id
    return None


def _bound(node: ast.AST) -> set[str]:
    targets = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _is_flattened(call: ast.AST) -> bool:
    keywords = call.keywords if isinstance(call, ast.Call) else []
    return any(k.arg == "flatten" and not (isinstance(k.value, ast.Constant) and not k.value.value) for k in keywords)


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
