"""Branches that a kernel's pinned constants rule out: `if ACTIVATION == "gelu":` with ACTIVATION = "id".

Triton compiles nothing of them, so what only they name need not be in a module. Tests over constants, numbers and texts
alone are looked at; any other branch may run.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

PLAIN = (ast.Expression, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Not, ast.And, ast.Or, ast.cmpop, ast.Constant,
         ast.Name, ast.Load)  # fmt: skip


def dead_nodes(function: ast.FunctionDef, constants: frozenset[str], pinned: Mapping[str, object] | None) -> set[int]:
    """`id`s of the nodes that never run with these values. `pinned` None: the values are not known yet, and every
    branch of a test over `constants` may be such a one."""
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    known = constants - stored
    found: set[int] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.If | ast.IfExp) and decided(node.test, known if pinned is None else known & {*pinned}):
            branches = [node.body, node.orelse]
            if pinned is not None:
                branches = branches[1:] if truth(node.test, pinned) else branches[:1]
            for branch in branches:
                for part in branch if isinstance(branch, list) else [branch]:
                    found |= {id(n) for n in ast.walk(part)}
    return found


def decided(test: ast.expr, known: frozenset[str]) -> bool:
    nodes = list(ast.walk(test))
    return all(isinstance(n, PLAIN) for n in nodes) and {n.id for n in nodes if isinstance(n, ast.Name)} <= known


def truth(test: ast.expr, values: Mapping[str, object]) -> bool:
    return bool(eval(compile(ast.Expression(test), "<constants>", "eval"), {"__builtins__": {}}, dict(values)))
