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
from typing import Protocol

import triton
from triton.runtime import interpreter as upstream

from chunkdsl.interp.libdevice import stands_for
from chunkdsl.parsing import parse_python

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


def rewritten(fn: Callable, form: Form | None = None) -> Callable:
    """The interpretable form of the Python function inside a `@triton.jit` function, made once for each `form`.

    Raises TypeError if the source cannot be read."""
    forms = _rewritten.setdefault(fn, {})
    if form not in forms:
        forms[form] = _rewrite(fn, form)
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


def _rewrite(fn: Callable, form: Form | None) -> Callable:
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError) as error:
        raise TypeError(f"the source of kernel {fn.__qualname__} cannot be read: {error}") from error
    tree = parse_python(textwrap.dedent("".join(lines)))
    definition = tree.body[0]
    definition.decorator_list = []
    more = dict(form.names) if form else {}
    body = form.statements(definition.body, fn) if form else definition.body
    definition.body = [_Values().visit(statement) for statement in body]
    # A factory hands over `_TENSOR` and the free variables, so that the module's globals stay as they are.
    more |= {n: f for n in fn.__code__.co_names if (f := stands_for(fn.__globals__.get(n))) is not None}
    names = [_TENSOR, *more, *fn.__code__.co_freevars]
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
    ast.increment_lineno(module, first - 1)
    filename = fn.__code__.co_filename
    space: dict[str, object] = {}
    flags = fn.__code__.co_flags & _FUTURE_ANNOTATIONS
    exec(compile(module, filename, "exec", flags=flags, dont_inherit=True), fn.__globals__, space)
    _files.add(filename)
    cells = [cell.cell_contents for cell in fn.__closure__ or ()]
    return space["__factory"](_to_tensor, *more.values(), *cells)


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
