"""What expression lowering passes around: a value with what messages need to speak of it. Types nothing."""

from __future__ import annotations

from dataclasses import dataclass

from chunkdsl.diagnostics import Edit, Fix, Label
from chunkdsl.ir.dump import type_text
from chunkdsl.ir.graph import Value
from chunkdsl.ir.types import Mesh, Partial, Shard, TensorType
from chunkdsl.source import Source, Span
from chunkdsl.syntax import nodes


@dataclass(frozen=True)
class Operand:
    """A value where it is used: `dims` are its dimensions' names, `node` and `span` the use, `origin` the declaration
    or the statement that bound it (None for an expression in place)."""

    value: Value
    dims: tuple[str | None, ...]
    span: Span
    node: nodes.Expr | None = None
    origin: Label | None = None

    @property
    def type(self) -> TensorType:
        return self.value.type

    @property
    def is_const(self) -> bool:
        return self.value.kind == "const"

    @property
    def number(self) -> int | float:
        return self.value.attrs["number"]

    def dim_text(self, dim: int) -> str:
        return self.dims[dim] or str(self.type.shape[dim])

    def labels(self) -> tuple[Label, ...]:
        return (self.origin,) if self.origin else ()


@dataclass(frozen=True)
class Speech:
    """Words, labels and fixes about operands of one source and mesh."""

    source: Source
    mesh: Mesh

    def text(self, span: Span) -> str:
        """Source of an expression on one line, shortened."""
        text = " ".join(self.source.slice(span).split())
        return text if len(text) <= 40 else text[:37] + "..."

    def type(self, operand: Operand) -> str:
        return type_text(operand.type, self.mesh, operand.dims)

    def axis(self, index: int) -> str:
        return self.mesh.axes[index].name

    def label(self, operand: Operand, axis: int) -> Label:
        return Label(operand.span, f"{operand.type.placements[axis]} over {self.axis(axis)}")

    def over(self, function: str, axis: int) -> str:
        """`, over = tp` where a collective needs it, as the mesh has several axes."""
        return f", over = {self.axis(axis)}" if len(self.mesh.axes) > 1 else ""

    def whole(self, operand: Operand, axis: int) -> tuple[str, tuple[Fix, ...]]:
        """The collective that makes an operand Replicate over an axis, as a hint and a fix; nothing if it is one."""
        placement = operand.type.placements[axis]
        if not isinstance(placement, Shard | Partial):
            return "", ()
        function = "all_gather" if isinstance(placement, Shard) else "all_reduce"
        node = operand.node
        while isinstance(node, nodes.Attr):  # all_gather(w).T, as a transpose moves nothing
            node = node.base
        if node is None:
            return f"{function} makes it Replicate", ()
        inner = self.source.slice(node.span)
        if isinstance(node, nodes.Group) and node.policy is None:
            inner = self.source.slice(node.inner.span)
        text = f"{function}({inner}{self.over(function, axis)})"
        shown = " ".join(text.split())
        verb = "gather" if isinstance(placement, Shard) else "reduce"
        return f"{verb} it: `{shown}`", (Fix(f"{verb} it with {function}", (Edit(node.span, text),)),)

    def unwrap(self, call: nodes.Call, operand: Operand) -> Fix:
        """The fix that drops a collective and keeps its argument."""
        name = call.function.text
        inner = self.source.slice(operand.span)
        text = f"({inner})" if isinstance(operand.node, nodes.Binary) else inner
        return Fix(f"drop {name}", (Edit(call.span, text),))
