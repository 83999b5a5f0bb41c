"""All interleavings of a tiny plan, access by access: an executor that shares nothing with the proof.

Memory is a dictionary of elements, flag words hold the last epoch set, and a task goes on when its words are at least
the epoch that it waits for. Residency is left out (`stops_with_few_programs` is the other half).
"""

from __future__ import annotations

import random

from chunkdsl.plan.plan import Act, Plan, Region


def elements(r: Region):
    return [(r.buffer, r.rank, r.slot, i, j) for i in range(r.row0, r.row1) for j in range(r.col0, r.col1)]


class Executor:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        serial, last = {lane.name for lane in plan.lanes if lane.serial}, {}
        self.before = [set(t.after) for t in plan.tasks]
        for i, t in enumerate(plan.tasks):
            if t.lane in serial:
                if (t.rank, t.lane) in last:
                    self.before[i].add(last[t.rank, t.lane])
                last[t.rank, t.lane] = i
        self.givers = [{i for i, t in enumerate(plan.tasks) if s in t.signals} for s in range(len(plan.signals))]

    def word(self, s: int):
        signal = self.plan.signals[s]
        return signal.flags, signal.owner, signal.index

    def apply(self, memory: dict, access, call: int) -> bool:
        """Does one access; False if it reads what it should not."""
        for k, cell in enumerate(elements(access.region)):
            here = memory.get(cell)
            there = memory.get(elements(access.source)[k]) if access.source else None
            row, col = access.origin[0] - access.region.row0, access.origin[1] - access.region.col0
            meant = access.what, call, access.mask, row + cell[3], col + cell[4]
            if access.act is Act.PUT:
                memory[cell] = meant
            elif access.act is Act.NEED:
                if here != meant:
                    return False
            elif there is None:
                return False
            elif access.act is Act.COPY:
                memory[cell] = there
            elif here is None or here[:2] != there[:2] or here[3:] != there[3:] or here[2] & there[2]:
                return False
            else:
                memory[cell] = (here[0], here[1], here[2] | there[2], *here[3:])
        return True

    def failures(self, most: int = 30_000) -> set[str] | None:
        """{"content", "stuck"}: what goes wrong in some interleaving. None if there are more states than `most`."""
        plan, found, seen = self.plan, set(), set()
        todo = [((0,) * len(plan.tasks), (), ())]  # accesses done + 1 when complete, memory, words
        while todo:
            state = todo.pop()
            if state in seen:
                continue
            seen.add(state)
            if len(seen) > most:
                return None
            steps, memory, words = state
            done = {i for i, k in enumerate(steps) if k == len(plan.tasks[i].accesses) + 1}
            moved = False
            for i, t in enumerate(plan.tasks):
                if i in done or (steps[i] == 0 and not self.may_start(i, done, dict(words))):
                    continue
                moved = True
                now, flags = dict(memory), dict(words)
                if steps[i] < len(t.accesses):
                    if not self.apply(now, t.accesses[steps[i]], t.call):
                        found.add("content")
                        continue
                else:
                    for s in t.signals:
                        if self.givers[s] <= done | {i}:
                            flags[self.word(s)] = plan.signals[s].call
                following = (*steps[:i], steps[i] + 1, *steps[i + 1 :])
                todo.append((following, tuple(sorted(now.items())), tuple(sorted(flags.items()))))
            if not moved and len(done) < len(plan.tasks):
                found.add("stuck")
        return found

    def may_start(self, i: int, done: set[int], words: dict) -> bool:
        waits = self.plan.tasks[i].waits
        signals = self.plan.signals
        return self.before[i] <= done and all(words.get(self.word(s), -1) >= signals[s].call for s in waits)


def stops_with_few_programs(plan: Plan, programs: int, seed: int) -> bool:
    """One random execution of a plan whose issue-ordered lanes are one launch each, with few programs on a rank."""
    chance, run, done, flying = random.Random(seed), Executor(plan), set(), set()
    serial = {lane.name for lane in plan.lanes if lane.serial}
    queues: dict = {}
    for i, t in enumerate(plan.tasks):
        if t.lane not in serial:
            queues.setdefault((t.rank, t.call), []).append(i)
    while True:
        words: dict = {}
        for s, givers in enumerate(run.givers):
            if givers and givers <= done:
                words[run.word(s)] = max(words.get(run.word(s), -1), plan.signals[s].call)
        moves = [("end", i) for i in flying if run.may_start(i, done, words)]
        moves += [("run", i) for i, t in enumerate(plan.tasks)
                  if t.lane in serial and i not in done and run.may_start(i, done, words)]  # fmt: skip
        for (rank, _), queue in queues.items():
            room = sum(plan.tasks[i].rank == rank for i in flying) < programs
            if queue and room and run.before[queue[0]] <= done:
                moves.append(("issue", queue[0]))
        if not moves:
            return len(done) < len(plan.tasks)
        kind, i = chance.choice(moves)
        if kind == "issue":
            queues[plan.tasks[i].rank, plan.tasks[i].call].pop(0)
            flying.add(i)
        else:
            flying.discard(i)
            done.add(i)
