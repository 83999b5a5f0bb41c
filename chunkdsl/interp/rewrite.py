"""A `@triton.jit` function's source as ordinary Python that the interpreter can call.

Assigned values and the variables of `range` loops become tensors, as they are when Triton compiles; nothing else
changes. The result sees the module's own globals (later changes too) and adds no name to them; file and line
numbers stay true. Not supported: `a = b = value`, which Triton refuses as well.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import os
import textwrap
import weakref
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import CodeType
from typing import Protocol

import triton
from triton.runtime import interpreter as upstream

from chunkdsl.interp.libdevice import stands_for
from chunkdsl.parsing import parse_python, placed

_FUTURE_ANNOTATIONS = __future__.annotations.compiler_flag
_TENSOR = "__to_tensor"
_TRITON = os.path.dirname(triton.__file__)
_rewritten: weakref.WeakKeyDictionary[Callable, dict[Form | None, Callable]] = weakref.WeakKeyDictionary()
_files: set[str] = set()


class Form(Protocol):
    """Changes of statements beyond those made here. `names`: what these may call, by name."""

    names: Mapping[str, object]

    def statements(self, body: list[ast.stmt], fn: Callable) -> list[ast.stmt]:
        """The body of `fn`, changed; it gets into no other function."""


def rewritten(fn: Callable, form: Form | None = None, holder: object = None) -> Callable:
    """The interpretable form of the Python function inside a `@triton.jit` function, made once for each `form`.
    `holder`: the `@triton.jit` function, if at hand, which has read the source.

    Raises TypeError if the source cannot be read."""
    forms = _rewritten.setdefault(fn, {})
    if form not in forms:
        forms[form] = _rewrite(fn, form, holder)
    return forms[form]


def is_kernel_file(name: str) -> bool:
    """Whether a source file holds a user's kernels that have been rewritten here."""
    return name in _files and not name.startswith(_TRITON)


def kernel_line(frame) -> tuple[str, int] | None:
    """(file name, line) of the innermost user kernel frame at or above `frame`; helpers of Triton do not count."""
    while frame is not None:
        if is_kernel_file(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def _to_tensor(value):
    return upstream.interpreter_semantic.to_tensor(value, False)


def _rewrite(fn: Callable, form: Form | None, holder: object) -> Callable:
    text, first = _source(fn, holder)
    more = dict(form.names) if form else {}
    # A factory hands over `_TENSOR` and the free variables, so that the module's globals stay as they are.
    more |= {n: f for n in fn.__code__.co_names if (f := stands_for(fn.__globals__.get(n))) is not None}
    names = (_TENSOR, *more, *fn.__code__.co_freevars)
    flags = fn.__code__.co_flags & _FUTURE_ANNOTATIONS
    if form is None:
        code = _code(text, names, flags)
    else:
        code = _compiled(text, names, flags, lambda body: form.statements(body, fn))
    filename = fn.__code__.co_filename
    space: dict[str, object] = {}
    exec(placed(code, filename, first - 1), fn.__globals__, space)
    _files.add(filename)
    cells = [cell.cell_contents for cell in fn.__closure__ or ()]
    return space["__factory"](_to_tensor, *more.values(), *cells)


def _source(fn: Callable, holder: object) -> tuple[str, int]:
    """The text of a function without its indentation, and its first line in its file."""
    held = getattr(holder, "raw_src", None), getattr(holder, "starting_line_number", None)
    try:
        lines, first = inspect.getsourcelines(fn) if None in held else held
    except (OSError, TypeError) as error:
        raise TypeError(f"the source of kernel {fn.__qualname__} cannot be read: {error}") from error
    return textwrap.dedent("".join(lines)), first


@lru_cache(maxsize=4096)
def _code(text: str, names: tuple[str, ...], flags: int) -> CodeType:
    """Helpers are the same text in every generated module."""
    return _compiled(text, names, flags, lambda body: body)


def _compiled(text: str, names: tuple[str, ...], flags: int, change: Callable) -> CodeType:
    """Defines `__factory`, which takes `names` and returns the function; line 1 is that of `text`."""
    definition = parse_python(text).body[0]
    definition.decorator_list = []
    definition.body = [_Values().visit(statement) for statement in change(definition.body)]
    factory = ast.FunctionDef(
        name="__factory",
        args=ast.arguments(
            posonlyargs=[], args=[ast.arg(arg=n) for n in names], kwonlyargs=[], kw_defaults=[], defaults=[]
        ),
        body=[definition, ast.Return(ast.Name(definition.name, ast.Load()))],
        decorator_list=[],
        type_params=[],
    )
    module = ast.fix_missing_locations(ast.Module(body=[factory], type_ignores=[]))
    return compile(module, "<kernel>", "exec", flags=flags, dont_inherit=True)


class _Values(ast.NodeTransformer):
    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        if len(node.targets) > 1:
            raise TypeError(f"line {node.lineno}: a = b = value is not Triton; write two assignments")
        self.generic_visit(node)
        node.value = _call(node.value)
        return node

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        if isinstance(node.iter, ast.Call) and isinstance(node.target, ast.Name):
            called = node.iter.func
            if getattr(called, "id", None) == "range" or getattr(called, "attr", None) == "range":
                name = node.target.id
                load = _call(ast.Name(name, ast.Load()))
                node.body.insert(0, ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], load), node))
        return node


def _call(value: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(_TENSOR, ast.Load()), [value], [])
