"""Persistent kernels: is the outer loop one over tiles, `for tile in range(program_id, tiles, programs)`?

Such a kernel runs one tile when it is told that there are more programs than tiles, so nothing of it is rewritten.
"""

from __future__ import annotations

import ast

from chunkdsl.kernels.source import KernelSource

MANY = 1 << 30  # programs of which every one has at most one tile


def is_language_call(node: ast.AST, name: str) -> bool:
    """`tl.NAME(...)`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name


def persistent_step(source: KernelSource) -> str | None:
    """What the loop over tiles steps by: "num_programs", the name of a constexpr parameter, or None without such a
    loop."""
    values = {
        n.targets[0].id: n.value
        for n in ast.walk(source.kernel)
        if isinstance(n, ast.Assign) and len(n.targets) == 1 and isinstance(n.targets[0], ast.Name)
    }

    def meant(node: ast.AST) -> ast.AST:
        return values.get(node.id, node) if isinstance(node, ast.Name) else node

    for node in source.kernel.body:
        if not (isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and len(node.iter.args) == 3):
            continue
        start, _, step = node.iter.args
        if not is_language_call(meant(start), "program_id"):
            continue
        if is_language_call(meant(step), "num_programs"):
            return "num_programs"
        if isinstance(step, ast.Name) and step.id in source.constants:
            return step.id
    return None
