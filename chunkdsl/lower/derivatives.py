"""What the cotangent of a value gives its operands: one rule for each kind of value. Types follow the placement tables.

A cotangent is Shard where its value is, Replicate where the value is Partial, and Partial where the value is Replicate
and each rank has used it for a part of the result; a Replicate result's own cotangent is the same on every rank.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from chunkdsl.ir.graph import Param, Statement, Value, axes_of
from chunkdsl.ir.policy import Policy
from chunkdsl.ir.types import DType, Partial, Placement, Replicate, Shard, SymSize, TensorType, shards
from chunkdsl.lower import placements as table
from chunkdsl.lower.facts import POINTWISE, ROWWISE
from chunkdsl.lower.paired import ordinary, paired_policy, paired_product
from chunkdsl.lower.placements import Clash
from chunkdsl.source import Span

UNARY = ("gelu", "relu", "silu", "tanh")
VIEWS = ("all_gather", "transpose", "pick")  # bound to no name of their own: nothing is computed
COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")


class Derivatives:
    """Values of the backward op, its statements in order, and the cotangents that have come together so far."""

    def __init__(self, span: Span, taken: set[str]) -> None:
        self.span, self.taken = span, taken
        self.params: list[Param] = []
        self.statements: list[Statement] = []
        self.cotangents: dict[Value, list[Value]] = {}
        self.copies: dict[Value, Value] = {}  # forward value -> the same in the backward op
        self.names: dict[Value, str] = {}
        self.wide: set[Value] = set()  # parameters whose gradients are not rounded from f32
        self.final: dict[Value, str] = {}  # parameters that are used once, and what their gradient is called

    # ---- for the subclass

    def source(self, value: Value) -> Value | None:
        raise LookupError  # the subclass knows what is saved

    def refuse(self, what: str, span: Span, instead: str) -> None:
        raise LookupError  # the subclass knows where to report

    def settled(self, inherited: Policy, kind: str, type: TensorType, moved: SymSize | None) -> Policy:
        raise LookupError  # the subclass knows what the `gradient` item says

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
                made = self.copied(value, args)
                if value.kind not in VIEWS and self.heavy(made):
                    self.bind(made, "again")
            self.copies[value] = made
        return self.copies[value]

    def inline(self, value: Value) -> Value:
        """The same inside a larger tree: not a statement of its own, unless it is one already."""
        if value.kind == "const" or value in self.copies or self.source(value) is not None:
            return self.again(value)
        if value.kind in ("add", "sub", "mul", "div", "neg", "cast", "matmul"):
            args = tuple(self.again(a) if value.kind == "matmul" else self.inline(a) for a in value.args)
            return self.copied(value, args)
        return self.again(value)

    def copied(self, value: Value, args: tuple[Value, ...]) -> Value:
        """A forward value in the backward op, with its own policy under that of the gradient."""
        policy = value.policy
        if value.kind in (*COLLECTIVES, "matmul"):
            policy = self.settled(ordinary(policy), value.kind, value.type, moved(value))
        return Value(value.kind, args, value.type, self.span, value.attrs, policy)

    def collective(self, kind: str, forward: Value, d: Value, type: TensorType, attrs: dict) -> Value:
        """The collective that takes the place of `forward` in the backward pass."""
        made = Value(kind, (d,), type, self.span, attrs)
        policy = self.settled(paired_policy(forward, kind), kind, type, moved(made))
        return Value(kind, (d,), type, self.span, attrs, policy)

    # ---- cotangents

    def give(self, value: Value, cotangent: Value) -> None:
        if value.kind != "const":
            self.cotangents.setdefault(value, []).append(cotangent)

    def total(self, value: Value) -> Value:
        """The sum of what a value's uses have given; a statement where it is read more than once."""
        parts = self.cotangents[value]
        if any(p.kind == "unpick" for p in parts):
            self.cotangents[value] = [self.stacked(value, parts)]
            return self.cotangents[value][0]
        if len(parts) > 1 and all(p.kind == "sum_rows" for p in parts):  # one sum over the rows of all
            rows = parts[0].args[0]
            for p in parts[1:]:
                rows = self.pointwise("add", rows, p.args[0], value.span)
            parts = [Value("sum_rows", (self.bind(rows, "d"),), parts[0].type, self.span)]
        if value in self.wide:
            parts = [widened(p) for p in parts]
        if len(parts) > 1:
            parts = [self.bind(p, "part") if self.heavy(p) and p.kind not in ROWWISE else p for p in parts]
        total = parts[0]
        for p in parts[1:]:
            total = self.pointwise("add", total, p, value.span)
        branches = sum(a.kind != "const" for a in value.args)
        joins = value.kind in POINTWISE or value.kind in ROWWISE
        if value.kind == "matmul" or (joins and branches > 1 and self.heavy(total)):
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
                whole = placed(d.type, axes_of(v), Replicate())
                self.give(v.args[0], self.collective("all_gather", v, source, whole, dict(v.attrs)))
            case "all_to_all":
                self.dealt(v, d)
            case "pick":
                self.give(v.args[0], Value("unpick", (d,), v.args[0].type, self.span, v.attrs))
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
            case "rms_norm":
                self.normed(v, d)
            case kind if kind in UNARY:
                slope = self.unary(f"{kind}_grad", self.again(v.args[0]))
                self.give(v.args[0], self.pointwise("mul", d, slope, v.span))
            case _:
                by_hand = "write the backward pass as ops of their own"
                if v.kind in ("kernel", "output"):
                    more = ", and join them by torch.autograd.Function: docs/training.md, users' kernels"
                    self.refuse("a kernel's call", v.span, by_hand + more)
                self.refuse(f"`{v.kind}`", v.span, by_hand)

    def gathered(self, v: Value, d: Value) -> None:
        if not all(isinstance(d.type.placements[axis], Partial) for axis in axes_of(v)):
            self.refuse("a gathered value that is Replicate in its own right", v.span, "return the shard instead")
        if v.args[0] in self.wide:
            d = widened(d)
        layout = v.args[0].type.layout_of(int(v.attrs["dim"]))
        type = placed(d.type, axes_of(v), Shard(int(v.attrs["dim"]), layout))
        made = self.collective("reduce_scatter", v, d, type, dict(v.attrs))
        self.give(v.args[0], self.bind_for(v.args[0], made))

    def reduced(self, v: Value, d: Value) -> Value:
        axes = [axis for axis in axes_of(v) if isinstance(d.type.placements[axis], Partial)]
        if not axes:
            return d
        attrs = dict(zip(("axis", "inner"), axes, strict=False))
        made = self.collective("all_reduce", v, d, placed(d.type, axes, Replicate()), attrs)
        return self.bind_for(v.args[0], made)

    def dealt(self, v: Value, d: Value) -> None:
        """all_to_all(t, D1 -> D2): the same from D2 to D1."""
        source, target = int(v.attrs["source"]), int(v.attrs["target"])
        source_of_d = self.bind(d, "d") if self.communicates(d) else d
        type = placed(d.type, axes_of(v), Shard(source))
        attrs = {"axis": v.attrs["axis"], "source": target, "target": source}
        made = self.collective("all_to_all", v, source_of_d, type, attrs)
        self.give(v.args[0], self.bind_for(v.args[0], made))

    def communicates(self, value: Value) -> bool:
        """Does computing it take a collective?"""
        if value in self.names:
            return False
        return value.kind in COLLECTIVES or any(self.communicates(a) for a in value.args)

    def stacked(self, value: Value, parts: list[Value]) -> Value:
        """The gradient of a stack of matrices from those of the matrices picked from it."""
        matrices = []
        for i in range(int(value.type.shape[0])):
            found = [p.args[0] for p in parts if p.kind == "unpick" and int(p.attrs["index"]) == i]
            if not found or len(found) + sum(p.kind != "unpick" for p in parts) > len(found):
                self.refuse(f"a stack whose matrix [{i}] no result depends on", value.span, "leave it out of the stack")
            if value in self.wide:
                found = [widened(p) for p in found]
            if len(found) > 1:
                found = [self.bind(p, "part") if self.heavy(p) else p for p in found]
            total = found[0]
            for p in found[1:]:
                total = self.pointwise("add", total, p, value.span)
            matrices.append(total)
        held = tuple(Shard(p.dim + 1) if isinstance(p, Shard) else p for p in matrices[0].type.placements)
        type = TensorType(matrices[0].type.dtype, value.type.shape, held)
        return Value("stack", tuple(matrices), type, self.span)

    def bind_for(self, value: Value, cotangent: Value) -> Value:
        """A statement of the cotangent of `value`; under the result's name if that is what it is."""
        if value in self.wide:
            return cotangent
        if value in self.final:
            return self.result(self.final[value], cotangent)
        return self.bind(cotangent, "d")

    def product(self, v: Value, d: Value) -> None:
        """a @ b: d @ b.T and a.T @ d; for a @ w.T, d @ w and d.T @ a."""
        a, b = v.args
        right = self.again(b.args[0]) if b.kind == "transpose" else self.transposed(self.again(b))
        self.give(a, self.matmul(d, right, v))
        if b.kind == "transpose":
            self.give(b.args[0], self.matmul(self.transposed(d), self.again(a), v))
        else:
            self.give(b, self.matmul(self.transposed(self.again(a)), d, v))

    def normed(self, v: Value, d: Value) -> None:
        """rms_norm(x, g): d * g through the norm, and for g the sum over rows of d times the normed rows."""
        x, g = self.again(v.args[0]), self.again(v.args[1])
        rows = Value("rms_norm", (x, number(1, self.span)), v.type, self.span, v.attrs)
        self.give_broadcast(v, 1, self.pointwise("mul", d, rows, v.span))
        scaled = self.pointwise("mul", d, g, v.span)
        self.give(v.args[0], Value("rms_norm_grad", (x, scaled), scaled.type, self.span, v.attrs))

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
        held = tuple(Partial() if shards(p, 0) else p.along(0) if shards(p, 1) else p for p in d.type.placements)
        source = self.bind(d, "d") if self.heavy(d) or d.kind in POINTWISE else d
        self.give(t, Value("sum_rows", (source,), TensorType(d.type.dtype, t.type.shape, held), self.span))

    def unary(self, kind: str, t: Value) -> Value:
        if t.kind == "sum_rows":  # what is done with a sum is done with its rows: vectors have no launch of their own
            return replace(t, args=(self.bind(self.unary(kind, t.args[0]), "d"),))
        return Value(kind, (t,), t.type, self.span)

    def transposed(self, t: Value) -> Value:
        placements = tuple(table.transpose_axis(p) for p in t.type.placements)
        return Value("transpose", (t,), TensorType(t.type.dtype, t.type.shape[::-1], placements), self.span)

    def matmul(self, a: Value, b: Value, forward: Value) -> Value:
        pairs = zip(a.type.placements, b.type.placements, strict=True)
        placements = self.sound([table.matmul_axis(p, q) for p, q in pairs], forward.span)
        type = TensorType(a.type.dtype, (a.type.shape[0], b.type.shape[1]), placements)
        policy = self.settled(paired_product(forward, a.kind == "transpose"), "matmul", type, None)
        return Value("matmul", (a, b), type, self.span, policy=policy)

    def pointwise(self, kind: str, a: Value, b: Value, span: Span) -> Value:
        if a.kind == "sum_rows" and kind != "add":
            return replace(a, args=(self.bind(self.pointwise(kind, a.args[0], b, span), "d"),))
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


