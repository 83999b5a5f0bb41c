"""Tensor expressions: `nodes.Expr` -> `Value`. One value for each operation; a name is the value it was bound to.

Walks the tree, folds numbers and makes values with their policies; what goes together is decided in `operators.py`
and `collectives.py`, calls are in `calls.py`. An expression with an error has no value (None), and neither have its
users: one finding each, no cascade.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from chunkdsl.check import names as name_rules
from chunkdsl.check import placements as placement_rules
from chunkdsl.check import shapes as shape_rules
from chunkdsl.diagnostics import Diagnostic, Label, Report, Severity
from chunkdsl.ir.graph import Value
from chunkdsl.ir.types import DType, Mesh, Partial, Replicate, TensorType
from chunkdsl.lower import operators
from chunkdsl.lower.calls import lower_call
from chunkdsl.lower.kernel_items import DeclaredKernel
from chunkdsl.lower.names import Names
from chunkdsl.lower.nearest import Nearest
from chunkdsl.lower.operands import Operand, Speech
from chunkdsl.lower.operators import Enclosing, Typed
from chunkdsl.lower.placements import axes_of
from chunkdsl.lower.policies import Policies, Scope
from chunkdsl.lower.sizes import Dims
from chunkdsl.lower.tensors import Declared
from chunkdsl.source import Source, Span
from chunkdsl.syntax import nodes

F32_LARGEST = (2 - 2**-23) * 2.0**127


@dataclass
class File:
    """What the declarations of a file came to: all that an op needs."""

    source: Source
    report: Report
    names: Names
    mesh: Mesh
    dims: Dims
    tensors: dict[str, Declared]
    policies: Policies
    kernels: dict[str, DeclaredKernel] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)  # tensors whose dtype was refused as not built

    @property
    def speech(self) -> Speech:
        return Speech(self.source, self.mesh)


class Expressions:
    """Expressions of one op. `bound` maps its names to operands, None where the value could not be made."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.speech = file.speech
        self.bound: dict[str, Operand | None] = {}
        self.failed = False
        self.scopes: list[Scope] = []
        self.statement: nodes.Expr | None = None  # the value of the statement being lowered
        self.targets = 1  # names that this statement binds
        self.outputs: dict[Value, tuple[Operand, ...]] = {}  # of a kernel's call its results behind the first
        self._near: Nearest | None = None

    # ---- what calls.py uses too

    def fail(self, diagnostic: Diagnostic | None = None) -> None:
        """Note that the op cannot be built, and say why unless that was said."""
        if diagnostic is not None:
            self.file.report.add(diagnostic)
        if diagnostic is None or diagnostic.severity is Severity.ERROR:
            self.failed = True

    def make(self, kind: str, args: tuple[Operand, ...], typed: Typed | Diagnostic, node: nodes.Expr,
             moved: int | None = None, **attrs: int | float | str) -> Operand | None:
        """The value of an operation, with the policy of its scopes; None if its type is a finding."""
        if isinstance(typed, Diagnostic):
            self.fail(typed)
            return None
        name = typed.dims[moved] if moved is not None and typed.dims else None
        policy = self.file.policies.policy_of(kind, name, typed.dims, self.scopes)
        value = Value(kind, tuple(a.value for a in args), typed.type, node.span, attrs, policy)
        return Operand(value, typed.dims, node.span, node)

    def number(self, value: int | float, node: nodes.Expr) -> Operand | None:
        """A constant. Statements are evaluated in f32, so it must be one; folding may lead out of that."""
        if not abs(value) <= F32_LARGEST:  # also a nan
            self.fail(shape_rules.size_out_of_range("this number", node.span, "f32 holds no more than 3.4e38"))
            return None
        scalar = TensorType(DType.F32, (), (Replicate(),) * len(self.file.mesh.axes))
        return Operand(Value("const", (), scalar, node.span, {"number": value}), (), node.span, node)

    # ---- the walk

    def lower(self, node: nodes.Expr, inside: Enclosing | None = None) -> Operand | None:
        """The operand that an expression is. `inside`: the reduction of which it is the whole argument."""
        match node:
            case nodes.Ref():
                return self._ref(node)
            case nodes.Literal():
                return self.number(node.value, node)
            case nodes.Group():
                return self._group(node, inside)
            case nodes.Negate():
                return self._negate(node)
            case nodes.Attr():
                return self._attr(node)
            case nodes.Pick():
                base = self.lower(node.base)
                if base is None:
                    return None
                typed = operators.pick(base, node.index, lambda s: self.file.dims.bounds(s)[0], node.span, self.speech)
                return self.make("pick", (base,), typed, node, index=node.index)
            case nodes.Call():
                return lower_call(self, node)
            case _:
                return self._binary(node, inside)

    def bind(self, name: str, operand: Operand | None, origin: Label) -> None:
        self.bound[name] = replace(operand, origin=origin) if operand is not None else None
        self._near = None

    def _ref(self, node: nodes.Ref) -> Operand | None:
        if node.name in self.bound:
            operand = self.bound[node.name]
            if operand is None:
                self.fail()
                return None
            return replace(operand, span=node.span, node=node)
        if node.name in self.file.names.lost and self.file.names.kind_of(node.name) is None:
            self.fail()
            return None
        if self._near is None:
            self._near = Nearest(tuple(self.bound))
        kind = self.file.names.kind_of(node.name)
        known = {"tensor": "a tensor, but not a parameter of this op"}.get(kind or "") or (
            f"this is {'an' if kind[0] in 'ao' else 'a'} {kind}" if kind else "")
        self.fail(name_rules.unknown_name(node.name, node.span, "a parameter or a name bound above",
                                          self._near.of(node.name), known))
        return None

    def _group(self, node: nodes.Group, inside: Enclosing | None) -> Operand | None:
        if node.policy is None:
            operand = self.lower(node.inner, inside)
        else:
            operand = self.within(node.policy, node.span, "this parenthesis", node.inner)
        return replace(operand, span=node.span, node=node) if operand is not None else None

    def within(self, use: nodes.PolicyUse | None, span: Span, what: str, inner: nodes.Expr) -> Operand | None:
        """An expression under a `with`."""
        settings = self.file.policies.resolve(use)
        if settings is None:
            self.fail()
        scope = Scope(settings or {}, span, what)
        self.scopes.append(scope)
        operand = self.lower(inner)
        self.scopes.pop()
        if operand is not None and not self.file.policies.close(scope):
            self.fail()
        return operand

    def _negate(self, node: nodes.Negate) -> Operand | None:
        operand = self.lower(node.operand)
        if operand is None:
            return None
        if operand.is_const:
            return self.number(-operand.number, node)
        return self.make("neg", (operand,), Typed(operand.type, operand.dims), node)

    def _attr(self, node: nodes.Attr) -> Operand | None:
        base = self.lower(node.base)
        if node.name.text != "T":
            self.fail(name_rules.unknown_attribute(node.name.text, node.name.span))
            return None
        if base is None:
            return None
        return self.make("transpose", (base,), operators.transpose(base, self.speech), node)

    def _binary(self, node: nodes.Binary, inside: Enclosing | None) -> Operand | None:
        left, right = self.lower(node.left), self.lower(node.right)
        if left is None or right is None:
            return None
        if node.op == "@":
            return self.make("matmul", (left, right), operators.matmul(left, right, self.speech), node)
        if node.op == "/" and right.is_const and right.number == 0:
            self.fail(shape_rules.division_by_zero(node.right.span, "the divisor is 0"))
            return None
        if left.is_const and right.is_const:
            return self._fold(node.op, left.number, right.number, node)
        typed = operators.elementwise(node.op, left, right, self.speech, inside)
        return self.make(operators.ELEMENTWISE[node.op], (left, right), typed, node)

    def _fold(self, op: str, a: int | float, b: int | float, node: nodes.Binary) -> Operand | None:
        match op:
            case "+":
                value: int | float = a + b
            case "-":
                value = a - b
            case "*":
                value = a * b
            case _:
                value = a / b
        return self.number(value, node)

    def warn_cast(self, t: Operand, dtype: DType) -> None:
        """A cast of a Partial rounds each addend, unless every value of the old dtype is one of the new."""
        for axis in axes_of(t.type, Partial):
            if dtype not in (DType.F32, t.type.dtype):
                self.fail(placement_rules.cast_of_partial(dtype.value, self.speech.axis(axis), t.span, t.labels()))
