"""Where a TTGIR value comes from: backward slices through loops, branches and block arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from chunkdsl.aot.ttgir import Op, Region


@dataclass
class Slice:
    """What a value may depend on: operations and function arguments."""

    operations: set[Op] = field(default_factory=set)
    arguments: set[str] = field(default_factory=set)


def find_definition(value: str, region: Region | None) -> tuple[Op | None, Region | None, int]:
    """(operation, None, result index) or (None, region, argument index) of `value` as seen in `region`."""
    name, _, index = value.partition("#")
    while region is not None:
        if name in region.values:
            return region.values[name], None, int(index or 0)
        if name in region.arguments:
            return None, region, region.arguments.index(name)
        region = region.owner.region if region.owner else None
    return None, None, 0


def step_back(value: str, region: Region) -> tuple[Op | None, list[tuple[str, Region]], str]:
    """One step: (the defining operation if it computes the value, the values it is made of, function argument)."""
    op, block, index = find_definition(value, region)
    if op is not None:
        return _from_result(op, index)
    if block is None or block.owner is None:
        return None, [], ""
    owner = block.owner
    if owner.name == "tt.func":
        return None, [], block.arguments[index]
    if owner.name == "scf.for":
        if index == 0:
            return owner, [(v, owner.region) for v in owner.operands[1:4]], ""
        carried = _initial(owner)
        return None, [(carried[index - 1], owner.region), *_yielded(block, index - 1)], ""
    if owner.name == "scf.while":
        if block is owner.regions[0]:
            return None, [(_initial(owner)[index], owner.region), *_yielded(owner.regions[1], index)], ""
        return None, _yielded(owner.regions[0], index + 1), ""  # operand 0 of scf.condition is the condition
    return None, [(v, owner.region) for v in owner.operands], ""


def slice_back(value: str, region: Region, stop=lambda op: False) -> Slice:
    """Everything `value` may depend on. `stop(op)` keeps `op` in the slice and does not look behind it."""
    out, seen, work = Slice(), set(), [(value, region)]
    while work:
        value, region = work.pop()
        if (value, id(region)) in seen:
            continue
        seen.add((value, id(region)))
        op, behind, argument = step_back(value, region)
        if argument:
            out.arguments.add(argument)
        if op is not None:
            out.operations.add(op)
            if stop(op):
                continue
        work += behind
    return out


def _from_result(op: Op, index: int) -> tuple[Op | None, list[tuple[str, Region]], str]:
    if op.name == "scf.if":
        condition = [(op.operands[0], op.region)]
        return None, condition + [v for r in op.regions for v in _yielded(r, index)], ""
    if op.name == "scf.for":
        return None, [(_initial(op)[index], op.region), *_yielded(op.regions[0], index)], ""
    if op.name == "scf.while":
        return None, _yielded(op.regions[0], index + 1), ""
    inner = [(v, r) for r in op.regions if r.terminator for v in r.terminator.operands for r in (r,)]
    return op, [(v, op.region) for v in op.operands] + inner, ""


def _initial(op: Op) -> list[str]:
    return re.findall(r"%[\w$.-]+ = (%[\w$.-]+(?:#\d+)?)", op.text.split("iter_args(", 1)[-1].split(") :", 1)[0])


def _yielded(region: Region, index: int) -> list[tuple[str, Region]]:
    last = region.terminator
    return [(last.operands[index], region)] if last is not None and index < len(last.operands) else []
