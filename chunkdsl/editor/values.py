"""The types of values while a spec is being written: placement, local shape, bytes, what `auto` became, chunks.

Each question is answered from an excerpt: the item asked about and what it builds on, through the compiler's own
stages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from chunkdsl.diagnostics import Report
from chunkdsl.editor.lint import part_for
from chunkdsl.editor.segments import Excerpt, Relations, Segment, excerpt
from chunkdsl.editor.uses import item_of
from chunkdsl.ir.dump import policy_text, size_text, type_text
from chunkdsl.ir.graph import Op, Program, Value
from chunkdsl.ir.types import Partial, Replicate, Shard, TensorType, evaluate
from chunkdsl.pipeline import Checked, check_report
from chunkdsl.plan.schedule import OpSchedule
from chunkdsl.source import Source
from chunkdsl.syntax import nodes

LARGEST_PLAN = 20_000  # tasks up to which a plan is made between two keystrokes
_RESULTS = re.compile(r"->[^{]*\{")
_NAME = re.compile(r"[A-Za-z_]\w*")
_TARGET = re.compile(r"(?:^|[\n{])[ \t]*(\w+)[ \t]*=(?!=)")


@lru_cache(maxsize=256)
def checked(path: str, text: str) -> Checked:
    """All stages on one excerpt."""
    return check_report(Report(Source(path, text)))


def typed(path: str, segments: tuple[Segment, ...], index: int) -> tuple[Excerpt, Checked]:
    part = part_for(segments, index)
    return part, checked(path, part.text)


def value_at(path: str, segments: tuple[Segment, ...], index: int, offset: int) -> tuple[Program, Value, str] | None:
    """The innermost value of an op that spans an offset, and the name of its op."""
    part, made = typed(path, segments, index)
    inner = part.inward(offset)
    if made.program is None or inner is None:
        return None
    for op in made.program.ops:
        spanning = [v for v in values(op) if v.span.start <= inner <= v.span.end and v.kind not in ("const", "param")]
        if op.span.start <= inner <= op.span.end and spanning:
            return made.program, min(spanning, key=lambda v: v.span.end - v.span.start), op.name
    return None


def backward(made: Checked) -> str:
    """The op of the last gradient that is built; ""."""
    return made.program.gradients[-1].backward if made.program is not None and made.program.gradients else ""


def named_value(made: Checked, op: str, name: str) -> TensorType | None:
    """The type of what a statement of an op that is right binds to a name."""
    for o in made.program.ops if made.program is not None else ():
        if o.name == op:
            found = {s.target: s.value.type for s in o.statements} | {n: v.type for n, v in o.results}
            return found.get(name)
    return None


def values(op: Op) -> Iterator[Value]:
    """Every value that the statements of an op make, each once."""
    seen: set[int] = set()
    waiting = [s.value for s in op.statements] + [v for _, v in op.results]
    while waiting:
        value = waiting.pop()
        if id(value) not in seen:
            seen.add(id(value))
            yield value
            waiting += value.args


def bound(
    path: str, segments: tuple[Segment, ...], index: int, offset: int
) -> tuple[Program | None, dict[str, TensorType]]:
    """The types of the names of an op that are known before the line of `offset`: parameters, and what the statements
    above bind as far as they are right. Works while the rest of the op is not yet a program."""
    text = segments[index].text
    before = text[: text.rfind("\n", 0, offset - segments[index].start) + 1]
    opened = _RESULTS.search(before)
    if opened is None:
        head = _RESULTS.search(text)
        params = re.findall(r"\w+", text[: head.start() if head else len(text)].partition("(")[2].partition(")")[0])
        program = typed_without(path, segments, index)
        return program, _parameters(program, params)
    targets = list(dict.fromkeys(_TARGET.findall(before[opened.end() - 1 :])))
    params = re.findall(r"\w+", before[: opened.start()].partition("(")[2].partition(")")[0])
    while targets:
        names = [t for t in targets if t not in params]
        trial = f"{before[: opened.start()]}-> {', '.join(names)} {{{before[opened.end() :]}}}\n"
        program = _program(path, segments, index, trial)
        if program is not None and program.ops:
            op = program.ops[-1]
            known = {p.name: p.value.type for p in op.params}
            return program, known | {name: value.type for name, value in op.results}
        last = max(m.start(1) for m in _TARGET.finditer(before) if m[1] == targets[-1])
        before, targets = before[:last], targets[:-1]
    program = typed_without(path, segments, index)
    return program, _parameters(program, params)


def typed_without(path: str, segments: tuple[Segment, ...], index: int) -> Program | None:
    """The declarations that an item builds on."""
    return _program(path, segments, index, "")


def _program(path: str, segments: tuple[Segment, ...], index: int, item: str) -> Program | None:
    needed = Relations(segments).needed([index]) - {index}
    return checked(path, excerpt(segments, needed).text + item).program


def _parameters(program: Program | None, names: list[str]) -> dict[str, TensorType]:
    return {name: program.tensors[name] for name in names if name in program.tensors} if program is not None else {}


# ---- in words


def placement_text(program: Program, type: TensorType, names: Mapping[int, str] | None = None) -> str:
    """`Shard(0) over tp`, `Partial over tp`, `Replicate`."""
    words = []
    for axis, placement in zip(program.mesh.axes, type.placements, strict=True):
        if isinstance(placement, Shard | Partial):
            words.append(f"{placement} over {axis.name}")
    return ", ".join(words) or str(Replicate())


def local_text(program: Program, type: TensorType) -> str:
    """What a rank holds of a value: shape and bytes, with run-time dims at their largest."""
    largest = {name: r.high for name, r in program.ranges.items()}
    shape = []
    for d, size in enumerate(type.shape):
        axis = type.axis_sharding(d)
        count = evaluate(size, largest)
        shape.append(count if axis is None else type.layout_of(d).shard(count, program.mesh.axes[axis].size))
    count = type.dtype.bytes
    for size in shape:
        count *= size
    ranks = " x ".join(str(a.size) for a in program.mesh.axes)
    mentioned = {word for size in type.shape for word in _NAME.findall(size_text(size))}
    used = ", ".join(f"{name} = {largest[name]}" for name in largest if name in mentioned)
    return f"each of {ranks} ranks holds [{', '.join(map(str, shape))}], {bytes_text(count)}" + (
        f" at {used}" if used else "")


def bytes_text(count: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"


def describe(program: Program, value: Value) -> list[str]:
    """Lines about a value: its type, its placement, what a rank holds, its policy."""
    lines = [type_text(value.type, program.mesh), placement_text(program, value.type), local_text(program, value.type)]
    if policy := policy_text(value.policy):
        lines.append(f"with {policy}")
    return lines


def schedule_of(made: Checked, op: str) -> OpSchedule | None:
    return next((o for o in made.schedule.ops if o.name == op), None) if made.schedule is not None else None


def choices(made: Checked, op: str) -> list[str]:
    """What each `auto` of an op became, and why."""
    found = schedule_of(made, op)
    return [f"{c.where}: {c.key} = {c.value} ({c.why})" for c in found.choices] if found is not None else []


@lru_cache(maxsize=128)
def chunks(path: str, text: str, op: str) -> list[str]:
    """How the rows of an op travel, and what of it the cost model expects to stay exposed, at the largest sizes; []
    where there is no plan or it is too large to make between two keystrokes."""
    from chunkdsl.pipeline import plan_checked, predict_checked

    made = check_report(Report(Source(path, text)))  # of its own: planning adds findings to it
    if made.report.failed or schedule_of(made, op) is None:
        return []
    planned = next((p for p in plan_checked(made, largest=LARGEST_PLAN).ops if p.op.name == op), None)
    if planned is None or planned.note:
        return []
    found = planned.summary.chunks
    lines = [
        f"{c.what}: {c.per_shard} chunk{'s' * (c.per_shard != 1)} of {c.rows} rows ({bytes_text(c.bytes)}) for each of "
        f"{c.shards} shards" for c in found
    ]
    for p in predict_checked(made) if found else ():
        if p.op.name == op:
            lines.append(f"about {p.exposed:.0f} us of communication exposed, of {p.total:.0f} us in all")
    return lines


def statement_hints(path: str, segments: tuple[Segment, ...], index: int) -> list[tuple[int, str]]:
    """(offset behind a statement's target, its type) of an op's statements."""
    item = item_of(segments[index].text)
    if not isinstance(item, nodes.Op):
        return []
    part, made = typed(path, segments, index)
    if made.program is None:
        return []
    found = []
    for op in made.program.ops:
        for statement in op.statements:
            at = part.outward(statement.span.start)
            if op.name == item.name.text and segments[index].start <= at <= segments[index].end:
                found.append((at + len(statement.target), type_text(statement.value.type, made.program.mesh)))
    return found


