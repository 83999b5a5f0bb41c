"""What the cotangent of a value gives its operands: one rule for each kind of value. Types follow the placement tables.

A cotangent is Shard where its value is, Replicate where the value is Partial, and Partial where the value is Replicate
and each rank has used it for a part of the result; a Replicate result's own cotangent is the same on every rank.
"""

from __future__ import annotations

from chunkdsl.ir.graph import Param, Statement, Value
from chunkdsl.ir.policy import Policy
from chunkdsl.ir.types import DType, Partial, Replicate, Shard, TensorType
from chunkdsl.lower import placements as table
from chunkdsl.lower.facts import POINTWISE
from chunkdsl.lower.placements import Clash
from chunkdsl.source import Span

UNARY = ("gelu", "relu", "silu", "tanh")
TILE_KEYS = ("tile", "stages", "warps")


class Derivatives:
    """Values of the backward op, its statements in order, and the cotangents that have come together so far."""

    def __init__(self, span: Span, taken: set[str]) -> None:
        self.span, self.taken = span, taken
        self.params: list[Param] = []
        self.statements: list[Statement] = []
        self.cotangents: dict[Value, list[Value]] = {}
        self.copies: dict[Value, Value] = {}  # forward value -> the same in the backward op
        self.names: dict[Value, str] = {}
        self.final: dict[Value, str] = {}  # parameters that are used once, and what their gradient is called

    # ---- for the subclass

    def source(self, value: Value) -> Value | None:
        raise LookupError  # the subclass knows what is saved

    def refuse(self, what: str, span: Span, instead: str) -> None:
        raise LookupError  # the subclass knows where to report

    # ---- statements

    def fresh(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def bind(self, value: Value, stem: str) -> Value:
        """Make a statement of a value: it is computed once, and rounded to its dtype."""
        if value not in self.names and value.kind not in ("param", "const"):
            self.names[value] = name = self.fresh(stem)
            self.statements.append(Statement(name, value, self.span, derived_text(name, value, self.names)))
        return value

    def result(self, name: str, value: Value) -> Value:
        """A gradient under its own name; one that has a name already, or none of its own, is copied by the schedule."""
        if value.kind == "param":
            value = Value("mul", (value, number(1, self.span)), value.type, self.span)
        if value not in self.names:
            self.names[value] = name
            self.taken.add(name)
            self.statements.append(Statement(name, value, self.span, derived_text(name, value, self.names)))
        return value

    def heavy(self, value: Value) -> bool:
        """Does computing it take a product or a collective?"""
        if value in self.names or value.kind in ("param", "const"):
            return False
        return value.kind not in POINTWISE or any(self.heavy(a) for a in value.args)

    def again(self, value: Value) -> Value:
        """A forward value in the backward op: what was saved, or the same computed again."""
        if value.kind == "const":
            return value
        if value not in self.copies:
            made = self.source(value)
            if made is None:
                deep = value.kind in UNARY or value.kind == "swiglu"
                args = tuple(self.again(a) if deep else self.inline(a) for a in value.args)
                made = Value(value.kind, args, value.type, self.span, value.attrs, value.policy)
                if value.kind not in ("all_gather", "transpose") and self.heavy(made):
                    self.bind(made, "again")
            self.copies[value] = made
        return self.copies[value]

    def inline(self, value: Value) -> Value:
        """The same inside a larger tree: not a statement of its own, unless it is one already."""
        if value.kind == "const" or value in self.copies or self.source(value) is not None:
            return self.again(value)
        if value.kind in ("add", "sub", "mul", "div", "neg", "cast", "matmul"):
            args = tuple(self.again(a) if value.kind == "matmul" else self.inline(a) for a in value.args)
            return Value(value.kind, args, value.type, self.span, value.attrs, value.policy)
        return self.again(value)

    # ---- cotangents

    def give(self, value: Value, cotangent: Value) -> None:
        if value.kind != "const":
            self.cotangents.setdefault(value, []).append(cotangent)

    def total(self, value: Value) -> Value:
        """The sum of what a value's uses have given; a statement where it is read more than once."""
        parts = self.cotangents[value]
        if len(parts) > 1 and all(p.kind == "sum_rows" for p in parts):  # one sum over the rows of all
            rows = parts[0].args[0]
            for p in parts[1:]:
                rows = self.pointwise("add", rows, p.args[0], value.span)
            parts = [Value("sum_rows", (self.bind(rows, "d"),), parts[0].type, self.span)]
        elif len(parts) > 1:
            parts = [self.bind(p, "part") if self.heavy(p) else p for p in parts]
        total = parts[0]
        for p in parts[1:]:
            total = self.pointwise("add", total, p, value.span)
        branches = sum(a.kind != "const" for a in value.args)
        if value.kind == "matmul" or (value.kind in POINTWISE and branches > 1 and self.heavy(total)):
            if total.kind not in ("all_gather",):
                self.bind(total, "d")
        self.cotangents[value] = [total]
        return total

    def derive(self, v: Value, d: Value) -> None:
        """Give the operands of `v` what the cotangent `d` of it makes of theirs."""
        match v.kind:
            case "all_gather":
                self.gathered(v, d)
            case "reduce_scatter":
                source = self.bind(d, "d") if self.heavy(d) else d
                policy = Policy()
                attrs = {"axis": v.attrs["axis"], "dim": v.attrs["dim"]}
                self.give(v.args[0], Value("all_gather", (source,), self.whole(d, v), self.span, attrs, policy))
            case "all_reduce":
                self.give(v.args[0], self.reduced(v, d))
            case "matmul":
                self.product(v, d)
            case "add":
                self.give_broadcast(v, 0, d)
                self.give_broadcast(v, 1, d)
            case "sub":
                self.give_broadcast(v, 0, d)
                self.give_broadcast(v, 1, self.unary("neg", d))
            case "neg":
                self.give(v.args[0], self.unary("neg", d))
            case "mul":
                for i in (0, 1):
                    if v.args[i].kind != "const":
                        self.give_broadcast(v, i, self.pointwise("mul", d, self.again(v.args[1 - i]), v.span))
            case "div":
                self.quotient(v, d)
            case "cast":
                self.give(v.args[0], Value("cast", (d,), v.args[0].type, self.span))
            case "swiglu":
                a, b = (self.again(x) for x in v.args)
                self.give(v.args[0], self.pointwise("mul", self.pointwise("mul", d, b, v.span),
                                                    self.unary("silu_grad", a), v.span))  # fmt: skip
                self.give(v.args[1], self.pointwise("mul", d, self.unary("silu", a), v.span))
            case kind if kind in UNARY:
                slope = self.unary(f"{kind}_grad", self.again(v.args[0]))
                self.give(v.args[0], self.pointwise("mul", d, slope, v.span))
            case _:
                self.refuse(f"`{v.kind}`", v.span, "write the backward pass as an op of its own")

    def gathered(self, v: Value, d: Value) -> None:
        axis, dim = int(v.attrs["axis"]), int(v.attrs["dim"])
        if not isinstance(d.type.placements[axis], Partial):
            self.refuse("a gathered value that is Replicate in its own right", v.span, "return the shard instead")
        type = placed(d.type, axis, Shard(dim))
        made = Value("reduce_scatter", (d,), type, self.span, {"axis": axis, "dim": dim}, Policy())
        self.give(v.args[0], self.bind_for(v.args[0], made))

    def reduced(self, v: Value, d: Value) -> Value:
        axis = int(v.attrs["axis"])
        if not isinstance(d.type.placements[axis], Partial):
            return d
        made = Value("all_reduce", (d,), placed(d.type, axis, Replicate()), self.span, {"axis": axis}, Policy())
        return self.bind_for(v.args[0], made)

    def bind_for(self, value: Value, cotangent: Value) -> Value:
        """A statement of the cotangent of `value`; under the result's name if that is what it is."""
        if value in self.final:
            return self.result(self.final[value], cotangent)
        return self.bind(cotangent, "d")

    def whole(self, d: Value, v: Value) -> TensorType:
        return placed(d.type, int(v.attrs["axis"]), Replicate())

    def product(self, v: Value, d: Value) -> None:
        """a @ b: d @ b.T and a.T @ d; for a @ w.T, d @ w and d.T @ a."""
        a, b = v.args
        tile = Policy(**{k: getattr(v.policy, k) for k in TILE_KEYS},
                      spans={k: s for k, s in v.policy.spans.items() if k in TILE_KEYS})  # fmt: skip
        right = self.again(b.args[0]) if b.kind == "transpose" else self.transposed(self.again(b))
        self.give(a, self.matmul(d, right, tile, v.span))
        if b.kind == "pick" or (b.kind == "transpose" and b.args[0].kind == "pick"):
            self.refuse("a matrix picked from a stack", b.span, "declare the matrices as tensors of their own")
        if b.kind == "transpose":
            self.give(b.args[0], self.matmul(self.transposed(d), self.again(a), tile, v.span))
        else:
            self.give(b, self.matmul(self.transposed(self.again(a)), d, tile, v.span))

    def quotient(self, v: Value, d: Value) -> None:
        a, b = v.args
        if a.kind != "const":
            self.give_broadcast(v, 0, self.pointwise("div", d, self.again(b), v.span))
        if b.kind != "const":
            ratio = self.pointwise("div", self.again(v), self.again(b), v.span)
            self.give_broadcast(v, 1, self.unary("neg", self.pointwise("mul", d, ratio, v.span)))

    # ---- typed values

    def give_broadcast(self, v: Value, i: int, d: Value) -> None:
        """What an operand gets that was broadcast to the shape of `v`: the sum over what it was repeated along."""
        t = v.args[i]
        if t.kind == "const" or t.type.shape == v.type.shape:
            return self.give(t, d)
        if t.type.rank != 1 or t.type.shape[0] != v.type.shape[-1] or v.type.rank != 2:
            self.refuse("a broadcast that is not of a vector over rows", v.span, "declare a vector of the row's length")
        held = tuple(Partial() if p == Shard(0) else Shard(0) if p == Shard(1) else p for p in d.type.placements)
        source = self.bind(d, "d") if self.heavy(d) or d.kind in POINTWISE else d
        self.give(t, Value("sum_rows", (source,), TensorType(d.type.dtype, t.type.shape, held), self.span))

    def unary(self, kind: str, t: Value) -> Value:
        return Value(kind, (t,), t.type, self.span)

    def transposed(self, t: Value) -> Value:
        placements = tuple(table.transpose_axis(p) for p in t.type.placements)
        return Value("transpose", (t,), TensorType(t.type.dtype, t.type.shape[::-1], placements), self.span)

    def matmul(self, a: Value, b: Value, policy: Policy, span: Span) -> Value:
        pairs = zip(a.type.placements, b.type.placements, strict=True)
        placements = self.sound([table.matmul_axis(p, q) for p, q in pairs], span)
        type = TensorType(a.type.dtype, (a.type.shape[0], b.type.shape[1]), placements)
        return Value("matmul", (a, b), type, self.span, policy=policy)

    def pointwise(self, kind: str, a: Value, b: Value, span: Span) -> Value:
        rule = {"add": table.add_axis, "mul": table.mul_axis, "div": table.div_axis}[kind]
        shape = a.type.shape if a.type.rank >= b.type.rank else b.type.shape
        has = table.own_extent(a.type, shape), table.own_extent(b.type, shape)
        found = []
        for p, q in zip(a.type.placements, b.type.placements, strict=True):
            p, q = (table.in_result(x, t.type.rank, len(shape)) for x, t in ((p, a), (q, b)))
            found.append(rule(p, q, *has))
        return Value(kind, (a, b), TensorType(a.type.dtype, shape, self.sound(found, span)), self.span)

    def sound(self, placements: list, span: Span) -> tuple:
        if any(isinstance(p, Clash) for p in placements):
            self.refuse("a value whose uses are placed unlike", span, "write the backward pass as an op of its own")
        return tuple(placements)


def placed(type: TensorType, axis: int, placement) -> TensorType:
    return TensorType(type.dtype, type.shape, (*type.placements[:axis], placement, *type.placements[axis + 1 :]))


def number(n: int, span: Span) -> Value:
    return Value("const", (), TensorType(DType.F32, (), ()), span, {"number": n})


_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@"}


def derived_text(target: str, value: Value, names: dict[Value, str]) -> str:
    """A derived statement as one would write it."""
    return f"{target} = {_text(value, names, True)}"


def _text(v: Value, names: dict[Value, str], top: bool = False) -> str:
    if v in names and not top:
        return names[v]
    if v.kind == "param":
        return str(v.attrs["name"])
    if v.kind == "const":
        return str(v.attrs["number"])
    if v.kind not in (*_INFIX, "transpose", "neg"):
        return f"{v.kind}({', '.join(names.get(a) or _text(a, names, True) for a in v.args)})"
    args = [_text(a, names) for a in v.args]
    if v.kind in _INFIX:
        text = f"{args[0]} {_INFIX[v.kind]} {args[1]}"
        return text if top else f"({text})"
    return f"{args[0]}.T" if v.kind == "transpose" else f"-{args[0]}"
