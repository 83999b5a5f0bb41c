"""A kernel's file, parsed: the function, the helpers that it calls, the constants that these name. Nothing else of the
file is used, executed or copied into a generated module.

Decorators around `@triton.jit` (`autotune`, `heuristics`, those of libraries) choose how the kernel is launched. They
are left out: the spec pins the configuration.
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

from chunkdsl.kernels.constants import elsewhere
from chunkdsl.kernels.dead import dead_nodes
from chunkdsl.kernels.fault import KernelFault
from chunkdsl.parsing import parse_python

IMPORTABLE = ("triton", "torch", "math")


@dataclass(frozen=True)
class KernelSource:
    """`path` as the spec gives it (for messages), `file` where it lies, `function` the kernel's name. `pinned`: values
    of its constants, None before they are known."""

    path: str
    file: Path
    text: str
    function: str
    pinned: tuple[tuple[str, object], ...] | None = None

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
        """Imported names: (statement, one line that imports this name alone). Of those under `if` and `try`, which a
        file tries one after the other, the first that is here."""
        found = {name: line for node in self.tree.body for name, line in names_imported(node)}
        for name, lines in self.choices.items():
            if name not in found:
                node, text = next((c for c in lines if importable(c[1])), lines[0])
                other = len(lines) > 1
                found[name] = node, text + f"  # chunk: {self.path}:{node.lineno}, the first that is here" * other
        return found

    @cached_property
    def choices(self) -> dict[str, list[tuple[ast.stmt, str]]]:
        """Of each name that is imported under `if` or `try` at the top level: what it may be, in the file's order."""
        found: dict[str, list[tuple[ast.stmt, str]]] = {}
        for top in self.tree.body:
            if isinstance(top, ast.If | ast.Try):
                for node in ast.walk(top):
                    for name, line in names_imported(node):
                        found.setdefault(name, []).append(line)
        return {name: sorted(lines, key=lambda c: c[0].lineno) for name, lines in found.items()}

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
            if isinstance(node, ast.Assign | ast.AnnAssign) and (part := elsewhere(node.value)) is not None:
                said = f"`{ast.unparse(part)}` may be something else on another machine"
                raise KernelFault(said, node.lineno, "write what it is, or make it a parameter of the kernel")
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

    @cached_property
    def dead(self) -> set[int]:
        """`id`s of nodes of the kernel that the pinned constants rule out."""
        if self.pinned is None:
            return dead_nodes(self.kernel, self.constants, None)
        literal = {n: d.value for n, d in self.defaults.items() if isinstance(d, ast.Constant)}
        return dead_nodes(self.kernel, self.constants, literal | dict(self.pinned))

    def free_names(self, node: ast.stmt) -> Iterator[tuple[str, int]]:
        """Names that a definition reads from its module, with lines."""
        bound: set[str] = set()
        body: list[ast.AST] = [node]
        if isinstance(node, ast.FunctionDef):
            bound = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
            bound |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            body = [*node.body, *(a.annotation for a in ast.walk(node.args) if isinstance(a, ast.arg) and a.annotation)]
            body += [d for d in node.args.defaults + node.args.kw_defaults if d]
            body += own_decorators(node)
        for part in body:
            for n in ast.walk(part):
                loaded = isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
                if loaded and n.id not in bound and id(n) not in self.dead:
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
                plain = dict(ast.iter_fields(node)) | {"decorator_list": own_decorators(node)}
                node = ast.FunctionDef(**plain, **places(node))
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


def names_imported(node: ast.AST) -> Iterator[tuple[str, tuple[ast.stmt, str]]]:
    """(name, (statement, one line that imports it alone)) of an import."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            text = f"import {alias.name}"
            if isinstance(node, ast.ImportFrom):
                text = f"from {node.module} {text}"
            name = alias.asname or alias.name.split(".")[0]
            yield name, (node, text + (f" as {alias.asname}" if alias.asname else ""))


def importable(line: str) -> bool:
    """Does Triton, torch or math have what this line imports?"""
    if line.split()[1].split(".")[0] not in IMPORTABLE:
        return False
    try:
        exec(line, {})
    except ImportError:
        return False
    return True


def own_decorators(node: ast.stmt) -> list[ast.expr]:
    """Those that make a function what it is: `@triton.jit` and what stands below it. All, of one that is not jitted."""
    decorators = getattr(node, "decorator_list", [])
    return decorators[next((i for i, d in enumerate(decorators) if is_jit(d)), 0) :]


def choosers(node: ast.stmt) -> list[ast.expr]:
    """Decorators around `@triton.jit`: `@triton.autotune(...)`, `@triton.heuristics(...)` and those of libraries."""
    return [d for d in getattr(node, "decorator_list", ()) if d not in own_decorators(node)]


def is_jitted(node: ast.FunctionDef) -> bool:
    return any(is_jit(d) for d in node.decorator_list)


def is_jit(decorator: ast.expr) -> bool:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(function).split(".")[-1] == "jit"
