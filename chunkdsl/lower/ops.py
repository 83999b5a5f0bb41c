"""Ops: parameters, statements and results. One `Op` of the typed program, or None if anything in it was reported."""

from __future__ import annotations

from chunkdsl.check import exchanges as inout_rules
from chunkdsl.check import names as rules
from chunkdsl.check.unbuilt import not_built_yet
from chunkdsl.diagnostics import Label
from chunkdsl.ir.graph import Op, Param, Statement, Value
from chunkdsl.lower.expressions import Expressions, File
from chunkdsl.lower.names import is_reserved
from chunkdsl.lower.operands import Operand
from chunkdsl.lower.tensors import BUILT_DTYPES, TABLE_DTYPES
from chunkdsl.source import Span
from chunkdsl.syntax import nodes


def lower_op(item: nodes.Op, file: File) -> Op | None:
    """The typed op. Its statements are typed in order, also those below one with an error."""
    return _OpLowering(item, file).run()


class _OpLowering:
    def __init__(self, item: nodes.Op, file: File) -> None:
        self.item, self.file = item, file
        self.expressions = Expressions(file)
        self.params: dict[str, nodes.Param] = {}
        self.places: dict[str, Span] = {}  # where each name of a statement is bound
        self.computed: set[int] = set()  # ids of values that a statement computes

    def run(self) -> Op | None:
        e = self.expressions
        params = [p for node in self.item.params if (p := self._param(node)) is not None]
        statements = [s for node in self.item.body for s in self._statement(node)]
        results = [r for name in self._unique_results() if (r := self._result(name)) is not None]
        updates = [u for p in params if p.inout and (u := self._update(p)) is not None]
        if e.failed:
            return None
        name, span = self.item.name.text, self.item.span
        return Op(name, tuple(params), tuple(results), tuple(statements), span, tuple(updates))

    def _param(self, node: nodes.Param) -> Param | None:
        e, name, names = self.expressions, node.name.text, self.file.names
        if name in self.params:
            e.fail(rules.duplicate_name(f"parameter `{name}`", node.span, self.params[name].name.span))
            return None
        self.params[name] = node
        declared = self.file.tensors.get(name)
        if declared is None:
            e.bound[name] = None
            e.fail()
            if names.kind_of(name) != "tensor" and name not in names.lost:
                e.fail(rules.unknown_name(name, node.name.span, "a declared tensor", names.near(name, "tensor"),
                                          names.known_as(name)))
            return None
        if declared.type.dtype not in (*BUILT_DTYPES, *TABLE_DTYPES):
            self._refuse_dtype(name)
            e.bound[name] = None
            return None
        value = Value("param", (), declared.type, node.span, {"name": name})
        origin = Label(declared.span, f"declared as {e.speech.type(Operand(value, declared.dims, node.span))}")
        e.bind(name, Operand(value, declared.dims, node.span), origin)
        return Param(name, value, node.inout, node.span)

    def _refuse_dtype(self, name: str) -> None:
        """Once for a tensor, however many ops use it."""
        declared = self.file.tensors[name]
        self.expressions.fail()
        if name not in self.file.refused:
            self.file.refused.add(name)
            what = f"a tensor of {declared.type.dtype.value} in an op"
            instead = "use bf16, f16 or f32; i32 or i64 for a kernel's table"
            self.expressions.fail(not_built_yet(what, declared.dtype_span, instead))

    def _statement(self, node: nodes.Statement) -> list[Statement]:
        """One for each name that it binds to something new."""
        e = self.expressions
        self.file.report.watch()
        e.statement, e.targets = node.value, len(node.targets)
        if node.policy is None:
            operand = e.lower(node.value)
        else:
            operand = e.within(node.policy, node.span, "this statement", node.value)
        operands = [operand, *(e.outputs.get(operand.value, ()) if operand is not None and e.targets > 1 else ())]
        if len(node.targets) != len(operands):
            if operand is not None:
                e.fail(rules.wrong_number_of_targets(len(node.targets), node.value.span))
            operands = [None] * len(node.targets)
        return [s for t, o in zip(node.targets, operands, strict=True) if (s := self._bound(t, o, node)) is not None]

    def _bound(self, target: nodes.Name, operand: Operand | None, node: nodes.Statement) -> Statement | None:
        if not self._bind(target, operand) or operand is None:
            return None
        if operand.value.kind in ("const", "param") or id(operand.value) in self.computed:
            return None  # another name for something that is there already
        self.computed.add(id(operand.value))
        return Statement(target.text, operand.value, node.span)

    def _bind(self, target: nodes.Name, operand: Operand | None) -> bool:
        """Bind a statement's name, unless it has a meaning already."""
        e, name = self.expressions, target.text
        if name in self.params:
            if self.params[name].inout:
                e.bind(name, operand, Label(target.span, f"`{name}` is bound here"))
                return True
            e.fail(rules.assignment_to_parameter(name, target.span, self.params[name].name.span))
            return False
        if self.file.names.kind_of(name) in ("dim", "axis"):
            e.fail(rules.duplicate_name(f"`{name}`", target.span, self.file.names.kinds[name][1],
                                        "bind another name: this one is a dimension or an axis"))
            self.places.setdefault(name, target.span)
            e.bound[name] = None
            return False
        if name in self.places:
            e.fail(rules.duplicate_name(f"`{name}`", target.span, self.places[name],
                                        "bind another name: in an op a name means one value"))
            return False
        self.places[name] = target.span
        text = f"`{name}` is {e.speech.type(operand)}" if operand is not None else ""
        e.bind(name, operand, Label(target.span, text))
        return True

    def _unique_results(self) -> list[nodes.Name]:
        first: dict[str, nodes.Name] = {}
        for name in self.item.results:
            if name.text in first:
                self.expressions.fail(rules.duplicate_name(f"result `{name.text}`", name.span, first[name.text].span))
            else:
                first[name.text] = name
        return list(first.values())

    def _update(self, param: Param) -> tuple[str, Value] | None:
        """What an `inout` parameter holds after the call."""
        e, operand = self.expressions, self.expressions.bound[param.name]
        if operand is None:
            return None
        if operand.value is param.value:
            e.fail(inout_rules.inout_not_assigned(param.name, param.span))
            return None
        if operand.type != param.value.type:
            was = Operand(param.value, self.file.tensors[param.name].dims, param.span)
            found, wanted = e.speech.type(operand), e.speech.type(was)
            e.fail(inout_rules.inout_of_other_type(param.name, found, wanted, operand.value.span, param.span))
            return None
        return param.name, operand.value

    def _result(self, name: nodes.Name) -> tuple[str, Value] | None:
        e, word = self.expressions, name.text
        if why := is_reserved(word):
            e.fail(rules.reserved_name(word, name.span, why))
            return None
        if word in self.params:
            e.fail(rules.result_without_value(word, name.span, "is a parameter: results are new tensors",
                                              (Label(self.params[word].name.span, "the parameter"),)))
            return None
        if word not in self.places:
            e.fail(rules.result_without_value(word, name.span, "is bound by no statement"))
            return None
        operand = e.bound[word]
        if operand is None:
            return None
        if operand.value.kind in ("const", "param"):
            what = "a number" if operand.is_const else "a parameter under another name: results are new tensors"
            e.fail(rules.result_without_value(word, name.span, f"is {what}", (Label(self.places[word], "bound here"),)))
            return None
        return word, operand.value
