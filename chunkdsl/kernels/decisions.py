"""Statements by which data may steer a kernel, written anew for traces.

A condition that stems from memory may choose between values: `if tl.max(x) > 0: acc = acc * 2`. Of such an `if` one
branch runs, and all that either assigns counts as tainted afterwards. Where a branch may touch memory the kernel is
refused, at the line that does; so it is where data bounds a loop. `min` and `max` of Python are those of the language.
Loops say what they carry on from round to round (`rounds`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

from chunkdsl.kernels.quiet import first_touch
from chunkdsl.kernels.refusals import current_line, decision_from_data
from chunkdsl.kernels.rounds import OneByOne
from chunkdsl.kernels.spread import EACH, Spread, each_of, together
from chunkdsl.kernels.taint import MARK, Taint, joined, mark, taint_of

DECIDE, ROUNDS, AFTER, CHOOSE, HOLDS, LEAST, MOST = (
    f"__{name}" for name in ("decide", "rounds", "after", "choose", "holds", "least", "most")
)


@dataclass(frozen=True)
class Decision:
    """`taint` of a condition that data decides, and that only chooses values."""

    holds: bool
    taint: Taint | None

    def __bool__(self) -> bool:
        return self.holds


def decide(condition, touch: int | None, what: str) -> Decision:
    """`touch`: the line that may touch memory, or end the function, as the condition has it; None if there is none."""
    taint = joined(condition) if isinstance(condition, tl.tensor) else None
    if taint and touch is not None:
        raise decision_from_data(what, taint, touch)
    return Decision(bool(condition.handle.data.all()) if taint else bool(condition), taint)


def rounds(touch: int | None, line: int | None, *bounds, step=None, **options):
    """A `range` of Triton or Python in a `for` of which the first access stands in line `touch`. `line`: the loop's,
    if its rounds may be looked at at once."""
    named = [options.pop(name) for name in ("arg1", "arg2") if name in options]
    bounds = [*bounds, *named, *([] if step is None else [step])]
    for value in bounds:
        if isinstance(value, tl.tensor) and (taint := joined(value)):
            raise decision_from_data("how often a loop runs", taint, touch or current_line())
    first, last, each = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    by_rounds = getattr(upstream.interpreter_builder, "by_rounds", None)
    if line and by_rounds and (at_once := by_rounds.loop(line, each_of(first), each_of(last), each_of(each))):
        return at_once
    if any(isinstance(v, tl.tensor) and EACH in v.handle.attr for v in (first, last, each)):
        return OneByOne(spread_range(first, last, each))
    return OneByOne(range(first, last, each))


def spread_range(*bounds) -> Iterator:
    """The same where programs differ; all go round equally often, or part."""
    first, last, each = map(each_of, bounds)
    counts = np.maximum(0, -(-(last.astype(np.int64) - first) // each))
    together(counts)
    for i in range(int(counts.reshape(-1)[0])):
        at = (first + i * each).astype(np.int32)
        each_one = {EACH: Spread((at,))} if at.size > 1 else {}
        yield tl.tensor(upstream.TensorHandle(at[0, 0], tl.int32, {MARK: None, **each_one}), tl.int32)


def after(decision: Decision, value):
    """A value that was assigned, or not, as data had it."""
    if decision.taint is None:
        return value
    if isinstance(value, tuple):
        return tuple(after(decision, item) for item in value)
    value = upstream.interpreter_semantic.to_tensor(value, False)
    if not isinstance(value, tl.tensor) or isinstance(value.handle, upstream.BlockPointerHandle):
        raise decision_from_data("what is read or stored later", decision.taint, current_line())
    handle = upstream.TensorHandle(value.handle.data, value.handle.dtype)
    mark(handle, Taint(decision.taint.line, decision.taint.source))
    return tl.tensor(handle, value.type)


def holds(condition) -> object:
    """What an `assert` asks; of loaded values a run does."""
    return condition if joined(condition) is None else True


def choose(decision: Decision, left: Callable, right: Callable):
    return after(decision, left() if decision else right())


def among(builtin: Callable, of: Callable) -> Callable:
    """Python's `min` or `max`, without asking which it is where data decide, or programs differ."""

    def call(*values, **options):
        asked = [v for v in values if isinstance(v, tl.tensor) and (taint_of(v.handle) or EACH in v.handle.attr)]
        if not asked or options or len(values) < 2:
            return builtin(*values, **options)
        found, *rest = values
        for value in rest:
            found = of(found, value)
        return found

    return call


