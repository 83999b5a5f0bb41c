"""Does the body of a plan have the parametric form, for every world size? Decides by its text; carries nothing out.

The form is one loop of `world - 1` iterations around one transfer, whose shard and peer are, modulo the world size,
constant + a * rank + b * step with a and b of -1, 0, 1. That every number is in range is proven for each world size
by carrying the plan out; in range and equal modulo the world size is equal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from chunkdsl.plan.form import Affine, Form
from chunkdsl.syntax import nodes


class NoForm(Exception):
    """Why a body has no parametric form."""


@dataclass(frozen=True)
class _Term:
    """const + rank * r + step * s + world * W, exact; or, if `wrapped`, equal to it modulo W."""

    const: int = 0
    rank: int = 0
    step: int = 0
    world: int = 0
    wrapped: bool = False


def find_form(plan: nodes.Plan, dims: dict[str, int]) -> Form:
    """The form of a plan. NoForm with the reason if it has none."""
    if len(plan.axes.names) != 1:
        raise NoForm("it runs over several axes")
    axis = plan.axes.names[0].text
    names = {name: _Term(const=value) for name, value in dims.items()}
    names |= {axis: _Term(world=1), "rank": _Term(rank=1), f"{axis}_rank": _Term(rank=1)}
    body = _lets(plan.body, names)
    if len(body) != 1 or not isinstance(body[0], nodes.Loop):
        raise NoForm("it is not one loop")
    return _loop(body[0], names, plan.contract.text == "all_to_all")


def _loop(loop: nodes.Loop, names: dict[str, _Term], exchange: bool) -> Form:
    """`exchange`: of an all_to_all, whose pieces go from the peer's place here to the own place there."""
    first = _term(loop.bounds[0], names) if len(loop.bounds) == 2 else _Term()
    count = _combine("-", _term(loop.bounds[-1], names), first)
    if first.wrapped or count.wrapped or first.rank or first.step or count != _Term(const=-1, world=1):
        raise NoForm("the loop does not have one step for each other rank")
    names = {**names, loop.name.text: _combine("+", first, _Term(step=1))}
    body = _lets(loop.body, names)
    if len(body) != 1 or not isinstance(body[0], nodes.Transfer):
        kinds = {nodes.Loop: "a loop inside the loop", nodes.Branch: "an `if`", nodes.LaneBlock: "a lane"}
        found = next((kinds[type(s)] for s in body if type(s) in kinds), "not one transfer in the loop")
        raise NoForm(f"it has {found}")
    t = body[0]
    if t.region.part is not None or (t.into is not None and t.into.part is not None):
        raise NoForm("it moves parts of shards")
    shard, peer = _affine(t.region.index[0], names), _affine(t.peer[0], names)
    into = shard if t.into is None else _affine(t.into.index[0], names)
    own = Affine(0, 1, 0)
    if exchange and (shard, into) == ((own, peer) if t.action == "fetch" else (peer, own)):
        shard = peer
    elif into != shard:
        raise NoForm("it moves a shard to the place of another")
    if peer.rank == 0:
        raise NoForm("all ranks have the same peer")
    return Form(shard, peer, t.action == "fetch")


def _lets(body: tuple[nodes.Step, ...], names: dict[str, _Term]) -> list[nodes.Step]:
    """The steps that are no `let`s; those go into `names`, as far as they are affine."""
    left = []
    for step in body:
        if isinstance(step, nodes.Let):
            try:
                names[step.name.text] = _term(step.value, names)
            except NoForm:
                names.pop(step.name.text, None)
        else:
            left.append(step)
    return left


def _affine(node: nodes.Size, names: dict[str, _Term]) -> Affine:
    term = _term(node, names)
    if abs(term.rank) > 1 or abs(term.step) > 1:
        raise NoForm("a rank or shard goes by more than one from rank to rank or step to step")
    return Affine(term.const, term.rank, term.step)


def _term(node: nodes.Size, names: dict[str, _Term]) -> _Term:
    match node:
        case nodes.SizeInt(value=value):
            return _Term(const=value)
        case nodes.SizeName(name=name):
            if name not in names:
                raise NoForm(f"`{name}` is not affine in rank and step")
            return names[name]
        case nodes.SizeCall():
            raise NoForm(f"`{node.function.text}` is not affine in rank and step")
    return _combine(node.op, _term(node.left, names), _term(node.right, names))


def _combine(op: str, a: _Term, b: _Term) -> _Term:
    wrapped = a.wrapped or b.wrapped
    if op in ("+", "-"):
        sign = 1 if op == "+" else -1
        return _Term(a.const + sign * b.const, a.rank + sign * b.rank, a.step + sign * b.step,
                     a.world + sign * b.world, wrapped)  # fmt: skip
    if op == "mod" and b == _Term(world=1):
        return replace(a, world=0, wrapped=True)
    if op == "*":
        for x, y in ((a, b), (b, a)):
            if x == _Term(const=x.const):
                return _Term(x.const * y.const, x.const * y.rank, x.const * y.step, x.const * y.world, wrapped)
    raise NoForm(f"`{op}` is not affine in rank and step")
