"""Is the plan well formed? Indices, names, boxes, and who gives a signal. Says nothing about order or content."""

from __future__ import annotations

from chunkdsl.check import plans
from chunkdsl.check.prove.refutation import Findings, Refutation
from chunkdsl.plan.plan import Access, Act, Buffer, Plan, Region, Task


def check_structure(plan: Plan) -> list[Refutation]:
    """Refutations CD301, CD403 (a word set twice in a call), CD404, CD405. The other checks need none of these."""
    found = Findings()
    _tables(plan, found)
    if not found:
        buffers = {b.name: b for b in plan.buffers}
        lanes = {lane.name for lane in plan.lanes}
        for i, task in enumerate(plan.tasks):
            fault = _task_fault(plan, i, task, lanes)
            if fault:
                _malformed(found, fault[0], f"{who(task)} {fault[1]}", task.line)
                continue
            for access in task.accesses:
                fault = _access_fault(plan, access, buffers)
                if fault:
                    _malformed(found, fault[0], f"{who(task)}: {access.act.value} {fault[1]}", task.line)
    if not found:
        _signals(plan, found)
    return found.refutations


def who(task: Task) -> str:
    """`rank 2, call 0: tile 3 (line 14)`, for a line of its own. A name that says rank and call itself loses them."""
    line = f" (line {task.line})" if task.line else ""
    return f"rank {task.rank}, call {task.call}: {_title(task)}{line}"


def brief(task: Task) -> str:
    """`rank 2, call 0 (tile 3)`, as the subject of a sentence."""
    return f"rank {task.rank}, call {task.call} ({_title(task)})"


def _title(task: Task) -> str:
    rank, call = f"rank {task.rank}", f"call {task.call}"
    return task.name.removeprefix(f"{rank}, {call}: ").removeprefix(f"{rank}: ")


def box(region: Region) -> str:
    return (
        f"{region.buffer} of rank {region.rank}, slot {region.slot}, rows {region.row0}..{region.row1}, "
        f"columns {region.col0}..{region.col1}"
    )


def _malformed(found: Findings, key: str, message: str, line: int) -> None:
    found.add(
        plans.malformed_plan.code, (key, line), lambda: Refutation(plans.malformed_plan.code, message, message, line)
    )


def _tables(plan: Plan, found: Findings) -> None:
    if plan.world < 1:
        _malformed(found, "world", f"the plan is for {plan.world} ranks", 0)
    for what, names in (("buffers", [b.name for b in plan.buffers]), ("lanes", [x.name for x in plan.lanes])):
        for name in sorted({n for n in names if names.count(n) > 1}):
            _malformed(found, what, f"two {what} are named {name!r}", 0)
    for b in plan.buffers:
        if b.rows < 0 or b.cols < 0 or b.slots < 1 or b.kind not in ("input", "output", "local", "symmetric"):
            _malformed(found, "buffer", f"buffer {b.name!r} has {b.rows} rows, {b.cols} columns, "
                       f"{b.slots} slots and kind {b.kind!r}", 0)  # fmt: skip
    for lane in plan.lanes:
        if lane.programs < 0:
            _malformed(found, "programs", f"lane {lane.name!r} has {lane.programs} programs", 0)
    for i, s in enumerate(plan.signals):
        if not (0 <= s.owner < plan.world and 0 <= s.signaller < plan.world and s.index >= 0):
            _malformed(found, "signal", f"signal {i} ({s.flags}[{s.index}] of rank {s.owner}, given by rank "
                       f"{s.signaller}) is outside the {plan.world} ranks", 0)  # fmt: skip
        elif not 0 <= s.call < len(plan.calls):
            _malformed(found, "signal call", f"signal {i} ({s.flags}[{s.index}]) is of call {s.call} of "
                       f"{len(plan.calls)}", 0)  # fmt: skip