class Decisions:
    """A form of kernels (`interp.rewrite`)."""

    names: Mapping[str, object] = {
        DECIDE: decide, ROUNDS: rounds, AFTER: after, CHOOSE: choose, HOLDS: holds,
        LEAST: among(min, lambda a, b: tl.minimum(a, b)), MOST: among(max, lambda a, b: tl.maximum(a, b)),
    }  # fmt: skip

    def statements(self, body: list[ast.stmt], fn: Callable) -> list[ast.stmt]:
        changed = _Statements(fn.__globals__, fn.__code__.co_firstlineno - 1)
        return [new for node in body for new in changed.several(node)]


DECISIONS = Decisions()


class _Statements(ast.NodeTransformer):
    """`before`: lines of the file in front of the function's text."""

    def __init__(self, space: Mapping[str, object], before: int) -> None:
        self.space, self.before = space, before
        self.count = 0

    def several(self, node: ast.stmt) -> list[ast.stmt]:
        made = self.visit(node)
        return made if isinstance(made, list) else [made]

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        branches = [*node.body, *node.orelse]
        touch = first_touch(branches, self.space)
        names = sorted({n.id for b in branches for n in ast.walk(b) if is_assigned(n)})
        self.generic_visit(node)
        self.count += 1
        kept = f"__decision_{self.count}"
        node.test = ast.NamedExpr(ast.Name(kept, ast.Store()), self.decision(node.test, touch, "a branch"))
        marks = [
            ast.If(ast.Attribute(ast.Name(kept, ast.Load()), "taint", ast.Load()), [if_bound(name, kept)], [])
            for name in ([] if touch else names)
        ]
        return [node, *(placed(m, node) for m in marks)]

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        touch = first_touch([node.body, node.orelse], self.space)
        self.generic_visit(node)
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        sides = [placed(ast.Lambda(nothing, side), side) for side in (node.body, node.orelse)]
        return placed(call(CHOOSE, self.decision(node.test, touch, "a choice"), *sides), node)

    def visit_While(self, node: ast.While) -> ast.While:
        touch = first_touch(node.body, self.space) or node
        self.generic_visit(node)
        node.test = self.decision(node.test, touch, "a loop")
        return node

    def visit_For(self, node: ast.For) -> ast.stmt | list[ast.stmt]:
        touch = first_touch(node.body, self.space)
        names = sorted(carried(node.body) - {getattr(node.target, "id", "")})
        leaves = node.orelse or any(isinstance(n, ast.Break | ast.Continue | ast.Return) for n in ast.walk(node))
        self.generic_visit(node)
        called = getattr(node.iter, "func", None)
        kind = getattr(called, "id", getattr(called, "attr", ""))
        if kind not in ("range", "static_range"):
            return node
        named = kind == "range" and isinstance(node.target, ast.Name)
        for statement in (node if named and not leaves else None, touch):
            line = statement.lineno + self.before if statement else None
            node.iter.args.insert(0, placed(ast.Constant(line), called))
        node.iter.func = placed(ast.Name(ROUNDS, ast.Load()), called)
        if not named:
            return node
        self.count += 1
        kept, target = f"__loop_{self.count}", node.target.id
        node.iter = placed(ast.NamedExpr(ast.Name(kept, ast.Store()), node.iter), node)
        own = placed(ast.Assign([ast.Name(target, ast.Store())], ast.Name(target, ast.Load())), node)  # a tensor
        entered, left = (placed(asked(kept, how, names), node) for how in ("enter", "leave"))
        node.body = [own, *([entered] if names else []), *node.body, *([left] if names else [])]
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        self.generic_visit(node)
        node.test = placed(call(HOLDS, node.test), node.test)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        own = {"min": LEAST, "max": MOST}.get(getattr(node.func, "id", ""))
        if own and node.func.id not in self.space:
            node.func = placed(ast.Name(own, ast.Load()), node.func)
        return node

    def decision(self, test: ast.expr, touch: ast.AST | None, what: str) -> ast.expr:
        """`__decide(test, line, what)`."""
        line, said = None, what
        if touch is not None:
            line, said = touch.lineno + self.before, f"whether {described(touch)}"
        return placed(call(DECIDE, test, ast.Constant(line), ast.Constant(said)), test)


