"""Races: conflicting accesses to one atom that nothing orders; and signal words that may fall back to an earlier call.

One walk in topological order keeps, for each atom, its last writer and the readers since (as FastTrack does, Flanagan
and Freund 2009): if each new access is after those, then by transitivity every conflicting pair is ordered.
"""

from __future__ import annotations

from itertools import pairwise

from chunkdsl.check import plans
from chunkdsl.check.prove.atoms import Atoms
from chunkdsl.check.prove.graph import Graph
from chunkdsl.check.prove.order import Clocks, path_to
from chunkdsl.check.prove.refutation import Findings, Refutation
from chunkdsl.check.prove.structure import box, brief, who
from chunkdsl.plan.plan import Act


class Races:
    """Run once: `refutations`, and `racy`, the (task, atom) pairs whose content no single order decides."""

    def __init__(self, graph: Graph, atoms: Atoms) -> None:
        self._graph, self._atoms = graph, atoms
        self._findings = Findings()
        self.racy: set[tuple[int, int]] = set()
        self._walk()
        self.refutations = self._findings.refutations

    def _walk(self) -> None:
        graph, steps = self._graph, self._atoms.steps
        tasks = graph.plan.tasks
        clocks = Clocks(graph)
        words = _Words(graph)
        writer = [-1] * self._atoms.count
        readers: list[list[int]] = [[] for _ in range(self._atoms.count)]
        put, need = Act.PUT, Act.NEED
        for t in graph.order:
            clocks.enter(t)
            earlier = {t, *tasks[t].after}  # tasks known to be before t
            if steps[t]:
                for s in tasks[t].waits:
                    earlier.update(graph.givers[s])
            for step in steps[t]:
                act = step.act
                if act is not put:
                    for atom in step.atoms if act is need else step.sources:
                        w = writer[atom]
                        if w >= 0 and w not in earlier:
                            if clocks.before(w, t):
                                earlier.add(w)
                            else:
                                self._race(w, t, atom)
                        since = readers[atom]
                        if not since or since[-1] != t:
                            since.append(t)
                if act is not need:
                    for atom in step.atoms:
                        since = readers[atom]
                        if since and (len(since) > 1 or since[0] != t):
                            for r in since:
                                if r not in earlier:
                                    if clocks.before(r, t):
                                        earlier.add(r)
                                    else:
                                        self._race(r, t, atom)
                        else:
                            w = writer[atom]
                            if w >= 0 and w not in earlier:
                                if clocks.before(w, t):
                                    earlier.add(w)
                                else:
                                    self._race(w, t, atom)
                        writer[atom] = t
                        readers[atom] = []
            if tasks[t].signals:
                words.give(t, clocks)
        words.report(self._findings)

    def _race(self, a: int, t: int, atom: int) -> None:
        self.racy.add((a, atom))
        self.racy.add((t, atom))
        one, two = self._graph.plan.tasks[a], self._graph.plan.tasks[t]
        rule = plans.unordered_accesses if one.call == two.call else plans.reused_early
        key = self._atoms.box(atom).buffer, one.kind, one.line, two.kind, two.line
        self._findings.add(rule.code, key, lambda: self._explain(rule.code, a, t, atom))

    def _explain(self, code: str, a: int, t: int, atom: int) -> Refutation:
        if code == plans.unordered_accesses.code and self._verb(a, atom) == "reads":
            a, t = t, a  # in one call it is the reader that should have waited
        one, two = self._graph.plan.tasks[a], self._graph.plan.tasks[t]
        place = self._atoms.box(atom)
        does, did = self._verb(t, atom), self._verb(a, atom)
        lines = [
            f"on {box(place)}:",
            f"  {who(one)} {did} it",
            f"  {who(two)} {does} it",
            "nothing orders the two." + _knowledge(self._graph, a, t),
        ]
        message = f"{brief(two)} {does} {place.buffer} of rank {place.rank} while {brief(one)} {did} it"
        return Refutation(code, message, "\n".join(lines), two.line, f"{does} it", one.line, f"{did} it")

    def _verb(self, t: int, atom: int) -> str:
        steps = self._atoms.steps[t]
        writes = any(s.act is not Act.NEED and atom in s.atoms for s in steps)
        reads = any(atom in (s.atoms if s.act is Act.NEED else s.sources) or (s.act is Act.ADD and atom in s.atoms)
                    for s in steps)  # fmt: skip
        return "reads and writes" if reads and writes else "writes" if writes else "reads"


def _knowledge(graph: Graph, a: int, t: int) -> str:
    """What t knows of the rank of a: the last task there that is before t, and the way from it to t."""
    tasks = graph.plan.tasks
    one, two = tasks[a], tasks[t]
    path = path_to(graph, t, one.rank)
    if len(path) == 1:
        return f" Nothing on rank {one.rank} is known to be complete before {brief(two)}."
    lines = [f" The last thing that {brief(two)} knows of rank {one.rank}:"]
    for i, (x, reason) in enumerate(path):
        if 0 < i and reason and reason == path[i - 1][1]:
            continue  # of a run along one lane the first and the last are enough
        lines.append(f"    {who(tasks[x])}" + (f"\n      -> {reason} ->" if reason else ""))
    lines.append(f"by then {brief(one)} need not be complete")
    return "\n".join(lines)


class _Words:
    """Each signal of a word must be given after the word's signal of the call before: after all tasks that give it,
    as the last of them publishes it."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        word: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
        for s, signal in enumerate(graph.plan.signals):
            if graph.givers[s]:
                word.setdefault((signal.flags, signal.owner, signal.index), []).append((signal.call, s))
        self._open: dict[int, set[int]] = {}  # signal -> givers of the one before not yet known to be earlier
        self._previous: dict[int, int] = {}
        for signals in word.values():
            signals.sort()
            for (_, a), (_, b) in pairwise(signals):
                self._previous[b] = a
                self._open[b] = set(graph.givers[a])

    def give(self, t: int, clocks: Clocks) -> None:
        place = self._graph.place
        for s in self._graph.plan.tasks[t].signals:
            left = self._open.get(s)
            if left:
                done = [a for a in left if a == t or (place[a] < place[t] and clocks.before(a, t))]
                left.difference_update(done)

    def report(self, findings: Findings) -> None:
        plan = self._graph.plan
        for s, left in self._open.items():
            for a in sorted(left):
                b = self._graph.givers[s][0]
                one, two = plan.tasks[a], plan.tasks[b]
                findings.add(
                    plans.overtaken.code, (plan.signals[s].flags, one.line, two.line),
                    lambda s=s, a=a, b=b: self._explain(s, a, b),
                )  # fmt: skip

    def _explain(self, s: int, a: int, b: int) -> Refutation:
        plan = self._graph.plan
        one, two, signal = plan.tasks[a], plan.tasks[b], plan.signals[s]
        before = plan.signals[self._previous[s]].call
        word = f"{signal.flags}[{signal.index}] of rank {signal.owner}"
        message = f"{word} may be set for call {signal.call} before it is set for call {before}, and fall back"
        lines = [
            f"{word} is given by", f"  {who(one)}", f"  {who(two)}",
            "nothing orders the two." + _knowledge(self._graph, a, b),
        ]  # fmt: skip
        return Refutation(
            plans.overtaken.code, message, "\n".join(lines), two.line, "gives it again", one.line, "gives it first"
        )
