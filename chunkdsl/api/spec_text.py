"""The text of the spec that a call means: short, commented, one that `chunkdsl check`, `verify` and `build` take."""

from __future__ import annotations

from chunkdsl.api.call import Call, safe
from chunkdsl.api.reading import Reading
from chunkdsl.api.roles import Roles
from chunkdsl.api.schedule import ChunkSchedule
from chunkdsl.kernels.source import KernelSource

FOLDER = "kernels"  # beside the spec: where the kernel's file lies
OP, ITEM, AXIS = "fused", "local", "ranks"


def spec_text(
    source: KernelSource, call: Call, schedule: ChunkSchedule, roles: Roles, reading: Reading,
    sizes: dict[str, int], most: int, summed: str,
) -> str:  # fmt: skip
    """`sizes`: of every size of the reading its value in the kernel. `most`: rows that a call may have. `summed`: the
    size that is added over, of a reduction."""
    world, gathers = schedule.world_size, schedule.collective_type == "all_gather"
    types = dict(call.tensors)
    inputs = [n for n in call.shapes if n not in roles.results]
    sharded = f" @ {AXIS}"

    def dims(name: str) -> str:
        shape = reading.shapes[name]
        cut = [(name in roles.gathered and i == 0) or d == summed for i, d in enumerate(shape)]
        return ", ".join(str(d) + sharded * c for d, c in zip(shape, cut, strict=True))

    lines = [f"# `{source.function}` of {source.file.name}, as a program called it: made by chunkdsl.compile.",
             f"mesh {AXIS}[{world}]", ""]  # fmt: skip
    for name, value in sizes.items():
        value = f"1..{most}" if name == reading.rows else value * world if name == summed else value
        lines.append(f"dim {name} = {value}")
    lines += ["", *(f"tensor {safe(n)} : {types[n].dtype}[{dims(n)}]" for n in inputs), ""]
    total = f" sum {summed}" if summed else ""
    parameters, results = ", ".join(map(safe, inputs)), ", ".join(map(safe, roles.results))
    lines.append(f'kernel {ITEM}({parameters}) -> {results} = "{FOLDER}/{source.file.name}" : {source.function} {{')
    for name in (*inputs, *roles.results):
        own = ", ".join(str(d) for d in reading.shapes[name])
        own += ", 1" * (name in roles.results and len(reading.shapes[name]) == 1)  # results are matrices
        dtype, more = (f"{types[name].dtype} ", total) if name in roles.results else ("", "")
        block = f"[{', '.join(map(str, types[name].block))}]" if types[name].block else ""
        lines.append(f"    {safe(name)} = {name}{block} : {dtype.strip()}[{own}]{more}")
    meanings = {name: meaning.text for name, meaning in reading.numbers}
    lines += [f"    arg {name} = {meanings.get(name) or constant(value)}" for name, value in call.numbers]
    lines.append(f"    grid = {', '.join(g.text for g in reading.grid)}")
    constants = [f"{n} = {constant(v)}" for n, v in (*call.constants, *call.options)]
    lines += [f"    const {', '.join(constants)}"] if constants else []
    lines += ["}", "", f"op {OP}({parameters}) -> {results} {{"]
    called = f"{ITEM}({', '.join(f'all_gather({safe(n)})' if n in roles.gathered else safe(n) for n in inputs)})"
    if not gathers:
        along = f", {reading.rows}" if schedule.collective_type == "reduce_scatter" else ""
        called = f"{schedule.collective_type}({called}{along})"
    lines += [f"    {results} = {called}{schedule.policy_text()}", "}", ""]
    return "\n".join(lines)


def constant(value: int | float | bool | str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)
