"""A kernel's file, parsed: the function, the helpers that it calls, the constants that these name. Nothing else of the
file is used, executed or copied into a generated module.

Decorators that choose a configuration (`autotune`, `heuristics`) are left out: the spec pins the configuration.
"""

from __future__ import annotations

import ast
import builtins
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

from chunkdsl.kernels.fault import KernelFault
from chunkdsl.parsing import parse_python

IMPORTABLE = ("triton", "torch", "math")
CHOOSERS = ("autotune", "heuristics")


@dataclass(frozen=True)
class KernelSource:
    """`path` as the spec gives it (for messages), `file` where it lies, `function` the kernel's name."""

    path: str
    file: Path
    text: str
    function: str

    @cached_property
    def tree(self) -> ast.Module:
        """KernelFault for text that is not Python."""
        try:
            return parse_python(self.text)
        except SyntaxError as error:
            raise KernelFault(f"not Python: {error.msg}", error.lineno) from None

    @cached_property
    def definitions(self) -> dict[str, ast.stmt]:
        """Top-level functions and simple assignments by name."""
        found: dict[str, ast.stmt] = {}
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef):
                found[node.name] = node
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {t.id: node for t in targets if isinstance(t, ast.Name)}
        return found

    @cached_property
    def imports(self) -> dict[str, tuple[ast.stmt, str]]:
        """Imported names: (statement, one line that imports this name alone)."""
        found: dict[str, tuple[ast.stmt, str]] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    name = alias.asname or alias.name.split(".")[0]
                    text = f"import {alias.name}"
                    if isinstance(node, ast.ImportFrom):
                        text = f"from {node.module} {text}"
                    found[name] = node, text + (f" as {alias.asname}" if alias.asname else "")
        return found

    @cached_property
    def kernel(self) -> ast.FunctionDef:
        """The kernel's definition. KernelFault where there is none, or it is not jitted."""
        node = self.definitions.get(self.function)
        if not isinstance(node, ast.FunctionDef):
            known = [n for n, d in self.definitions.items() if isinstance(d, ast.FunctionDef) and is_jitted(d)]
            raise KernelFault(f"has no function `{self.function}`", None, f"it has {', '.join(known) or 'no kernel'}")
        if not is_jitted(node):
            raise KernelFault(f"`{self.function}` is not decorated with @triton.jit", node.lineno)
        return node

    @cached_property
    def parameters(self) -> tuple[ast.arg, ...]:
        a = self.kernel.args
        if a.vararg or a.kwarg:
            raise KernelFault("takes a variable number of arguments", self.kernel.lineno, "name every parameter")
        return (*a.posonlyargs, *a.args, *a.kwonlyargs)

    @cached_property
    def constants(self) -> frozenset[str]:
        """Names of `tl.constexpr` parameters."""
        return frozenset(p.arg for p in self.parameters if p.annotation and "constexpr" in ast.unparse(p.annotation))

    @cached_property
    def defaults(self) -> dict[str, ast.expr]:
        a = self.kernel.args
        plain = (*a.posonlyargs, *a.args)
        pairs = dict(zip([p.arg for p in plain[len(plain) - len(a.defaults) :]], a.defaults, strict=True))
        return pairs | {p.arg: d for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None}

    @cached_property
    def needed(self) -> tuple[ast.stmt, ...]:
        """The kernel and all that it needs of its file, in the file's order. KernelFault for what cannot be copied."""
        wanted: dict[int, ast.stmt] = {}
        queue: list[ast.stmt] = [self.kernel]
        while queue:
            node = queue.pop()
            if id(node) in wanted:
                continue
            wanted[id(node)] = node
            if isinstance(node, ast.FunctionDef) and not is_jitted(node):
                raise KernelFault(f"`{node.name}` is not a Triton function", node.lineno, "decorate it: @triton.jit")
            for name, line in self.free_names(node):
                if name in self.definitions:
                    queue.append(self.definitions[name])
                elif name in self.imports:
                    self.check_import(name, line)
                elif not hasattr(builtins, name):
                    raise KernelFault(f"`{name}` is defined nowhere in this file", line)
        return tuple(n for n in self.tree.body if id(n) in wanted)

    def check_import(self, name: str, line: int) -> None:
        node, text = self.imports[name]
        module = text.split()[1].split(".")[0]
        if module not in IMPORTABLE or (isinstance(node, ast.ImportFrom) and node.level):
            why = f"`{name}` comes from `{module}`; a generated module imports only Triton, torch and math"
            raise KernelFault(why, line, "define what the kernel needs in its own file")

    @staticmethod
    def free_names(node: ast.stmt) -> Iterator[tuple[str, int]]:
        """Names that a definition reads from its module, with lines."""
        bound: set[str] = set()
        body: list[ast.AST] = [node]
        if isinstance(node, ast.FunctionDef):
            bound = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
            bound |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            body = [*node.body, *(a.annotation for a in ast.walk(node.args) if isinstance(a, ast.arg) and a.annotation)]
            body += [d for d in node.args.defaults + node.args.kw_defaults if d]
            body += [d for d in node.decorator_list if not is_chooser(d)]
        for part in body:
            for n in ast.walk(part):
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id not in bound:
                    yield n.id, n.lineno

    @cached_property
    def import_lines(self) -> tuple[str, ...]:
        """One line for each imported name that the needed definitions use."""
        used = {name for node in self.needed for name, _ in self.free_names(node)}
        return tuple(sorted({text for name, (_, text) in self.imports.items() if name in used}))

    def load(self):
        """The kernel as a `@triton.jit` function, from a module that holds only what is needed.

        Executes the needed imports, assignments and decorators. KernelFault where that fails."""
        kept: list[ast.stmt] = [parse_python(line).body[0] for line in self.import_lines]
        for node in self.needed:
            if isinstance(node, ast.FunctionDef):
                plain = [d for d in node.decorator_list if not is_chooser(d)]
                node = ast.FunctionDef(**{**dict(ast.iter_fields(node)), "decorator_list": plain}, **places(node))
            kept.append(node)
        linecache.checkcache(str(self.file))
        module = ModuleType(f"chunkdsl_kernel_{self.file.stem}")
        module.__file__ = str(self.file)
        code = compile(ast.Module(body=kept, type_ignores=[]), str(self.file), "exec")
        try:
            exec(code, module.__dict__)
        except Exception as error:
            raise KernelFault(f"does not load: {type(error).__name__}: {error}") from None
        return module.__dict__[self.function]


def read_kernel(path: str, file: Path, function: str) -> KernelSource:
    """KernelFault for a file that cannot be read."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise KernelFault(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return KernelSource(path, file, text, function)


def places(node: ast.AST) -> dict[str, int | None]:
    return {name: getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")}


def is_chooser(decorator: ast.expr) -> bool:
    """`@triton.autotune(...)` or `@triton.heuristics(...)`."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(function, "attr", getattr(function, "id", "")) in CHOOSERS


def is_jitted(node: ast.FunctionDef) -> bool:
    functions = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
    return any(ast.unparse(f).split(".")[-1] == "jit" for f in functions)
