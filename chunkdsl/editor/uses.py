"""The names in one item and what each stands for, as far as the item says. Knows nothing of other items, types nothing.

Scopes are those of `lower/`: an op and a kernel item are one each, a block of a plan is one, and what follows `with`,
`along`, `over` and `route =`, and what is called, is looked up in the file only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, replace

from chunkdsl.diagnostics import Report
from chunkdsl.editor.memory import remember
from chunkdsl.record import record
from chunkdsl.source import Source, Span
from chunkdsl.syntax import nodes as n
from chunkdsl.syntax.parse import parse

FILE = -1
_SKIPPED = re.compile(r'"[^"\n]*"|#[^\n]*')
_OWNER = re.compile(r"=\s*([A-Za-z_]\w*)\s*\.")


@record
class Use:
    """A name at a place of an item, by offsets of its text.

    `kind`: axis, dim, tensor, policy, op, plan, kernel; value, parameter, variable for local ones; "" if unknown here.
    `scope`: where the item gives the name its local meaning, `FILE` if it does not. `owner`: an op in which the name
    has its meaning, if it is local there."""

    span: Span
    name: str
    kind: str
    scope: int
    declares: bool
    owner: str = ""

    @property
    def local(self) -> bool:
        return self.scope != FILE


@remember
def item_of(text: str) -> n.Item | None:
    """The node of an item's text, by its own offsets; None if it does not parse."""
    report = Report(Source("", text))
    items = parse(report.source, report).items
    return items[0] if items and not report.failed else None


@remember
def uses_of(text: str) -> tuple[Use, ...]:
    """The names in an item, in order of place; () if it does not parse."""
    item = item_of(text)
    if item is None:
        return ()
    walk = _Walk(text)
    walk.item(item)
    return tuple(sorted(walk.found, key=lambda u: (u.span.start, u.span.end)))