def _task_fault(plan: Plan, i: int, task: Task, lanes: set[str]) -> tuple[str, str] | None:
    """(key, what is wrong). A join may be in no lane; only joins order tasks of two ranks by `after`."""
    if not 0 <= task.rank < plan.world:
        return "rank", f"is outside the {plan.world} ranks"
    if not 0 <= task.call < len(plan.calls):
        return "call", f"is outside the {len(plan.calls)} calls"
    if task.count < 1:
        return "count", f"stands for {task.count} tiles"
    if task.lane not in lanes and (task.lane or task.kind != "barrier"):
        return "lane", f"runs on lane {task.lane!r}, which the plan does not have"
    for a in task.after:
        if not 0 <= a < i:
            return "after", f"comes after task {a}, which is not an earlier task (it is task {i})"
        if plan.tasks[a].rank != task.rank and "barrier" not in (task.kind, plan.tasks[a].kind):
            return "after rank", f"comes after a task of rank {plan.tasks[a].rank}: only joins and signals cross ranks"
    for s in (*task.waits, *task.signals):
        if not 0 <= s < len(plan.signals):
            return "signal", f"names signal {s} of {len(plan.signals)}"
    return None


def _access_fault(plan: Plan, access: Access, buffers: dict[str, Buffer]) -> tuple[str, str] | None:
    copies = access.act in (Act.COPY, Act.ADD)
    if copies != (access.source is not None):
        return "source", f"of {box(access.region)} has {'no' if copies else 'a'} source"
    for region in (access.region, access.source):
        if region is None or region.empty:
            continue
        b = buffers.get(region.buffer)
        if b is None:
            return "buffer name", f"of buffer {region.buffer!r}, which the plan does not have"
        inside = 0 <= region.row0 and region.row1 <= b.rows and 0 <= region.col0 and region.col1 <= b.cols
        if not (inside and 0 <= region.rank < plan.world and 0 <= region.slot < b.slots):
            return "box", (
                f"of {box(region)}: outside the buffer, which has {b.rows} rows, {b.cols} columns and {b.slots} slots "
                f"on each of {plan.world} ranks"
            )
    if copies:
        to, of = access.region, access.source
        if to.empty and of.empty:
            return None
        if (to.row1 - to.row0, to.col1 - to.col0) != (of.row1 - of.row0, of.col1 - of.col0):
            return "shape", f"from {box(of)} to {box(to)}: the two boxes differ in shape"
        if _overlap(to, of):
            return "overlap", f"from {box(of)} to {box(to)}: the two boxes overlap"
    elif not 0 <= access.mask < 1 << plan.world:
        return "mask", f"of {box(access.region)}: addends {access.mask:#x} are outside the {plan.world} ranks"
    return None


def _overlap(a: Region, b: Region) -> bool:
    if a.rank != b.rank or a.slot != b.slot or a.buffer != b.buffer:
        return False
    return a.row0 < b.row1 and b.row0 < a.row1 and a.col0 < b.col1 and b.col0 < a.col1


def _signals(plan: Plan, found: Findings) -> None:
    givers: list[list[Task]] = [[] for _ in plan.signals]
    for task in plan.tasks:
        for s in task.signals:
            givers[s].append(task)
    words: dict[tuple[str, int, int, int], int] = {}
    for i, s in enumerate(plan.signals):
        word = f"{s.flags}[{s.index}] of rank {s.owner}"
        for task in givers[i]:
            if task.rank != s.signaller:
                code = plans.two_signallers.code
                message = f"{who(task)} gives {word}, whose signaller is rank {s.signaller}"
                found.add(code, task.line, lambda c=code, m=message, t=task: Refutation(c, m, m, t.line))
        if givers[i]:
            first = words.setdefault((s.flags, s.owner, s.index, s.call), i)
            if first != i:
                a, b, code = givers[first][0], givers[i][0], plans.overtaken.code
                message = f"{who(a)} and {who(b)} both give {word} in call {s.call}, as two signals"
                found.add(
                    code, (a.line, b.line),
                    lambda c=code, m=message, a=a, b=b: Refutation(c, m, m, b.line, "the second", a.line, "the first"),
                )  # fmt: skip
    for task in plan.tasks:
        for s in task.waits:
            if not givers[s]:
                w, code = plan.signals[s], plans.unsignalled.code
                message = f"{who(task)} waits for {w.flags}[{w.index}] of rank {w.owner}, which no task gives"
                found.add(code, (task.line, w.flags), lambda c=code, m=message, t=task: Refutation(c, m, m, t.line))
