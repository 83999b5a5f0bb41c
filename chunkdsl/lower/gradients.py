"""`gradient` items: the backward pass of an op as an op of its own, derived on typed values.

Reverse-mode differentiation (Griewank and Walther, Evaluating Derivatives, 2008), with the cotangent of a collective by
its pairing: all_gather with reduce_scatter, reduce_scatter with all_gather, all_reduce with nothing where its result is
already whole. Cotangents are typed like everything else, so that a Replicate parameter whose tokens are sharded gets a
Partial gradient: the data-parallel sum is the caller's, stated in the type.

Nothing is scheduled here, and a value that is needed again is either saved or computed again; `saves` decides.
"""

from __future__ import annotations

from chunkdsl.check import gradients as rules
from chunkdsl.check import names as name_rules
from chunkdsl.diagnostics import Diagnostic, Label
from chunkdsl.ir.graph import Gradient, Op, Param, Value
from chunkdsl.ir.policy import Policy
from chunkdsl.ir.types import DType, SymSize, TensorType
from chunkdsl.lower.derivatives import Derivatives
from chunkdsl.lower.expressions import File
from chunkdsl.lower.paired import GradientPolicy
from chunkdsl.lower.tensors import find_dtype
from chunkdsl.source import Span
from chunkdsl.syntax import nodes


class NotDerived(Exception):
    """The gradient cannot be derived; the report says why."""


def lower_gradient(item: nodes.Gradient, ops: dict[str, Op], file: File) -> tuple[Gradient, tuple[Op, ...]] | None:
    """The pair of ops of one item, and those of them that are new. None if anything was reported."""
    op = ops.get(item.op.text)
    if op is None:
        if file.names.kind_of(item.op.text) != "op" and item.op.text not in file.names.lost:
            near = file.names.near(item.op.text, "op")
            known_as = file.names.known_as(item.op.text)
            file.report.add(name_rules.unknown_name(item.op.text, item.op.span, "an op", near, known_as))
        return None
    params = tuple(p.name for p in op.params)
    if len(item.results) != len(params):
        span = item.results[0].span.cover(item.results[-1].span)
        label = Label(op.span, "its parameters: " + ", ".join(params))
        file.report.add(rules.wrong_number_of_gradients(op.name, params, len(item.results), span, label))
        return None
    updated = next((p for p in op.params if p.inout), None)
    if updated is not None:
        label = Label(updated.span, "updated in place")
        file.report.add(rules.gradient_of_update_in_place(updated.name, item.op.span, label))
        return None
    try:
        return _Backward(item, op, ops, file).build()
    except NotDerived:
        return None


