"""Every name in a spec and what it stands for: definitions, references, new names. Types nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, replace

from chunkdsl.diagnostics import Edit, Report
from chunkdsl.editor.memory import remember
from chunkdsl.editor.segments import Segment
from chunkdsl.record import record
from chunkdsl.source import Source, Span
from chunkdsl.syntax import nodes as n
from chunkdsl.syntax.parse import grammar, parse

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@record
class Use:
    """A name at a place of an item, by offsets of its text. `local`: it means something in this item only."""

    span: Span
    name: str
    kind: str  # axis, dim, tensor, policy, op, plan, kernel; value, parameter, variable for local ones; "" if unknown
    local: bool
    declares: bool


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
    walk = _Walk()
    walk.item(item)
    late = walk.local  # a kernel's grid may stand before its constants
    found = [replace(u, kind=late[u.name], local=True) if not (u.kind or u.local) and u.name in late else u
             for u in walk.found]
    return tuple(sorted(found, key=lambda u: (u.span.start, u.span.end)))


def word_at(text: str, offset: int) -> str:
    """The identifier that an offset touches; "" if none."""
    for match in _IDENTIFIER.finditer(text, text.rfind("\n", 0, offset) + 1):
        if match.start() > offset:
            break
        if offset <= match.end():
            return match[0]
    return ""


class Index:
    """The names of a text. A place is (segment, use)."""

    def __init__(self, segments: tuple[Segment, ...]) -> None:
        self.segments = segments
        self._kinds: dict[str, tuple[str, int, Use]] = {}
        for i, segment in enumerate(segments):
            for use in uses_of(segment.text):
                if use.declares and not use.local:
                    self._kinds.setdefault(use.name, (use.kind, i, use))

    def segment_at(self, offset: int) -> int | None:
        """The segment that an offset lies in: of two that touch, the one that goes on there."""
        found = [i for i, s in enumerate(self.segments) if s.start <= offset <= s.end]
        return found[-1] if found else None

    def at(self, offset: int) -> tuple[int, Use] | None:
        """The name at an offset (also just behind it)."""
        i = self.segment_at(offset)
        if i is None:
            return None
        at = offset - self.segments[i].start
        use = next((u for u in uses_of(self.segments[i].text) if u.span.start <= at <= u.span.end), None)
        return (i, use) if use is not None and self.kind(i, use) else None

    def kind(self, i: int, use: Use) -> str:
        """What a name stands for; "" if that is unknown."""
        return use.kind if use.local else self._kinds.get(use.name, ("",))[0]

    def declared(self) -> dict[str, str]:
        """The file's names and their kinds."""
        return {name: kind for name, (kind, _, _) in self._kinds.items()}

    def definition(self, offset: int) -> Span | None:
        found = self.at(offset)
        if found is None:
            return None
        i, use = found
        if use.local:
            own = (u for u in uses_of(self.segments[i].text) if u.name == use.name and u.local)
            first = next((u for u in own if u.declares), use)
        else:
            _, i, first = self._kinds[use.name]
        return self.span(i, first)

    def references(self, offset: int) -> list[Span]:
        """All places of the name at an offset, its declaration too, in order."""
        found = self.at(offset)
        if found is None:
            return []
        i, use = found
        places = [i] if use.local else range(len(self.segments))
        return [
            self.span(j, u)
            for j in places
            for u in uses_of(self.segments[j].text)
            if u.name == use.name and u.local == use.local
        ]

    def rename(self, offset: int, new: str) -> list[Edit]:
        """Edits that rename. ValueError with a sentence if the name cannot be given."""
        places = self.references(offset)
        if not places:
            raise ValueError("there is no name here that can be changed")
        if not _IDENTIFIER.fullmatch(new):
            raise ValueError(f"{new!r} is not a name: ASCII letters, digits and _")
        if new in grammar().keywords:
            raise ValueError(f"`{new}` is a keyword")
        _, use = self.at(offset)
        touched = {self.segment_at(p.start) for p in places}
        taken = {u.name for j in touched for u in uses_of(self.segments[j].text)}
        if new != use.name and (new in taken or new in self._kinds):
            raise ValueError(f"`{new}` means something else here already")
        return [Edit(p, new) for p in places]

    def span(self, i: int, use: Use) -> Span:
        start = self.segments[i].start
        return Span(start + use.span.start, start + use.span.end)


