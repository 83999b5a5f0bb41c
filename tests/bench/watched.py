"""Cases done by process groups that may hang, die or disagree: each case has a limit, a group that passes it is killed
whole, and a fresh one goes on with the next case. Knows nothing of what a case is.

A group's processes report on one pipe, a JSON object a line:

    {"begin": "name"}                the next case of those that the group was given begins
    {"so far": {...}, "at": "what is next", "limit": seconds}   a part of what is found; the rest has so many seconds
    {"end": {...}}                   it is done: what was found beside
    {"failed": "why", "rank": R}     this process cannot go on, and its group with it
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

PIPE = "CHUNKDSL_PROGRESS"  # environment variable: the descriptor to write to
LONGEST = 3500  # bytes of a line: below what a pipe takes in one piece
LOST = ("hung", "died", "failed")
STARTS = 2  # groups in a row that may fail before their first case
LOOK = 0.3  # seconds between looks at processes that say nothing
GRACE = 20.0  # seconds that processes have to leave by themselves, and killed ones to be gone


@dataclass(frozen=True)
class Case:
    """`limit` in seconds. If this one hangs, dies or fails `again` takes its place, and no later case of its `line` is
    run."""

    name: str
    kind: str
    limit: float
    about: Mapping = field(default_factory=dict)
    again: Case | None = None
    line: str = ""


@dataclass(frozen=True)
class Outcome:
    """How a case went: done, hung, died, failed, or not run. `why` where it was not done; `found`: then what was found
    until then."""

    case: Case
    how: str
    why: str = ""
    found: Mapping = field(default_factory=dict)
    seconds: float = 0.0


def report(said: dict) -> None:
    """Write one line to the pipe of this process's group; too long a text is cut."""
    if "failed" in said:
        said = {**said, "failed": said["failed"][-2500:]}
    line = (json.dumps(said) + "\n").encode()
    if len(line) > LONGEST:
        line = (json.dumps({"failed": f"a report of {len(line)} bytes", "rank": said.get("rank", 0)}) + "\n").encode()
    os.write(int(os.environ[PIPE]), line)


