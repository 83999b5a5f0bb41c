"""Coverage: what each task reads was written, by the right rank, in the right call and place, each addend once.

One symbolic execution in one topological order; the plan is race-free, so any order gives the same (where it is not,
the atoms of the race hold anything, and nothing is said of them or of what is made from them).
"""

from __future__ import annotations

from chunkdsl.check import plans
from chunkdsl.check.prove.atoms import Atoms, Content, Step
from chunkdsl.check.prove.graph import Graph
from chunkdsl.check.prove.refutation import Findings, Refutation
from chunkdsl.check.prove.structure import box, brief, who
from chunkdsl.plan.plan import Act

ANYTHING: Content = ("", -1, 0, 0, 0)  # after a finding: compares with nothing, said once


class Contents:
    """Run once: `refutations`."""

    def __init__(self, graph: Graph, atoms: Atoms, racy: set[tuple[int, int]]) -> None:
        self._plan, self._atoms, self._racy = graph.plan, atoms, racy
        self._findings = Findings()
        self._now: list[Content | None] = [None] * atoms.count
        self._trace: list[tuple | None] = [None] * atoms.count  # (task, trace of what it took), newest first
        self._outputs = {b.name for b in graph.plan.buffers if b.kind == "output"}
        self._written: dict[int, tuple[int, int]] = {}  # atom of an output -> (call, task) of the last PUT or COPY
        run = {Act.PUT: self._put, Act.COPY: self._copy, Act.ADD: self._add, Act.NEED: self._need}
        for t in graph.order:
            for step in atoms.steps[t]:
                run[step.act](t, step)
            if racy:
                self._blur(t)
        self.refutations = self._findings.refutations

    def _put(self, t: int, step: Step) -> None:
        now, trace, content, mark = self._now, self._trace, step.content, (t, None)
        for atom in step.atoms:
            now[atom] = content
            trace[atom] = mark
        self._once(t, step)

    def _copy(self, t: int, step: Step) -> None:
        now, trace, moved = self._now, self._trace, bool(step.down or step.right)
        for atom, source in zip(step.atoms, step.sources, strict=True):
            content = self._read(t, source, step)
            if moved and content is not ANYTHING:
                content = *content[:3], content[3] + step.down, content[4] + step.right
            now[atom] = content
            trace[atom] = t, trace[source]
        self._once(t, step)

    def _add(self, t: int, step: Step) -> None:
        now, trace, down, right = self._now, self._trace, step.down, step.right
        for atom, source in zip(step.atoms, step.sources, strict=True):
            a, b = self._read(t, atom, step), self._read(t, source, step)
            if a is ANYTHING or b is ANYTHING:
                now[atom] = ANYTHING
                continue
            what, call, mask, row, col = b
            row, col = row + down, col + right
            if mask & a[2] or what != a[0] or call != a[1] or row != a[3] or col != a[4]:
                self._refute_sum(t, step, atom, source, a, (what, call, mask, row, col))
                now[atom] = ANYTHING
            else:
                now[atom] = what, call, mask | a[2], row, col
            old = trace[atom]
            if old is None or old[0] != t:
                trace[atom] = t, old

    def _need(self, t: int, step: Step) -> None:
        now, want = self._now, step.content
        for atom in step.atoms:
            if now[atom] != want:
                got = self._read(t, atom, step)
                if got is not ANYTHING and got != want:
                    self._refute_need(t, step, atom, got, want)

    def _read(self, t: int, atom: int, step: Step) -> Content:
        if self._racy and (t, atom) in self._racy:
            return ANYTHING
        content = self._now[atom]
        if content is None:
            place = self._atoms.box(atom)
            self._refute(plans.unwritten.code, t, step, atom, f"reads {_short(place)}, which no task has written")
            self._now[atom] = content = ANYTHING
        return content

    def _blur(self, t: int) -> None:
        for step in self._atoms.steps[t]:
            if step.act is not Act.NEED:
                for atom in step.atoms:
                    if (t, atom) in self._racy:
                        self._now[atom] = ANYTHING

    def _once(self, t: int, step: Step) -> None:
        if step.access.region.buffer not in self._outputs:
            return
        call = self._plan.tasks[t].call
        for atom in step.atoms:
            before = self._written.get(atom)
            if before and before[0] == call and before[1] != t and (t, atom) not in self._racy:
                other = self._plan.tasks[before[1]]
                text = f"writes {_short(self._atoms.box(atom))} again after {brief(other)}"
                self._refute(plans.written_twice.code, t, step, atom, text)
            self._written[atom] = call, t

    def _refute_sum(self, t: int, step: Step, atom: int, source: int, a: Content, b: Content) -> None:
        """a: what is there, b: what is added, as it would lie there."""
        call, place = self._plan.tasks[t].call, _short(self._atoms.box(source))
        if a[1] != b[1]:
            old, where = (b, source) if b[1] != call else (a, atom)
            text = f"adds up calls {a[1]} and {b[1]}: {_short(self._atoms.box(where))} is of call {old[1]}"
            self._refute(plans.stale.code, t, step, where, text)
        elif a[0] != b[0]:
            self._refute(plans.wrong_content.code, t, step, source, f"adds {b[0]} from {place} to a sum of {a[0]}")
        elif a[3:] != b[3:]:
            text = f"adds {self._content(b, atom)} from {place} to {self._content(a, atom)}"
            self._refute(plans.wrong_place.code, t, step, source, text)
        else:
            text = f"adds the addend of {_ranks(a[2] & b[2])} a second time, from {place}"
            self._refute(plans.counted_twice.code, t, step, source, text)

    def _refute_need(self, t: int, step: Step, atom: int, got: Content, want: Content) -> None:
        place = _short(self._atoms.box(atom))
        has, needs = self._content(got, atom), self._content(want, atom)
        if got[1] != want[1]:
            code, text = plans.stale.code, f"needs {needs} in {place} and finds {has}"
        elif got[0] != want[0]:
            code, text = plans.wrong_content.code, f"needs {needs} in {place} and finds {has}"
        elif got[3:] != want[3:]:
            code, text = plans.wrong_place.code, f"needs {needs} in {place} and finds {has}"
        elif want[2] & ~got[2]:
            missing = _ranks(want[2] & ~got[2])
            code, text = plans.addend_missing.code, f"finds {place} without the addend of {missing}"
        else:
            extra = _ranks(got[2] & ~want[2])
            code, text = plans.wrong_content.code, f"finds {place} with the addend of {extra}, which it must not hold"
        self._refute(code, t, step, atom, text)
        self._now[atom] = ANYTHING

    def _refute(self, code: str, t: int, step: Step, atom: int, text: str) -> None:
        task = self._plan.tasks[t]
        key = self._atoms.box(atom).buffer, step.act, task.kind, task.line

        def make() -> Refutation:
            writers = self._writers(atom)
            lines = [f"{who(task)}", f"  {text}", f"  place: {box(self._atoms.box(atom))}"]
            if writers:
                lines.append("  how it came there, the last first:")
                lines += [f"    {who(self._plan.tasks[w])}" for w in writers[:8]]
                lines += [f"    and {len(writers) - 8} before"] * (len(writers) > 8)
            else:
                lines.append("  no task before it writes there")
            other = self._plan.tasks[writers[0]].line if writers else task.line
            message = f"{brief(task)} {text}"
            return Refutation(code, message, "\n".join(lines), task.line, text, other, "written here")

        self._findings.add(code, key, make)

    def _writers(self, atom: int) -> list[int]:
        found, trace = [], self._trace[atom]
        while trace:
            found.append(trace[0])
            trace = trace[1]
        return found

    def _content(self, content: Content, atom: int) -> str:
        what, call, mask, row, col = content
        at = self._atoms.box(atom)
        addends = "" if mask == 1 else f" ({_ranks(mask)})" if mask else " (no addend)"
        return f"{what} of call {call} from row {at.row0 + row}, column {at.col0 + col}{addends}"


def _short(r) -> str:
    return f"{r.buffer} of rank {r.rank}, rows {r.row0}..{r.row1}, columns {r.col0}..{r.col1}"


def _ranks(mask: int) -> str:
    ranks = [str(i) for i in range(mask.bit_length()) if mask >> i & 1]
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(ranks)}"
