"""Readable text of types and of a whole typed program: deterministic, for people and tests. Not a format to load back.

`type_text` also serves diagnostics: it writes a type as the language does, `bf16[M @ tp, 4096] sum tp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from chunkdsl.ir.graph import Op, Program, Value
from chunkdsl.ir.policy import ChunkBytes, ChunkCount, ChunkRows, FuseFrom, Place, Policy
from chunkdsl.ir.types import Mesh, Partial, SymSize, TensorType, shards


def size_text(size: SymSize) -> str:
    """A size without the outer parentheses."""
    text = str(size)
    return text[1:-1] if text.startswith("(") else text


def shape_text(shape: Sequence[SymSize], names: Sequence[str | None] = ()) -> str:
    """`M, 4096`; names, where known, stand for sizes."""
    padded = (*names, *[None] * (len(shape) - len(names)))
    return ", ".join(n or size_text(s) for s, n in zip(shape, padded, strict=True))


def type_text(type: TensorType, mesh: Mesh, names: Sequence[str | None] = ()) -> str:
    """A type as the language writes it. `names` are the dimensions' names; None or missing ones show their size."""
    padded = (*names, *[None] * (type.rank - len(names)))
    dims = []
    for d, (size, name) in enumerate(zip(type.shape, padded, strict=True)):
        axes = [a.name for a, p in zip(mesh.axes, type.placements, strict=True) if shards(p, d)]
        one = f" @ {type.layout_of(d).over(axes[0])}" if axes else ""
        place = one if len(axes) < 2 else f" @ ({', '.join(axes)})"
        dims.append((name or size_text(size)) + place)
    summed = [a.name for a, p in zip(mesh.axes, type.placements, strict=True) if p == Partial()]
    tail = "" if not summed else f" sum {summed[0]}" if len(summed) == 1 else f" sum ({', '.join(summed)})"
    return f"{type.dtype.value}[{', '.join(dims)}]{tail}"


def policy_text(policy: Policy) -> str:
    """The keys that are not `auto`, in the order of `Policy`'s fields, as the language writes them; "" if none."""
    pairs = []
    for f in fields(policy):
        value = getattr(policy, f.name)
        if f.name == "spans" or value is None:
            continue
        pairs.append(f"{f.name} = {_policy_value(value)}")
    return "{ " + ", ".join(pairs) + " }" if pairs else ""


def dump_program(program: Program) -> str:
    """Mesh, dims, tensors and ops, one line for each operation; a value used twice has one number."""
    lines = ["mesh " + ", ".join(f"{a.name}[{a.size}]" + (f" over {a.link}" if a.link else "")
                                 for a in program.mesh.axes)]
    for r in program.ranges.values():
        lines.append(f"dim {r.name} = {r.low}..{r.high}" + (f" step {r.step}" if r.step != 1 else ""))
    lines += [f"dim {name} = {size_text(size)}" for name, size in program.constants.items()]
    lines += [f"tensor {name} : {type_text(t, program.mesh)}" for name, t in program.tensors.items()]
    for op in program.ops:
        lines += dump_op(op, program.mesh)
    return "\n".join(lines) + "\n"


def dump_op(op: Op, mesh: Mesh) -> list[str]:
    """Lines of one op, operands before their users."""
    names: dict[int, str] = {id(p.value): p.name for p in op.params}
    params = ", ".join(p.name + (" inout" if p.inout else "") for p in op.params)
    lines = [f"op {op.name}({params}) -> {', '.join(name for name, _ in op.results)} {{"]

    def visit(value: Value) -> str:
        if id(value) in names:
            return names[id(value)]
        if value.kind == "const":
            return repr(value.attrs["number"])
        args = [visit(a) for a in value.args]
        args += [f"{k}={v}" for k, v in value.attrs.items()]
        names[id(value)] = f"%{len(names) - len(op.params)}"
        policy = policy_text(value.policy)
        lines.append(f"    {names[id(value)]} = {value.kind}({', '.join(args)}) : {type_text(value.type, mesh)}"
                     + (f" with {policy}" if policy else ""))
        return names[id(value)]

    for s in op.statements:
        lines.append(f"    {s.target} = {visit(s.value)}")
    lines += [f"    return {name} = {visit(value)}" for name, value in op.results]
    return [*lines, "}"]


def _policy_value(value: object) -> str:
    match value:
        case ChunkBytes(count):
            return f"{count} B"
        case ChunkRows(count, dim):
            return f"{count} along {dim}"
        case ChunkCount(count):
            return f"{count} per shard"
        case Place(kind, programs):
            return f"{kind}({programs})" if programs else kind
        case FuseFrom(count, dim):
            return "never" if count is None else "always" if dim is None else f"{count} along {dim}"
        case tuple():
            return "x".join(str(v) for v in value)
        case _:
            return str(value)
