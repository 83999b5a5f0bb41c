"""Constants of a kernel's file that may be something else on another machine: `torch.cuda.is_available()`.

A generated module holds their text, and works them out anew where it runs; the kernel was looked at here.
"""

from __future__ import annotations

import ast

CALLED = frozenset(
    """
    constexpr cdiv next_power_of_2 finfo iinfo int float bool str tuple list dict set frozenset len range min max sum
    abs round sorted zip
    """.split()
)
OF_A_MACHINE = frozenset("cuda xpu mps version __version__ backends runtime knobs driver".split())


def elsewhere(node: ast.AST | None) -> ast.expr | None:
    """The part of a constant's value that a machine may decide; None if there is none."""
    for n in ast.walk(node) if node else ():
        if isinstance(n, ast.Attribute | ast.Name) and getattr(n, "attr", getattr(n, "id", "")) in OF_A_MACHINE:
            return n
        if isinstance(n, ast.Call):
            name = ast.unparse(n.func)
            if name.split(".")[-1] not in CALLED and not name.startswith("math."):
                return n
    return None