def described(touch: ast.AST) -> str:
    if isinstance(touch, ast.Call):
        return f"`{ast.unparse(touch.func)}` takes place"
    return "a loop goes on" if isinstance(touch, ast.While) else f"`{ast.unparse(touch).splitlines()[0]}` is reached"


def if_bound(name: str, kept: str) -> ast.stmt:
    """A name that neither branch has assigned yet stays unbound."""
    value = call(AFTER, ast.Name(kept, ast.Load()), ast.Name(name, ast.Load()))
    unbound = ast.ExceptHandler(ast.Name("NameError", ast.Load()), None, [ast.Pass()])
    return ast.Try([ast.Assign([ast.Name(name, ast.Store())], value)], [unbound], [], [])


def asked(kept: str, how: str, names: Sequence[str]) -> ast.stmt:
    """Of each name that has a value: `if kept.at_once: name = kept.enter("name", name)`, or `kept.leave(...)`."""
    found = []
    for name in names:
        method = ast.Attribute(ast.Name(kept, ast.Load()), how, ast.Load())
        value = ast.Call(method, [ast.Constant(name), ast.Name(name, ast.Load())], [])
        done = ast.Assign([ast.Name(name, ast.Store())], value) if how == "enter" else ast.Expr(value)
        unbound = ast.ExceptHandler(ast.Name("NameError", ast.Load()), None, [ast.Pass()])
        found.append(ast.Try([done], [unbound], [], []))
    return ast.If(ast.Attribute(ast.Name(kept, ast.Load()), "at_once", ast.Load()), found, [])


def carried(body: Sequence[ast.stmt]) -> set[str]:
    """Names that a round may read before it has assigned them, and that it assigns."""
    assigned = {n.id for node in body for n in ast.walk(node) if is_assigned(n)}
    read, _ = read_first(body, frozenset())
    return assigned & read


def read_first(body: Sequence[ast.stmt], known: frozenset[str]) -> tuple[set[str], frozenset[str]]:
    """(names that statements may read before they have assigned them, those that they have assigned at their end)."""
    found: set[str] = set()
    for node in body:
        blocks = [getattr(node, part) for part in ("body", "orelse") if isinstance(getattr(node, part, None), list)]
        inner = {id(n) for part in blocks for statement in part for n in ast.walk(statement)}
        own = [n for n in ast.walk(node) if isinstance(n, ast.Name) and id(n) not in inner]
        changed = {node.target.id} if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) else set()
        found |= ({n.id for n in own if isinstance(n.ctx, ast.Load)} | changed) - known
        known |= {n.id for n in own if is_assigned(n)} if not isinstance(node, ast.For) else set()
        inside = known | ({n.id for n in own if is_assigned(n)} if isinstance(node, ast.For) else set())
        ends = []
        for part in blocks:
            read, end = read_first(part, inside)
            found |= read
            ends.append(end)
        if isinstance(node, ast.If):
            known |= ends[0] & ends[1]
    return found, known


def is_assigned(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])


def placed(node, like: ast.AST):
    return ast.fix_missing_locations(ast.copy_location(node, like))
