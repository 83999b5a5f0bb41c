"""Early returns: `if CONDITION: return` at the top level of a kernel, as most kernels of libraries have it.

The rewritten kernel is called once for each ticket, inside a loop, where a return has no place. So the rest goes under
an `else:`, its lines moved to the right and otherwise as they are. A return inside a loop, or behind assignments in its
branch (to names that the rest may assign too, with other types), is a KernelFault.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from chunkdsl.kernels.fault import KernelFault

Edit = tuple[int, int, str]
At = Callable[[int, int], int]  # offset of (line, column)
STEP = 4  # columns


def early_returns(kernel: ast.FunctionDef) -> tuple[ast.stmt, ...]:
    """Statements of the kernel's top level that end with a return, in their order."""
    found = []
    for node in kernel.body:
        if any(isinstance(n, ast.Return) for n in ast.walk(node)):
            if not (is_guard(node) or (node is kernel.body[-1] and is_return(node))):
                line = next(n.lineno for n in ast.walk(node) if isinstance(n, ast.Return))
                mend = "put the rest under `if`, or write `if ...: return` at the top level of the kernel"
                raise KernelFault("returns early", line, mend)
            found.append(node)
    return tuple(found)


def is_guard(node: ast.stmt) -> bool:
    if not (isinstance(node, ast.If) and not node.orelse and is_return(node.body[-1])):
        return False
    return all(isinstance(n, ast.Expr) for n in node.body[:-1])


def is_return(node: ast.stmt) -> bool:
    return isinstance(node, ast.Return) and node.value is None


def pass_edits(guards: Sequence[ast.stmt], at: At) -> Iterator[Edit]:
    """`pass` in the place of each return."""
    for node in guards:
        last = node.body[-1] if isinstance(node, ast.If) else node
        yield at(last.lineno, last.col_offset), at(last.end_lineno, last.end_col_offset), "pass"


def rest_edits(text: str, kernel: ast.FunctionDef, guards: Sequence[ast.stmt], at: At, mark: str) -> Iterator[Edit]:
    """An `else:` behind each `if`, and the lines behind it moved to the right. Lines inside a text stay."""
    inside = {line for n in ast.walk(kernel) if isinstance(n, ast.Constant | ast.JoinedStr)
              for line in range(n.lineno + 1, n.end_lineno + 1)}  # fmt: skip
    lines = text.splitlines()
    behind = {g.end_lineno + 1: g for g in guards if isinstance(g, ast.If) and g is not kernel.body[-1]}
    named = dict(aliases(kernel, guards))
    held: dict[str, str] = {}
    for line in range(kernel.body[0].lineno, kernel.end_lineno + 1):
        guard, moved = behind.get(line), lines[line - 1].strip() and line not in inside
        new = " " * (guard.col_offset + depth(guards, guard.lineno)) + f"else:{mark}\n" if guard else ""
        for name, alias in named[guard].items() if guard else ():
            new += " " * (guard.col_offset + depth(guards, line)) + f"{alias} = {held.get(name, name)}{mark}\n"
            held[name] = alias
        new += " " * depth(guards, line) if moved else ""
        if new:
            yield at(line, 0), at(line, 0), new


def aliases(kernel: ast.FunctionDef, guards: Sequence[ast.stmt]) -> list[tuple[ast.If, dict[str, str]]]:
    """Of each guard the names that had a value before it and get another one behind it, which Triton wants to be of one
    type where a branch does so: they have a name of their own there."""
    held = {a.arg for a in ast.walk(kernel.args) if isinstance(a, ast.arg)}
    found = []
    for number, node in enumerate(kernel.body):
        if node in guards and isinstance(node, ast.If):
            behind = {name for part in kernel.body[number + 1 :] for name in stored_in(part)}
            found.append((node, {name: f"{name}_behind_{node.lineno}" for name in sorted(held & behind)}))
        held |= stored_in(node) if isinstance(node, ast.Assign) else set()
    return found


def names_in(node: ast.AST) -> list[ast.Name]:
    return [n for n in ast.walk(node) if isinstance(n, ast.Name)]


def stored_in(node: ast.AST) -> set[str]:
    return {n.id for n in names_in(node) if isinstance(n.ctx, ast.Store)}


def alias_edits(kernel: ast.FunctionDef, guards: Sequence[ast.stmt], at: At) -> Iterator[Edit]:
    named = aliases(kernel, guards)
    for node in kernel.body:
        for n in names_in(node):
            alias = next((a[n.id] for g, a in reversed(named) if g.end_lineno < n.lineno and n.id in a), None)
            if alias:
                yield at(n.lineno, n.col_offset), at(n.end_lineno, n.end_col_offset), alias


def depth(guards: Sequence[ast.stmt], line: int) -> int:
    """Columns by which a line is moved to the right."""
    return STEP * sum(isinstance(g, ast.If) and g.end_lineno < line for g in guards)
