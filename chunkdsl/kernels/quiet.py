"""Which statements of a kernel touch no memory, themselves or by what they call? The first that may is found.

Such statements may run or not as data has it: only values follow. A call that is not understood may touch memory. Names
are looked up as the kernel looks them up, in its module.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping

from triton.runtime.jit import JITFunction

from chunkdsl.parsing import parse_python

MEMORY = ("load", "store", "atomic", "gather", "scatter", "asm", "barrier", "prefetch", "async", "extra", "gdc",
          "fence", "wait", "arrive", "extern")  # fmt: skip
STEERING = (ast.Return, ast.Break, ast.Continue, ast.Raise, ast.Try, ast.With, ast.FunctionDef, ast.Lambda, ast.Await,
            ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal, ast.Delete, ast.Import, ast.ImportFrom)  # fmt: skip


def first_touch(nodes: Iterable[ast.AST], space: Mapping[str, object]) -> ast.AST | None:
    """The first part of these statements that may touch memory, or leaves them; None if there is none. `space`: the
    module's names."""
    return _first(nodes, space, frozenset())


def _first(nodes: Iterable[ast.AST], space: Mapping[str, object], under_way: frozenset[Callable]) -> ast.AST | None:
    found = [n for node in nodes for n in ast.walk(node) if not _harmless(n, space, under_way)]
    return min(found, key=lambda n: (n.lineno, n.col_offset), default=None)


def _harmless(node: ast.AST, space: Mapping[str, object], under_way: frozenset[Callable]) -> bool:
    if isinstance(node, STEERING):
        return False
    if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
        return False
    if not isinstance(node, ast.Call):
        return True
    names = _dotted(node.func)
    if len(names) != 1:  # of the language, or a method of a value
        return bool(names) and not any(word in name for name in names for word in MEMORY)
    called = space.get(names[0], getattr(builtins, names[0], None))
    if getattr(called, "__triton_builtin__", False):  # by a bare name
        return not any(word in called.__name__ for word in MEMORY)
    if not isinstance(called, JITFunction):
        return called is not None and (inspect.isclass(called) or inspect.isbuiltin(called))
    return called.fn not in under_way and _is_quiet(called.fn, under_way)


def _is_quiet(fn: Callable, under_way: frozenset[Callable]) -> bool:
    (definition,) = parse_python(textwrap.dedent(inspect.getsource(fn))).body
    body = [n for n in definition.body if not isinstance(n, ast.Return)]
    returned = [n.value for n in definition.body if isinstance(n, ast.Return) and n.value]
    return _first([*body, *returned], fn.__globals__, under_way | {fn}) is None


def _dotted(node: ast.expr) -> list[str]:
    """The names of `tl.math.exp`; of a method of a value the method's. Nothing for what is worked out first."""
    if isinstance(node, ast.Name):
        return [node.id]
    if not isinstance(node, ast.Attribute):
        return []
    return [*(_dotted(node.value) or ["value"]), node.attr]