class _Backward(Derivatives):
    def __init__(self, item: nodes.Gradient, op: Op, ops: dict[str, Op], file: File) -> None:
        super().__init__(item.span, {*ops, *file.names.kinds})
        self.item, self.op, self.ops, self.file = item, op, ops, file
        self.policy = GradientPolicy(item.policy, file)
        self.wide = self._widened()
        self.named = {s.target: s.value for s in op.statements} | {p.name: p.value for p in op.params}
        self.sources: dict[str, tuple[str, int]] = {}
        self.saved = {self.named[n.text]: n.text for n in item.saves if self._known(n)}

    def _known(self, name: nodes.Name) -> bool:
        if name.text in self.named:
            return True
        self.file.report.add(
            name_rules.unknown_name(name.text, name.span, "a parameter or a statement of the op", (), "")
        )
        raise NotDerived

    def _widened(self) -> set[Value]:
        """Parameters whose gradients are asked for in f32 and are not f32 themselves."""
        found = set()
        for name, word, param in zip(self.item.results, self.item.dtypes, self.op.params, strict=True):
            if word is None:
                continue
            dtype, own = find_dtype(word), param.value.type.dtype
            if isinstance(dtype, Diagnostic):
                self.file.report.add(dtype)
                raise NotDerived
            if dtype not in (own, DType.F32):
                self.file.report.add(rules.gradient_of_other_dtype(name.text, dtype.value, own.value, word.span))
                raise NotDerived
            if dtype != own:
                found.add(param.value)
        return found

    def build(self) -> tuple[Gradient, tuple[Op, ...]]:
        for i, (name, value) in enumerate(self.op.results):
            self.cotangents[value] = [self.param(self.fresh(f"d{name}"), value.type, ("gradient", i))]
        uses = [a for v in _reachable(self.op) for a in v.args]
        for name, param in zip(self.item.results, self.op.params, strict=True):
            if sum(a is param.value for a in uses) == 1:
                self.final[param.value] = name.text
        for value in reversed(_reachable(self.op)):
            if value in self.cotangents and value.kind != "param":
                self.derive(value, self.total(value))
        results = []
        for name, param in zip(self.item.results, self.op.params, strict=True):
            if param.value not in self.cotangents:
                self.refuse(f"`{param.name}`", param.span, "no result depends on it: leave it out of the op")
            results.append((name.text, self.result(name.text, self.total(param.value))))
        if not self.policy.close():
            raise NotDerived
        read = {n for n, (kind, _) in self.sources.items() if kind != "gradient"}
        for name in self.item.saves:
            if name.text not in read:
                self.file.report.add(rules.saved_value_not_needed(name.text, name.span, tuple(sorted(read))))
                raise NotDerived
        return self._pair(tuple(results))

    def _pair(self, results) -> tuple[Gradient, tuple[Op, ...]]:
        kept = [n for n, (kind, _) in self.sources.items() if kind == "statement"]
        known = [n for n, _ in self.op.results]
        forward, new = self.op, ()
        if extra := [n for n in kept if n not in known]:
            name = _free(f"{self.op.name}_forward", self.ops)
            more = tuple((n, self.named[n]) for n in extra)
            forward = Op(name, self.op.params, (*self.op.results, *more), self.op.statements, self.item.span)
            new = (forward,)
        outputs = [n for n, _ in forward.results]
        inputs = [p.name for p in self.op.params]
        wanted = tuple(
            ("input", inputs.index(n)) if kind == "param" else ("output", outputs.index(n))
            if kind == "statement" else ("gradient", i)
            for n, (kind, i) in self.sources.items()
        )  # fmt: skip
        name = _free(f"{self.op.name}_backward", self.ops)
        backward = Op(name, tuple(self.params), results, tuple(self.statements), self.item.span)
        return Gradient(self.op.name, forward.name, backward.name, wanted), (*new, backward)

    def source(self, value: Value) -> Value | None:
        """What the backward op gets of a forward value: a parameter, or a saved statement."""
        if value.kind == "param":
            return self._keep(str(value.attrs["name"]), value, "param")
        if value in self.saved:
            return self._keep(self.saved[value], value, "statement")
        return None

    def _keep(self, name: str, value: Value, kind: str) -> Value:
        return self.param(name, value.type, (kind, 0))

    def param(self, name: str, type, source: tuple[str, int]) -> Value:
        for p in self.params:
            if p.name == name:
                return p.value
        value = Value("param", (), type, self.item.span, {"name": name})
        self.params.append(Param(name, value, False, self.item.span))
        self.sources[name] = source
        self.taken.add(name)
        return value

    def settled(self, inherited: Policy, kind: str, type: TensorType, moved: SymSize | None) -> Policy:
        return self.policy.over(inherited, kind, type, moved)

    def refuse(self, what: str, span: Span, instead: str) -> None:
        label = Label(self.item.op.span, "its gradient is asked for here")
        self.file.report.add(rules.gradient_not_derived(what, span, (label,), instead))
        raise NotDerived


def _reachable(op: Op) -> dict[Value, None]:
    """All values of an op, operands before what is made of them."""
    order: dict[Value, None] = {}
    for _, value in op.results:
        _visit(value, order)
    return order


def _visit(value: Value, order: dict[Value, None]) -> None:
    if value not in order:
        for a in value.args:
            _visit(a, order)
        order[value] = None


def _free(name: str, taken) -> str:
    while name in taken:
        name += "_"
    return name