def placed(type: TensorType, axes: Iterable[int], placement: Placement) -> TensorType:
    """The type with another placement on these mesh axes."""
    over = tuple(axes)
    return TensorType(type.dtype, type.shape, tuple(placement if i in over else p
                                                    for i, p in enumerate(type.placements)))  # fmt: skip


def widened(value: Value) -> Value:
    """The same in f32, which is what products and sums are accumulated in: nothing is rounded."""
    if value.type.dtype == DType.F32:
        return value
    type = TensorType(DType.F32, value.type.shape, value.type.placements)
    if value.kind == "sum_rows":
        return Value(value.kind, value.args, type, value.span)
    return Value("cast", (value,), type, value.span)


def moved(value: Value) -> SymSize | None:
    """Size of the dimension that a collective moves."""
    dim = value.attrs.get("dim", 0) if value.kind in COLLECTIVES else None
    return None if dim is None else value.type.shape[int(dim)]


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
    if v.kind == "cast":
        return f"cast({_text(v.args[0], names)}, {v.type.dtype.value})"
    if v.kind == "pick":
        return f"{_text(v.args[0], names)}[{v.attrs['index']}]"
    if v.kind not in (*_INFIX, "transpose", "neg"):
        return f"{v.kind}({', '.join(names.get(a) or _text(a, names, True) for a in v.args)})"
    args = [_text(a, names) for a in v.args]
    if v.kind in _INFIX:
        text = f"{args[0]} {_INFIX[v.kind]} {args[1]}"
        return text if top else f"({text})"
    return f"{args[0]}.T" if v.kind == "transpose" else f"-{args[0]}"
