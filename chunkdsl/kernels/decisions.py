"""Statements by which data may steer a kernel, written anew for traces.

A condition that stems from memory may choose between values: `if tl.max(x) > 0: acc = acc * 2`. Of such an `if` one
branch runs, and all that either assigns counts as tainted afterwards. Where a branch may touch memory the kernel is
refused, at the line that does; so it is where data bounds a loop. `min` and `max` of Python are those of the language.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

from chunkdsl.kernels.quiet import first_touch
from chunkdsl.kernels.refusals import current_line, decision_from_data
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


def rounds(touch: int | None, *bounds, step=None, **options):
    """A `range` of Triton or Python in a `for` of which the first access stands in line `touch`."""
    named = [options.pop(name) for name in ("arg1", "arg2") if name in options]
    bounds = [*bounds, *named, *([] if step is None else [step])]
    for value in bounds:
        if isinstance(value, tl.tensor) and (taint := joined(value)):
            raise decision_from_data("how often a loop runs", taint, touch or current_line())
    first, last, each = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if any(isinstance(v, tl.tensor) and EACH in v.handle.attr for v in (first, last, each)):
        return spread_range(first, last, each)
    return range(first, last, each)


def spread_range(*bounds) -> Iterator:
    """The same where programs differ; all go round equally often, or part."""
    first, last, each = map(each_of, bounds)
    counts = np.maximum(0, -(-(last.astype(np.int64) - first) // each))
    together(counts)
    for i in range(int(counts.reshape(-1)[0])):
        at = (first + i * each).astype(np.int32)
        handle = upstream.TensorHandle(at[0], tl.int32, {MARK: None, **({EACH: Spread((at,))} if len(at) > 1 else {})})
        yield tl.tensor(handle, tl.int32)


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

    def visit_For(self, node: ast.For) -> ast.For:
        touch = first_touch(node.body, self.space)
        self.generic_visit(node)
        called = getattr(node.iter, "func", None)
        kind = getattr(called, "id", getattr(called, "attr", ""))
        if kind in ("range", "static_range"):
            line = ast.Constant(touch.lineno + self.before if touch else None)
            node.iter.args.insert(0, placed(line, called))
            node.iter.func = placed(ast.Name(ROUNDS, ast.Load()), called)
        if kind == "range" and isinstance(node.target, ast.Name):  # a tensor, as in `interp`
            name = node.target.id
            node.body.insert(0, placed(ast.Assign([ast.Name(name, ast.Store())], ast.Name(name, ast.Load())), node))
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


def is_assigned(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])


def placed(node, like: ast.AST):
    return ast.fix_missing_locations(ast.copy_location(node, like))