class _Walk:
    """Collects the names of one item. `local`: those that it gives itself, and their kinds."""

    def __init__(self) -> None:
        self.found: list[Use] = []
        self.local: dict[str, str] = {}

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
                self._inside((item.axes, item.body))
            case n.Kernel():
                self._declare(item.name, "kernel")
                for name in item.params + item.results:
                    self._bind(name, "parameter")
                self._inside(item.bindings)
            case n.UsePlan():
                self._declare(item.name, "plan")
                self._inside(item.axes)
            case n.Gradient():
                self._use(item.op)
                for name in item.results:
                    self._bind(name, "value")

    def _op(self, op: n.Op) -> None:
        self._declare(op.name, "op")
        params = {p.name.text for p in op.params}
        for param in op.params:
            self._use(param.name)
        for statement in op.body:
            self._inside((statement.value, statement.policy))
            for name in statement.targets:
                if name.text in params or name.text in self.local:
                    self._use(name)
                else:
                    self._bind(name, "value")
        for name in op.results:
            self._use(name)

    def _inside(self, node) -> None:
        """Names that are used anywhere in a node, and those that steps and bindings give."""
        match node:
            case tuple():
                for part in node:
                    self._inside(part)
            case n.Ref() | n.SizeName():
                self._use(n.Name(node.span, node.name))
            case n.Axes():
                for name in node.names:
                    self._use(name)
            case n.Pair():
                if node.key.text == "route" and isinstance(node.value, n.Choice):
                    start = node.value.span.start
                    self._use(n.Name(Span(start, start + len(node.value.name)), node.value.name))
                self._inside(node.value)
            case n.Rows():
                self._use(node.dim)
            case n.PolicyUse():
                if node.base is not None:
                    self._use(node.base)
                self._inside(node.pairs)
            case n.MoveArg():
                self._use(node.source)
                self._use(node.target)
            case n.Call():
                self._use(node.function)
                self._inside(node.args)
            case n.Let() | n.Loop():
                self._bind(node.name, "variable")
                self._inside(node.value if isinstance(node, n.Let) else (node.bounds, node.body))
            case n.Region():
                self._use(node.base)
                self._inside((node.index, node.part or ()))
            case n.TensorArg():
                self._use(node.name)
                for size in _names(node.dims):
                    self._bind(size, "variable")
            case n.Const():
                for name, _ in node.values:
                    self._bind(name, "variable")
            case n.Node():
                for f in fields(node):
                    if f.name != "span" and not isinstance(getattr(node, f.name), n.Name):
                        self._inside(getattr(node, f.name))

    def _declare(self, name: n.Name, kind: str) -> None:
        self.found.append(Use(name.span, name.text, kind, False, True))

    def _bind(self, name: n.Name, kind: str) -> None:
        """A local name; a second binding is another place of the first."""
        first = name.text not in self.local
        self.local.setdefault(name.text, kind)
        self.found.append(Use(name.span, name.text, self.local[name.text], True, first))

    def _use(self, name: n.Name) -> None:
        kind = self.local.get(name.text)
        self.found.append(Use(name.span, name.text, kind or "", kind is not None, False))


def _names(sizes) -> Iterator[n.Name]:
    for size in sizes:
        match size:
            case n.SizeName():
                yield n.Name(size.span, size.name)
            case n.SizeBinary():
                yield from _names((size.left, size.right))
            case n.SizeCall():
                yield from _names(size.args)