class Group:
    """Processes of one process group, from their start until the last one, and all that they started, is gone."""

    def __init__(self, command: Sequence[str], environments: Sequence[Mapping[str, str]]) -> None:
        self._pipe, writer = os.pipe()
        self._text, self._lines, self.processes = b"", deque(), []
        try:
            for own in environments:
                leader = self.processes[0].pid if self.processes else 0
                environment = {**os.environ, **own, PIPE: str(writer)}
                self.processes.append(subprocess.Popen(
                    command, env=environment, pass_fds=(writer,), process_group=leader, stdin=subprocess.DEVNULL,
                ))  # fmt: skip
        except BaseException:
            self.end()
            raise
        finally:
            os.close(writer)

    def next(self, seconds: float) -> dict | None:
        """The next line, or that a process died; {} when nobody is left who could say more; None after so long."""
        until = time.monotonic() + seconds
        while not self._lines:
            ready, _, _ = select.select([self._pipe], [], [], min(LOOK, max(0.0, until - time.monotonic())))
            if not ready:
                dead = self._dead()
                if dead:
                    return dead
                if time.monotonic() >= until:
                    return None
                continue
            text = os.read(self._pipe, 1 << 16)
            if not text:
                return {}
            *lines, self._text = (self._text + text).split(b"\n")
            self._lines.extend(json.loads(line) for line in lines)
        return self._lines.popleft()

    def _dead(self) -> dict:
        """The first process that ended badly, which stays to be waited for: the group's number must not be reused."""
        for rank, process in enumerate(self.processes):
            if process.returncode is None:
                ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is not None and (ended.si_code != os.CLD_EXITED or ended.si_status):
                    signalled = ended.si_code != os.CLD_EXITED
                    return {"died": f"{'signal' if signalled else 'exit code'} {ended.si_status}", "rank": rank}
        return {}

    def last(self) -> dict:
        """Of a group whose pipe is closed, the first process that ended badly; it may still be about to end."""
        until = time.monotonic() + GRACE
        while not (dead := self._dead()) and not self._all_ended() and time.monotonic() < until:
            time.sleep(0.01)
        return dead

    def _all_ended(self) -> bool:
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return all(p.returncode is not None or os.waitid(os.P_PID, p.pid, how) for p in self.processes)

    def end(self, patience: float = GRACE) -> bool:
        """Kill every process of the group. Whether all of them, and what else held the pipe, are gone."""
        if self.processes:
            try:
                os.killpg(self.processes[0].pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.processes:
            process.wait()
        until = time.monotonic() + patience
        while said := self.next(until - time.monotonic()):
            pass
        os.close(self._pipe)
        return said is not None


def run_cases(
    cases: Sequence[Case], start: Callable[[list[Case]], Group], seconds: float, start_limit: float,
    say: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:  # fmt: skip
    """Every case in turn; what is left after `seconds` is not run. `start` begins a group for the cases that are left;
    `start_limit`: seconds until its first case. `say` hears each outcome."""
    left, outcomes, idle = deque(cases), [], 0
    until = time.monotonic() + seconds

    def tell(outcome: Outcome) -> None:
        outcomes.append(outcome)
        say(outcome)

    while left and idle < STARTS and time.monotonic() < until:
        group = start(list(left))
        watch = Watch(group, left, until, start_limit)
        try:
            for outcome in watch:
                tell(outcome)
                case = outcome.case
                if outcome.how not in LOST:
                    continue
                for other in [c for c in left if c.line and c.line == case.line]:
                    left.remove(other)
                    tell(Outcome(other, "not run", f"{case.name}: {outcome.how}"))
                if case.again:
                    left.appendleft(case.again)
        finally:
            gone = group.end()
        idle = 0 if watch.began else idle + 1
        if not gone:
            tell(Outcome(Case("the group's end", "watch", 0.0), "failed", "processes have survived being killed"))
            break
    why = "ranks cannot start" if idle >= STARTS else "no time was left"
    for case in left:
        tell(Outcome(case, "not run", why))
    return outcomes


class Watch:
    """The outcomes of one group, until it has done all or cannot go on. Takes what has an outcome from `left`."""

    def __init__(self, group: Group, left: deque[Case], until: float, start_limit: float) -> None:
        self.group, self.left, self.until, self.limit = group, left, until, start_limit
        self.began = False

    def __iter__(self):
        start = at = time.monotonic()
        limit, stage, found = self.limit, "before it began: ", {}

        def lost(how: str, why: str) -> Outcome:
            return Outcome(self.left.popleft(), how, stage + why, found, time.monotonic() - start)

        while self.left:
            patience = limit - (time.monotonic() - at)
            closing = self.until - time.monotonic() < patience
            said = self.group.next(max(0.0, min(patience, self.until - time.monotonic())))
            if said is None and closing:
                yield lost("not run", "stopped when no time was left")
                return
            if said is None:
                yield lost("hung", f"no answer within {time.monotonic() - at:.0f} s")
                return
            if not said.keys() & {"begin", "so far", "end"}:
                how = "failed" if "failed" in said else "died"
                said = said or self.group.last()
                yield lost(how, f"rank {said['rank']}: {said[how]}" if said else "all have left")
                return
            self.began, at = True, time.monotonic()
            if "end" in said:
                yield Outcome(self.left.popleft(), "done", found={**found, **said["end"]}, seconds=at - start)
            if "so far" in said:
                found, limit, stage = {**found, **said["so far"]}, said["limit"], f"{said['at']}: "
            else:
                begins = "begin" in said
                limit, stage = (self.left[0].limit, "") if begins else (self.limit, "before it began: ")
                start, found = at, {}
        said = self.group.next(GRACE)  # processes leave by themselves
        if said != {}:
            why = f"no end within {GRACE:.0f} s" if said is None else str(said)
            yield Outcome(Case("leaving", "watch", GRACE), "hung" if said is None else "failed", why)
