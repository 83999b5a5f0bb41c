"""`kernel` items -> declared kernels: the file is read, every parameter bound, the item's own sizes collected.

Reports what does not fit together (CD235, CD236). Runs nothing: what the kernel touches is found when it is scheduled.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from chunkdsl.check.kernels import kernel_binding, kernel_not_readable
from chunkdsl.diagnostics import Diagnostic, Report
from chunkdsl.ir.types import DimRef, SymSize, evaluate
from chunkdsl.kernels.binding import Binding, BoundTensor, Scalar, Stride
from chunkdsl.kernels.fault import KernelFault
from chunkdsl.kernels.source import KernelSource, read_kernel
from chunkdsl.lower.nearest import Nearest
from chunkdsl.lower.normal import TooComplex, combine
from chunkdsl.source import Source, Span
from chunkdsl.syntax import nodes

OPTIONS = ("num_warps", "num_stages")
DTYPES = ("bf16", "f16", "f32")
MOST_IN_A_BLOCK = 1 << 20  # elements of a tile in Triton


@dataclass(frozen=True)
class DeclaredKernel:
    """`sums`: (result, size): a size which, when it is sharded, makes the result Partial. `spans`: where each tensor is
    bound."""

    node: nodes.Kernel
    source: KernelSource
    binding: Binding
    sums: frozenset[tuple[str, str]]
    spans: dict[str, Span]

    @property
    def name(self) -> str:
        return self.node.name.text


class Wrong(Exception):
    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


def declare_kernel(item: nodes.Kernel, source: Source, report: Report) -> DeclaredKernel | None:
    """None if anything in the item was reported."""
    try:
        return _Item(item, source).declare()
    except Wrong as wrong:
        report.add(wrong.diagnostic)
    except KernelFault as fault:
        report.add(kernel_not_readable(item.path.value, fault.line, fault.reason, item.path.span, fault.mend))
    return None


class _Item:
    def __init__(self, item: nodes.Kernel, source: Source) -> None:
        self.item = item
        path = PurePosixPath(item.path.value)
        self.source = read_kernel(str(path), Path(source.path).parent / path, item.function.text)
        self.names = [p.arg for p in self.source.parameters]
        self.constants: dict[str, int | float | bool | str] = {}
        self.options: dict[str, int] = {}

    def declare(self) -> DeclaredKernel:
        item = self.item
        tensor_nodes, scalars, grid = self.sorted_bindings()
        s = self.source = replace(self.source, pinned=tuple(self.constants.items()))
        _ = s.needed  # what cannot be copied into a module is said here
        tensors = {t.name.text: self.tensor(t, scalars) for t in tensor_nodes}
        for name in (*item.params, *item.results):
            if name.text not in tensors:
                raise Wrong(kernel_binding(f"`{name.text}` is bound to no parameter", name.span, "not bound",
                                           f"write `{name.text} = POINTER : [sizes]`"))
        for t in tensor_nodes:
            if t.name.text not in {n.text for n in (*item.params, *item.results)}:
                raise Wrong(kernel_binding(f"`{t.name.text}` is neither an argument nor a result of the kernel item",
                                           t.name.span, "unknown", "name it in the item's head"))
        sizes = {n for t in tensors.values() for n in own_sizes(t.dims)}
        bound = self.scalars(scalars, tensors, sizes)
        binding = Binding(
            tuple(tensors[n.text] for n in item.params),
            tuple(tensors[n.text] for n in item.results),
            bound,
            tuple(self.size(g, sizes, named=True) for g in grid.sizes),
            tuple(self.constants.items()),
            tuple(self.options.items()),
        )
        sums = {(t.name.text, n.text) for t in tensor_nodes if t.partial for n in t.partial.names}
        return DeclaredKernel(item, s, binding, frozenset(sums), {t.name.text: t.span for t in tensor_nodes})

    def sorted_bindings(self):
        tensors: list[nodes.TensorArg] = []
        scalars: list[nodes.ScalarArg] = []
        grids: list[nodes.Grid] = []
        seen: dict[str, Span] = {}
        for b in self.item.bindings:
            match b:
                case nodes.TensorArg():
                    tensors.append(b)
                    self.once(b.pointer, seen, False)
                    if b.name.text in [t.name.text for t in tensors[:-1]]:
                        raise Wrong(kernel_binding(f"`{b.name.text}` is bound twice: the two would be one memory",
                                                   b.name.span, "again", "bind each tensor to one parameter"))
                case nodes.ScalarArg():
                    scalars.append(b)
                    self.once(b.name, seen, False)
                case nodes.Grid():
                    grids.append(b)
                case nodes.Const():
                    for name, value in b.values:
                        if name.text in OPTIONS and name.text not in self.names:
                            self.options[name.text] = int(value)
                        else:
                            self.once(name, seen, True)
                            self.constants[name.text] = value
        if len(grids) != 1 or len(grids[0].sizes) > 3:
            raise Wrong(kernel_binding("a kernel item has one `grid` of one to three sizes", self.item.name.span,
                                       f"{len(grids)} grids", "write `grid = cdiv(m, BM), cdiv(n, BN)`"))
        return tensors, scalars, grids[0]

    def once(self, name: nodes.Name, seen: dict[str, Span], constant: bool) -> None:
        if name.text not in self.names:
            near = Nearest(self.names).of(name.text)
            hint = f"did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else f"it has {', '.join(self.names)}"
            raise Wrong(kernel_binding(f"`{self.source.function}` has no parameter `{name.text}`", name.span,
                                       "unknown parameter", hint))
        if name.text in seen:
            raise Wrong(kernel_binding(f"`{name.text}` is bound twice", name.span, "again", "bind it once"))
        if (name.text in self.source.constants) != constant:
            what, key = ("is a `tl.constexpr`", "const") if not constant else ("is not a `tl.constexpr`", "arg")
            raise Wrong(kernel_binding(f"`{name.text}` {what}", name.span, "bound otherwise", f"bind it with `{key}`"))
        seen[name.text] = name.span

    def tensor(self, node: nodes.TensorArg, scalars: list[nodes.ScalarArg]) -> BoundTensor:
        if node.dtype is not None and node.dtype.text not in DTYPES:
            raise Wrong(kernel_binding(f"a result of {node.dtype.text}", node.dtype.span, "dtype",
                                       f"results are {', '.join(DTYPES)}"))
        dims = []
        for d in node.dims:
            match d:
                case nodes.SizeName(name=name) if name not in self.constants:
                    dims.append(DimRef(name))
                case nodes.SizeName() | nodes.SizeInt():
                    dims.append(self.size(d, set()))
                case _:
                    raise Wrong(kernel_binding("a computed dimension", d.span, "computed",
                                               "dimensions are names or numbers: the call says what they are"))
        strided = any(a.attribute and a.attribute[0] == node.name.text and a.attribute[2] < len(dims) - 1
                      for a in scalars)  # fmt: skip
        block = () if node.block is None else self.block(node)
        return BoundTensor(node.name.text, node.pointer.text, tuple(dims), node.dtype.text if node.dtype else None,
                           strided or len(block) > 1, block)

    def block(self, node: nodes.TensorArg) -> tuple[SymSize, ...]:
        """What a descriptor made on the host moves at once, as Triton and TMA have it."""
        found = tuple(evaluate(self.size(b, set(), named=True), self.constants) for b in node.block)
        shown = f"[{', '.join(map(str, found))}]"
        if not found or len(found) != len(node.dims):
            what = f"a block of {len(found)} dimensions for a tensor of {len(node.dims)}"
            raise Wrong(kernel_binding(what, node.span, shown,
                                       "write one size for each dimension: `A = a_desc[BM, BK] : [m, k]`"))
        if any(b < 1 or b & (b - 1) for b in found) or math.prod(found) > MOST_IN_A_BLOCK:
            raise Wrong(kernel_binding("a block that no tensor descriptor has", node.span, shown,
                                       f"its sizes are powers of two, {MOST_IN_A_BLOCK} elements at most"))
        return tuple(self.size(b, set(), named=True) for b in node.block)

    def scalars(self, given: list[nodes.ScalarArg], tensors: dict[str, BoundTensor], sizes: set[str]):
        """(parameter, value) in the kernel's order."""
        by_name = {a.name.text: a for a in given}
        pointers = {t.pointer for t in tensors.values()}
        found: list[tuple[str, Scalar]] = []
        for name in self.names:
            if name in by_name:
                found.append((name, self.scalar(by_name[name], tensors, sizes)))
            elif name in pointers or name in self.constants:
                continue
            elif name in sizes or name.lower() in sizes:
                found.append((name, DimRef(name if name in sizes else name.lower())))
            elif name in self.source.defaults:
                if name not in self.source.constants:
                    found.append((name, self.default(name)))
                elif isinstance(value := getattr(self.source.defaults[name], "value", None), int | float | str):
                    self.constants[name] = value  # a text is no default where a function calls another
            else:
                key = "const" if name in self.source.constants else "arg"
                line = next(p.lineno for p in self.source.parameters if p.arg == name)
                raise Wrong(kernel_binding(
                    f"parameter `{name}` of `{self.source.function}` is not bound ({self.source.path}:{line})",
                    self.item.function.span, f"needs `{name}`", f"write `{key} {name} = ...`",
                ))  # fmt: skip
        return tuple(found)

    def scalar(self, node: nodes.ScalarArg, tensors: dict[str, BoundTensor], sizes: set[str]) -> Scalar:
        if node.attribute is None:
            plain = isinstance(node.value, nodes.Literal | nodes.Text)
            return node.value.value if plain else self.size(node.value, sizes)
        tensor, method, index = node.attribute
        if method not in ("stride", "size", "shape") or tensor not in tensors or index >= len(tensors[tensor].dims):
            raise Wrong(kernel_binding(f"`{tensor}.{method}({index})` is not known", node.span, "unknown",
                                       f"write `{next(iter(tensors))}.stride(0)` or a size"))
        return Stride(tensor, index) if method == "stride" else tensors[tensor].dims[index]

    def default(self, name: str) -> Scalar:
        value = ast.literal_eval(self.source.defaults[name]) if is_literal(self.source.defaults[name]) else None
        if not isinstance(value, int | float | bool | str):
            raise Wrong(kernel_binding(f"the default of `{name}` is not a number or a text", self.item.function.span,
                                       "default", f"bind it: `arg {name} = ...`"))
        return value

    def size(self, node: nodes.Size, sizes: set[str], named: bool = False) -> SymSize:
        """A size over the item's own names and its constants, which keep their names when `named`."""
        match node:
            case nodes.SizeInt(value=value):
                return value
            case nodes.SizeName(name=name):
                if isinstance(self.constants.get(name), int):
                    return DimRef(name) if named else int(self.constants[name])
                if name in sizes:
                    return DimRef(name)
                known = sorted({*sizes, *self.constants} if named else sizes)
                raise Wrong(kernel_binding(f"`{name}` is no size of this kernel item", node.span, "unknown size",
                                           f"it has {', '.join(known)}"))
            case nodes.SizeCall(function=function, args=args):
                values = [self.size(a, sizes, named) for a in args]
                if function.text == "cdiv" and len(values) == 2:
                    return self.combined("/", *values, node)
                if function.text in ("min", "max") and len(values) == 2 and all(isinstance(v, int) for v in values):
                    return (min if function.text == "min" else max)(values)
                raise Wrong(kernel_binding(f"`{function.text}` in a kernel item", function.span, "unknown",
                                           "sizes of a kernel item know + - * / mod and cdiv"))
        return self.combined(node.op, self.size(node.left, sizes, named), self.size(node.right, sizes, named), node)

    def combined(self, op: str, left: SymSize, right: SymSize, node: nodes.Size) -> SymSize:
        try:
            return combine(op, left, right)
        except (ZeroDivisionError, TooComplex):
            raise Wrong(kernel_binding("this size cannot be computed", node.span, "size",
                                       "divide by something that is not zero, and keep it short")) from None


def is_literal(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant))


def own_sizes(dims: tuple[SymSize, ...]) -> Iterator[str]:
    return (d.name for d in dims if isinstance(d, DimRef))