class _Walk:
    """Collects the names of one item. `local`: those that it gives itself: kind, and place of the declaration."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.found: list[Use] = []
        self.local: dict[str, tuple[str, int]] = {}
        self.axes: tuple[str, ...] = ()

    def item(self, item: n.Item) -> None:
        match item:
            case n.Mesh():
                for axis in item.axes:
                    self._declare(axis.name, "axis")
            case n.Dim() | n.Tensor() | n.Policy():
                self._declare(item.name, type(item).__name__.lower())
                self._inside(tuple(getattr(item, f.name) for f in fields(item) if f.name not in ("span", "name")))
            case n.Op():
                self._op(item)
            case n.Plan():
                self._declare(item.name, "plan")
                self._bind(item.tensor, "parameter")
                self._inside(item.axes)
                self.axes = tuple(name.text for name in item.axes.names)
                self._block(item.body)
            case n.Kernel():
                self._kernel(item)
            case n.UsePlan():
                self._declare(item.name, "plan")
                self._inside(item.axes)
            case n.Gradient():
                self._file(item.op)
                for name in item.results:
                    self._bind(name, "value")
                for name in item.saves:
                    self.found.append(Use(name.span, name.text, "", FILE, False, item.op.text))
                self._inside(item.policy)

    def _op(self, op: n.Op) -> None:
        self._declare(op.name, "op")
        params = {p.name.text for p in op.params}
        for param in op.params:
            self._file(param.name)
        for statement in op.body:
            self._inside((statement.value, statement.policy))
            for name in statement.targets:
                if name.text in params:
                    self._file(name)
                else:
                    self._bind(name, "value")
        for name in op.results:
            self._use(name)

    def _kernel(self, item: n.Kernel) -> None:
        self._declare(item.name, "kernel")
        for name in item.params + item.results:
            self._bind(name, "parameter")
        self._inside(item.bindings)
        late = self.local  # a grid may stand before its constants, a `sum` before the tensor that has the size
        self.found = [
            replace(u, kind=late[u.name][0], scope=late[u.name][1]) if not (u.kind or u.local) and u.name in late else u
            for u in self.found
        ]

    def _block(self, steps: tuple[n.Node, ...]) -> None:
        """What is bound in a block means nothing behind it."""
        outer = dict(self.local)
        self._inside(steps)
        self.local = outer

    def _inside(self, node) -> None:
        """Names that are used anywhere in a node, and those that steps and bindings give."""
        match node:
            case tuple():
                for part in node:
                    self._inside(part)
            case n.Ref():
                self._use(n.Name(node.span, node.name))
            case n.SizeName():
                self._size(n.Name(node.span, node.name))
            case n.Axes():
                for name in node.names:
                    self._file(name)
            case n.Pair():
                if node.key.text == "route" and isinstance(node.value, n.Choice):
                    start = node.value.span.start
                    self._file(n.Name(Span(start, start + len(node.value.name)), node.value.name))
                self._inside(node.value)
            case n.Rows():
                self._file(node.dim)
            case n.PolicyUse():
                if node.base is not None:
                    self._file(node.base)
                self._inside(node.pairs)
            case n.MoveArg():
                self._file(node.source)
                self._file(node.target)
            case n.Call():
                self._file(node.function)
                self._inside(node.args)
            case n.Let():
                self._inside(node.value)
                self._bind(node.name, "variable")
            case n.Loop():
                self._inside(node.bounds)
                outer = dict(self.local)
                self._bind(node.name, "variable")
                self._block(node.body)
                self.local = outer
            case n.Branch():
                self._inside(node.condition)
                self._block(node.then)
                self._block(node.otherwise)
            case n.LaneBlock():
                self._inside(node.number)
                self._block(node.body)
            case n.Region():
                self._use(node.base)
                self._inside((node.index, node.part or ()))
            case n.TensorArg():
                self._use(node.name)
                for size in _names(node.dims):
                    self._bind(size, "variable")
                for name in node.partial.names if node.partial else ():
                    self._use(name)
                self._inside(node.block or ())
            case n.ScalarArg():
                if node.attribute is not None and (place := _OWNER.search(self._bare(), node.span.start)):
                    self._use(n.Name(Span(*place.span(1)), place[1]))
                self._inside(node.value)
            case n.Const():
                for name, _ in node.values:
                    self._bind(name, "variable")
            case n.Node():
                for f in fields(node):
                    if f.name != "span" and not isinstance(getattr(node, f.name), n.Name):
                        self._inside(getattr(node, f.name))

    def _bare(self) -> str:
        return _SKIPPED.sub(lambda m: " " * len(m[0]), self.text)

    def _declare(self, name: n.Name, kind: str) -> None:
        self.found.append(Use(name.span, name.text, kind, FILE, True))

    def _bind(self, name: n.Name, kind: str) -> None:
        """A local name; a second binding in its scope is another place of the first."""
        first = name.text not in self.local
        known, scope = self.local.setdefault(name.text, (kind, name.span.start))
        self.found.append(Use(name.span, name.text, known, scope, first))

    def _use(self, name: n.Name) -> None:
        kind, scope = self.local.get(name.text, ("", FILE))
        self.found.append(Use(name.span, name.text, kind, scope, False))

    def _file(self, name: n.Name) -> None:
        self.found.append(Use(name.span, name.text, "", FILE, False))

    def _size(self, name: n.Name) -> None:
        """In a plan `tp_rank` is a rank's place on axis `tp`: its name is part of that."""
        axis = name.text.removesuffix("_rank")
        if axis != name.text and axis in self.axes and name.text not in self.local:
            self._file(n.Name(Span(name.span.start, name.span.start + len(axis)), axis))
        else:
            self._use(name)


def _names(sizes) -> Iterator[n.Name]:
    for size in sizes:
        match size:
            case n.SizeName():
                yield n.Name(size.span, size.name)
            case n.SizeBinary():
                yield from _names((size.left, size.right))
            case n.SizeCall():
                yield from _names(size.args)
