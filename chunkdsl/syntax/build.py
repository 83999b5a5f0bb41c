"""Turns the parser's tree of one item into nodes. Reads numbers and says which do not fit; decides nothing else.

The tree is taken as it comes (`data`, `children`, `meta`), so this module does not import the parser. It recurses:
the caller refuses trees deeper than `DEPTH` first.
"""

from __future__ import annotations

import re
from math import isinf

from chunkdsl.check import syntax as rules
from chunkdsl.diagnostics import Report
from chunkdsl.source import Span
from chunkdsl.syntax import nodes as n

DEPTH = 100
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@"}
_SIZE_BINARY = {"size_add": "+", "size_sub": "-", "size_mul": "*", "size_div": "/", "size_mod": "mod"}


def depth(tree) -> int:
    """How deeply rules nest in a tree, counted without recursion."""
    deepest, level = 0, [tree]
    while level:
        deepest += 1
        level = [c for t in level for c in t.children if hasattr(c, "children")]
    return deepest


class Builder:
    """Builds the nodes of one item. `base` is its offset in the source; `failed` says that a number did not fit."""

    def __init__(self, base: int, report: Report) -> None:
        self.base, self.report, self.failed = base, report, False

    def build(self, tree) -> n.Node:
        return getattr(self, f"_{tree.data}", self._operator)(tree, *tree.children)

    # ---- spans, names, numbers

    def _span(self, place) -> Span:
        meta = getattr(place, "meta", place)
        return Span(self.base + meta.start_pos, self.base + meta.end_pos)

    def _name(self, token) -> n.Name:
        return n.Name(self._span(token), str(token))

    def _all(self, trees) -> tuple:
        return tuple(self.build(t) for t in trees if t is not None)

    def _maybe(self, tree):
        return None if tree is None else self.build(tree)

    def _refuse(self, diagnostic) -> None:
        self.report.add(diagnostic)
        self.failed = True

    def _int(self, token, text: str | None = None) -> int:
        digits = (text or str(token)).lstrip("0") or "0"
        if len(digits) > 19 or int(digits) >= 2**63:
            self._refuse(rules.number_out_of_range(self._span(token), "it does not fit in 64 bits"))
            return 0
        return int(digits)

    def _float(self, token) -> float:
        value = float(token)
        if isinf(value):
            self._refuse(rules.number_out_of_range(self._span(token), "it does not fit in a 64-bit float"))
            return 0.0
        return value

    def _value(self, token) -> int | float:
        return self._int(token) if token.type == "INT" else self._float(token)

    # ---- declarations

    def _version(self, t, number):
        return n.Version(self._span(t), self._int(number))

    def _mesh(self, t, *axes):
        return n.Mesh(self._span(t), self._all(axes))

    def _axis(self, t, name, size, _over, link):
        return n.Axis(self._span(t), self._name(name), self._int(size), self._name(link) if link else None)

    def _dim(self, t, name, value):
        return n.Dim(self._span(t), self._name(name), self.build(value))

    def _bounds(self, t, low, high, step):
        return n.Bounds(self._span(t), self._int(low), self._int(high), self._int(step) if step else 1)

    def _tensor(self, t, name, type_):
        return n.Tensor(self._span(t), self._name(name), self.build(type_))

    def _type(self, t, dtype, *rest):
        *dims, partial = rest
        return n.TypeExpr(self._span(t), self._name(dtype), self._all(dims), self._maybe(partial))

    def _tdim(self, t, size, place):
        return n.TypeDim(self._span(t), self.build(size), self._maybe(place))

    def _layout(self, t, kind, axes, argument):
        number = self._int(argument) if argument else None
        return n.Layout(self._span(t), self._name(kind), self.build(axes), number)

    def _axes(self, t, *names):
        return n.Axes(self._span(t), tuple(self._name(x) for x in names))

    # ---- policies

    def _policy(self, t, name, pairs):
        return n.Policy(self._span(t), self._name(name), self._all(pairs.children))

    def _pair(self, t, key, value):
        return n.Pair(self._span(t), self._name(key), self.build(value))

    def _choice(self, t, name, *args):
        values = tuple(self._int(a) if a.type == "INT" else str(a) for a in args if a is not None)
        return n.Choice(self._span(t), str(name), values)

    def _bytes(self, t, token):
        whole, fraction, unit = re.fullmatch(r"([0-9]+)(?:\.([0-9]+))?\s*(\w+)", token).groups(default="")
        digits = self._int(token, whole + fraction)
        count, rest = divmod(digits * _UNITS[unit], 10 ** len(fraction))
        if rest:
            self._refuse(rules.fraction_of_a_byte(self._span(token), str(token)))
        elif count >= 2**63:
            self._refuse(rules.number_out_of_range(self._span(token), "it does not fit in 64 bits"))
        return n.Bytes(self._span(t), count)

    def _tile(self, t, token):
        return n.Tile(self._span(t), tuple(self._int(token, d) for d in re.findall(r"[0-9]+", token)))

    def _number(self, t, token):
        return n.Number(self._span(t), self._value(token))

    def _text(self, t, token):
        return n.Text(self._span(t), str(token)[1:-1])

    def _rows(self, t, count, dim):
        return n.Rows(self._span(t), self._int(count), self._name(dim))

    def _count(self, t, count, unit):
        return n.Count(self._span(t), self._int(count), self._name(unit))

    def _use_policy(self, t, *parts):
        base = next((self._name(p) for p in parts if hasattr(p, "type")), None)
        pairs = next((self._all(p.children) for p in parts if hasattr(p, "children")), ())
        return n.PolicyUse(self._span(t), base, pairs)

    # ---- ops

    def _op(self, t, name, params, results, *body):
        parts = self._all(params.children), self._names(results), self._all(body)
        return n.Op(self._span(t), self._name(name), *parts)

    def _param(self, t, name, inout):
        return n.Param(self._span(t), self._name(name), inout is not None)

    def _names(self, t) -> tuple[n.Name, ...]:
        return tuple(self._name(x) for x in t.children)

    def _stmt(self, t, targets, value, policy):
        return n.Statement(self._span(t), self._names(targets), self.build(value), self._maybe(policy))

    def _operator(self, t, left, right):
        if t.data in _BINARY:
            return n.Binary(self._span(t), _BINARY[t.data], self.build(left), self.build(right))
        return n.SizeBinary(self._span(t), _SIZE_BINARY[t.data], self.build(left), self.build(right))

    def _neg(self, t, operand):
        return n.Negate(self._span(t), self.build(operand))

    def _attr(self, t, base, name):
        return n.Attr(self._span(t), self.build(base), self._name(name))

    def _pick(self, t, base, index):
        return n.Pick(self._span(t), self.build(base), self._int(index))

    def _ref(self, t, name):
        return n.Ref(self._span(t), str(name))

    def _literal(self, t, token):
        return n.Literal(self._span(t), self._value(token))

    def _call(self, t, function, *args):
        return n.Call(self._span(t), self._name(function), self._all(args))

    def _group(self, t, inner, policy):
        return n.Group(self._span(t), self.build(inner), self._maybe(policy))

    def _move(self, t, source, target):
        return n.MoveArg(self._span(t), self._name(source), self._name(target))

    def _keyword(self, t, name, value):
        return n.KeywordArg(self._span(t), self._name(name), self.build(value))

    # ---- plans

    def _plan(self, t, name, tensor, contract, _over, axes, block):
        names = self._name(name), self._name(tensor), self._name(contract)
        return n.Plan(self._span(t), *names, self.build(axes), self._all(block.children))

    def _loop(self, t, name, first, last, block):
        return n.Loop(self._span(t), self._name(name), self._all((first, last)), self._all(block.children))

    def _let(self, t, name, value):
        return n.Let(self._span(t), self._name(name), self.build(value))

    def _branch(self, t, condition, then, otherwise):
        other = self._all(otherwise.children) if otherwise else ()
        return n.Branch(self._span(t), self.build(condition), self._all(then.children), other)

    def _cond(self, t, left, op, right):
        return n.Condition(self._span(t), str(op), self.build(left), self.build(right))

    def _lane(self, t, number, block):
        return n.LaneBlock(self._span(t), self.build(number), self._all(block.children))

    def _transfer(self, t, action, region, peer, manner):
        into, adding, policy = manner.children
        places = self.build(region), self._all(peer.children), self._maybe(into)
        return n.Transfer(self._span(t), str(action), *places, adding is not None, self._maybe(policy))

    def _region(self, t, base, *sizes):
        *index, part, of = sizes
        whole = None if part is None else (self.build(part), self.build(of))
        return n.Region(self._span(t), self._name(base), self._all(index), whole)

    # ---- integer expressions

    def _size_int(self, t, token):
        return n.SizeInt(self._span(t), self._int(token))

    def _size_name(self, t, name):
        return n.SizeName(self._span(t), str(name))

    def _size_call(self, t, function, *args):
        return n.SizeCall(self._span(t), self._name(function), self._all(args))

    # ---- kernels, imports, gradients

    def _kernel(self, t, name, params, results, path, function, *bindings):
        lists = self._names(params), self._names(results)
        where = self.build(path), self._name(function)
        return n.Kernel(self._span(t), self._name(name), *lists, *where, self._all(bindings))

    def _tensor_arg(self, t, name, pointer, block, dtype, sizes, partial):
        typed = self._name(dtype) if dtype else None
        cut = self._all(block.children) if block else None
        dims, total = self._all(sizes.children), self._maybe(partial)
        return n.TensorArg(self._span(t), self._name(name), self._name(pointer), cut, typed, dims, total)

    def _scalar_arg(self, t, name, value):
        if value.data != "method":
            return n.ScalarArg(self._span(t), self._name(name), self.build(value), None)
        tensor, method, index = value.children
        return n.ScalarArg(self._span(t), self._name(name), None, (str(tensor), str(method), self._int(index)))

    def _negative(self, t, token):
        return n.Literal(self._span(t), -self._value(token))

    def _boolean(self, t, token):
        return n.Literal(self._span(t), token.type == "TRUE")

    def _grid(self, t, *sizes):
        return n.Grid(self._span(t), self._all(sizes))

    def _consts(self, t, *consts):
        return n.Const(self._span(t), self._all(consts))

    def _const(self, t, name, value):
        number = self._int(value) if hasattr(value, "type") else self.build(value).value
        return self._name(name), number

    def _use(self, t, path, name, contract, _over, axes):
        return n.UsePlan(self._span(t), self.build(path), self._name(name), self._name(contract), self.build(axes))

    def _gradient(self, t, op, *rest):
        *results, saves, policy = rest
        kept = self._names(saves) if saves else ()
        names = tuple(self._name(r.children[0]) for r in results)
        dtypes = tuple(self._name(r.children[1]) if r.children[1] else None for r in results)
        return n.Gradient(self._span(t), self._name(op), names, dtypes, kept, self._maybe(policy))
