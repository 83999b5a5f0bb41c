"""Groups of processes that do cases: what hangs, dies or fails costs its own case and nothing else."""

import json
import os
import sys
import time
from pathlib import Path

import watched
from watched import Case, Group, run_cases

FOREVER = 600.0
# A process of a group, without chunkdsl and torch: each case's name says what it does.
RANK = """
import json, os, subprocess, sys, time
rank, names = int(os.environ["RANK"]), json.loads(os.environ["NAMES"])
def say(**said):
    os.write(int(os.environ["CHUNKDSL_PROGRESS"]), (json.dumps(said) + "\\n").encode())
if rank == 1 and {"hangs", "dies", "raises"} & {n.split()[0] for n in names}:  # so that what rank 0 says comes in order
    time.sleep(600)
for name in names:
    if name == "no start":
        say(failed="nothing to start with", rank=rank)
        os._exit(1)
    if rank == 0:
        say(begin=name)
    if name == "hangs":
        hold = [int(os.environ["CHUNKDSL_PROGRESS"])]
        subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], pass_fds=hold)
        time.sleep(600)
    if name.startswith("hangs later"):
        say(**{"so far": {"eager": 3}, "at": "its capture", "limit": 600})
        say(**{"so far": {"apart": 0}, "at": "its replay", "limit": 0.2})
        time.sleep(600)
    if name == "dies":
        os._exit(7)
    if name == "raises":
        say(failed="because", rank=rank)
        os._exit(1)
    if name == "tells" and rank == 0:
        say(**{"so far": {"part": 1, "did": ""}, "at": "more", "limit": 600})
    if rank == 0:
        say(end={"did": name})
if names[-1] == "lingers":
    time.sleep(600)
"""


class Starts:
    """Starts groups of two of those processes, and keeps them."""

    def __init__(self):
        self.groups = []

    def __call__(self, cases):
        names = json.dumps([c.name for c in cases])
        ranks = [{"RANK": str(r), "NAMES": names} for r in range(2)]
        self.groups.append(Group([sys.executable, "-S", "-E", "-c", RANK], ranks))
        return self.groups[-1]


def outcomes(*cases, seconds=FOREVER):
    starts = Starts()
    made = [c if isinstance(c, Case) else Case(c, "test", 0.5 if c == "hangs" else FOREVER) for c in cases]
    found = run_cases(made, starts, seconds, FOREVER)
    return [(o.case.name, o.how) for o in found], found, starts.groups


def test_a_hang_a_death_and_a_failure_cost_their_own_case_alone():
    found, details, groups = outcomes("one", "hangs", "two", "dies", "raises", "three")
    assert found == [
        ("one", "done"), ("hangs", "hung"), ("two", "done"), ("dies", "died"), ("raises", "failed"), ("three", "done"),
    ]  # fmt: skip
    assert [o.found for o in details if o.how == "done"] == [{"did": n} for n in ("one", "two", "three")]
    assert "exit code 7" in details[3].why and details[4].why == "rank 0: because"
    assert len(groups) == 4, "a group goes on with the next case until one of its own is lost"


def test_a_case_that_is_lost_gives_way_to_its_other_form():
    other = Case("two", "test", FOREVER)
    found, _, groups = outcomes("one", Case("raises", "test", FOREVER, again=other), "three")
    assert found == [("one", "done"), ("raises", "failed"), ("two", "done"), ("three", "done")] and len(groups) == 2


def test_what_was_found_before_a_hang_is_kept_with_what_came_next():
    (later, one), details, _ = outcomes("hangs later", "one")
    assert later == ("hangs later", "hung") and one == ("one", "done")
    assert details[0].found == {"eager": 3, "apart": 0} and details[0].why == "its replay: no answer within 0 s"
    assert details[1].found == {"did": "one"}


def test_what_is_told_in_parts_is_one_outcome():
    _, (told, after), _ = outcomes("tells", "one")
    assert told.found == {"part": 1, "did": "tells"} and after.found == {"did": "one"}


def test_of_a_line_nothing_is_tried_behind_one_that_is_lost():
    lines = {"one": "a", "hangs later": "a", "two": "a", "three": "b", "four": "a"}
    cases = [Case(name, "test", FOREVER, line=line) for name, line in lines.items()]
    found, details, groups = outcomes(*cases)
    assert found == [
        ("one", "done"), ("hangs later", "hung"), ("two", "not run"), ("four", "not run"), ("three", "done"),
    ]  # fmt: skip
    assert details[2].why == "hangs later: hung" and len(groups) == 2


def test_of_a_group_that_is_gone_the_exit_code_is_known():
    """With nobody left the pipe ends, maybe before the process has."""
    group = Group([sys.executable, "-S", "-E", "-c", RANK], [{"RANK": "0", "NAMES": '["dies"]'}])
    assert group.next(FOREVER) == {"begin": "dies"}
    while (said := group.next(FOREVER)) and "died" not in said:
        pass
    assert (said or group.last()) == {"died": "exit code 7", "rank": 0}
    assert group.end()


def test_groups_that_cannot_start_are_given_up():
    found, details, groups = outcomes("no start", "no start", "one", "two")
    assert [how for _, how in found] == ["failed", "failed", "not run", "not run"] and len(groups) == 2
    assert "before it began" in details[0].why and details[2].why == "ranks cannot start"


def test_processes_that_do_not_leave_are_named(monkeypatch):
    monkeypatch.setattr(watched, "GRACE", 0.2)
    monkeypatch.setattr(Group.end, "__defaults__", (FOREVER,))
    found, _, _ = outcomes("one", "lingers")
    assert found == [("one", "done"), ("lingers", "done"), ("leaving", "hung")]


def test_without_time_nothing_is_started():
    found, details, groups = outcomes("one", "two", seconds=0.0)
    assert found == [("one", "not run"), ("two", "not run")] and not groups
    assert {o.why for o in details} == {"no time was left"}


def test_a_case_ends_with_the_time_that_is_left_for_all():
    found, _, _ = outcomes(Case("hangs", "test", FOREVER), "one", seconds=0.3)
    assert found == [("hangs", "not run"), ("one", "not run")]


def test_what_a_killed_process_started_is_gone_too():
    """The process that a hanging rank starts holds the group's pipe: only its end closes that."""
    group = Starts()([Case("hangs", "test", FOREVER)])
    assert group.next(FOREVER) == {"begin": "hangs"}
    assert group.end(FOREVER)


def test_a_kill_that_misses_one_is_noticed(monkeypatch):
    """Killing the ranks alone leaves what they started."""
    group = Starts()([Case("hangs", "test", FOREVER)])
    group.next(FOREVER)
    while len(members(group)) < 3:  # both ranks, and what one has started
        time.sleep(0.01)
    left = set(members(group)) - {p.pid for p in group.processes}
    monkeypatch.setattr(watched.os, "killpg", lambda *_: [p.kill() for p in group.processes])
    assert not group.end(0.0)
    for pid in left:
        os.kill(pid, 9)


def members(group):
    """Process ids of a group, from /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, fields = int(path.parent.name), path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[2]) == group.processes[0].pid:
            found.append(pid)
    return found


def test_long_reports_are_cut(monkeypatch):
    reader, writer = os.pipe()
    monkeypatch.setenv(watched.PIPE, str(writer))
    watched.report({"failed": "x" * 100_000, "rank": 1})
    watched.report({"end": {"long": "y" * 100_000}})
    text = os.read(reader, 1 << 20)
    assert len(text) < 2 * watched.LONGEST and text.count(b"\n") == 2 and b"a report of 100022 bytes" in text
    os.close(reader)
    os.close(writer)
