"""Dims and size expressions: `nodes.Size` -> `SymSize` in normal form. Reports bad ranges, unknown dims, bad sizes.

Dims are computed in order of declaration, each from those above it, so there are no cycles.
"""

from __future__ import annotations

from chunkdsl.check import names as name_rules
from chunkdsl.check import shapes as rules
from chunkdsl.check.unbuilt import not_built_yet
from chunkdsl.diagnostics import Report
from chunkdsl.ir.dump import size_text
from chunkdsl.ir.types import DimRange, DimRef, SymSize
from chunkdsl.lower.names import Names
from chunkdsl.lower.nearest import Nearest
from chunkdsl.lower.normal import TooComplex, bounds, combine
from chunkdsl.source import Source, Span
from chunkdsl.syntax import nodes

LARGEST = 2**62  # elements: any offset of a tensor fits a signed 64-bit integer

FUNCTIONS = {"cdiv": 2, "min": 2, "max": 2, "log2": 1, "pow2": 1, "xor": 2}


class Dims:
    """The dims declared so far, and sizes made of them. A dim whose declaration failed is in neither table."""

    def __init__(self, names: Names, source: Source, report: Report) -> None:
        self.ranges: dict[str, DimRange] = {}
        self.constants: dict[str, SymSize] = {}
        self._names, self._source, self._report = names, source, report
        self._functions = Nearest(FUNCTIONS)
        self._above: set[str] = set()  # dims declared so far, in order or not; uses of the others come too early

    def declare(self, items: tuple[nodes.Item, ...]) -> None:
        """All dims of a file, in order."""
        for item in items:
            if isinstance(item, nodes.Dim) and self._names.kinds[item.name.text] == ("dim", item.name.span):
                if isinstance(item.value, nodes.Bounds):
                    self._range(item, item.value)
                else:
                    self._fixed(item, item.value)
                self._above.add(item.name.text)

    def get(self, name: str) -> SymSize | None:
        """Size of a declared dim; None if there is none (never reported here)."""
        return DimRef(name) if name in self.ranges else self.constants.get(name)

    def is_dim(self, name: str, span: Span) -> bool:
        """Whether a name is a dim; reports it if it is not and no declaration of it failed."""
        if self.get(name) is not None:
            return True
        if self._names.kind_of(name) != "dim" and name not in self._names.lost:
            near, known = self._names.near(name, "dim"), self._names.known_as(name)
            self._report.add(name_rules.unknown_dimension(name, span, near, known))
        return False

    def size(self, node: nodes.Size) -> SymSize | None:
        """Value of a size expression, 0 <= value <= `LARGEST` for every value of its dims; None if it was reported."""
        size = self._value(node)
        return size if size is not None and self._in_range("this size", size, node.span) else None

    def bounds(self, size: SymSize) -> tuple[int, int]:
        return bounds(size, self.ranges)

    def _range(self, item: nodes.Dim, value: nodes.Bounds) -> None:
        name, low, high, step = item.name.text, value.low, value.high, value.step
        if step < 1:
            self._report.add(rules.empty_range(name, value.span, "a step is at least 1"))
        elif low > high:
            self._report.add(rules.empty_range(name, value.span, f"{low} is above {high}"))
        elif -(-low // step) * step > high:
            self._report.add(rules.empty_range(name, value.span, f"no multiple of {step} lies in {low}..{high}"))
        elif high > LARGEST:
            self._report.add(rules.size_out_of_range(f"`{name}`", value.span, "larger than 2^62"))
        else:
            self.ranges[name] = DimRange(name, low, high, step, self._source.line_of(item.span.start))

    def _fixed(self, item: nodes.Dim, value: nodes.Size) -> None:
        size = self._value(value)
        if size is not None and self._in_range(f"`{item.name.text}`", size, value.span):
            self.constants[item.name.text] = size

    def _in_range(self, what: str, size: SymSize, span: Span) -> bool:
        try:
            low, high = self.bounds(size)
        except ZeroDivisionError:
            self._report.add(rules.division_by_zero(span, "the divisor can be zero"))
            return False
        why = ""
        if size == 0:
            why = "this is 0; a size is at least 1"
        elif low < 0:
            why = f"this is {size}" if isinstance(size, int) else f"{size_text(size)} can be as small as {low}"
        elif high > LARGEST:
            why = "larger than 2^62"
        if why:
            self._report.add(rules.size_out_of_range(what, span, why))
        return not why

    def _value(self, node: nodes.Size) -> SymSize | None:
        match node:
            case nodes.SizeInt(value=value):
                if value > LARGEST:
                    self._report.add(rules.size_out_of_range("this size", node.span, "larger than 2^62"))
                    return None
                return value
            case nodes.SizeName(name=name):
                return self._named(name, node.span)
            case nodes.SizeCall():
                return self._call(node)
        left, right = self._value(node.left), self._value(node.right)
        return None if left is None or right is None else self._combine(node.op, left, right, node)

    def _combine(self, op: str, left: SymSize, right: SymSize, node: nodes.Size) -> SymSize | None:
        try:
            size = combine(op, left, right)
            if max(abs(b) for b in self.bounds(size)) > LARGEST:
                self._report.add(rules.size_out_of_range("this size", node.span, "larger than 2^62"))
                return None
            return size
        except ZeroDivisionError:
            self._report.add(rules.division_by_zero(node.span, "the divisor is, or can be, zero"))
        except TooComplex:
            self._report.add(rules.size_too_complex(node.span))
        return None

    def _named(self, name: str, span: Span) -> SymSize | None:
        if self._names.kind_of(name) == "dim" and name not in self._above:
            self._report.add(name_rules.used_before_declared(name, span, self._names.kinds[name][1]))
            return None
        return self.get(name) if self.is_dim(name, span) else None

    def _call(self, node: nodes.SizeCall) -> SymSize | None:
        name = node.function.text
        if name not in FUNCTIONS:
            near = self._functions.of(name)
            self._report.add(name_rules.unknown_function(name, node.function.span, near, "sizes know cdiv min max ..."))
            return None
        args = [self._value(a) for a in node.args]
        if len(args) != FUNCTIONS[name]:
            usage = f"`{name}({', '.join('ab'[: FUNCTIONS[name]])})`"
            self._report.add(name_rules.wrong_arguments(name, node.span, f"takes {FUNCTIONS[name]} sizes", usage))
            return None
        if any(a is None for a in args):
            return None
        if name == "cdiv":
            return self._combine("/", args[0], args[1], node)
        if not all(isinstance(a, int) for a in args):
            self._report.add(not_built_yet(f"`{name}` of a run-time size", node.span, "use + - * / mod or cdiv"))
            return None
        if (name == "log2" and args[0] < 1) or (name == "pow2" and not 0 <= args[0] <= 62):
            self._report.add(rules.size_out_of_range("this size", node.span, f"{name} of {args[0]}"))
            return None
        match name:
            case "min":
                return min(args)
            case "max":
                return max(args)
            case "log2":
                return args[0].bit_length() - 1
            case "pow2":
                return 1 << args[0]
            case _:
                return args[0] ^ args[1]
