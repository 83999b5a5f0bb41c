"""Processes that measure, as the one that decides sees them: answers, hangs, deaths, a start anew. The processes here
are small programs without torch."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from chunkdsl.tune import gpu
from chunkdsl.tune.group import Compilers, Gone, Group, rank_environments

PROGRAM = """
import json, os, signal, sys, time
rank = int(os.environ.get("RANK", "0"))
if rank == 0:
    print(json.dumps({"names": ["GPU", "GPU"], "versions": {"torch": "2.11.0"}}), flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        if task["module"] == "hang":
            time.sleep(1000)
        if task["module"] == "die":
            sys.stderr.write("out of room\\n")
            sys.exit(3)
        if task["module"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if task["module"] == "mute":
            os.close(1)
            time.sleep(1000)
        broken = task["module"] == "broken"
        answer = {"failed": "a fault", "broken": True} if broken else {"found": [[[os.getpid()]] * 4]}
        print(json.dumps(answer), flush=True)
else:
    while os.getppid() == int(os.environ["PARENT"]):
        time.sleep(0.02)
"""


@pytest.fixture
def command(tmp_path, monkeypatch):
    (path := tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setenv("PARENT", str(os.getpid()))
    return (sys.executable, "-S", str(path))


@pytest.fixture
def bench(command, monkeypatch):
    monkeypatch.setattr(gpu, "Group", lambda environments: Group(environments, command))
    monkeypatch.setattr(gpu, "GRACE", 0.0)  # the second rank stays
    made = gpu.Bench(2, 2, False)
    yield made
    made.end()


def pid(answer):
    return answer["found"][0][0][0]


def test_ranks_of_one_host_have_a_port_and_a_number_each():
    first, second = rank_environments(2, False)
    assert (first["RANK"], second["RANK"], second["LOCAL_RANK"], first["WORLD_SIZE"]) == ("0", "1", "1", "2")
    assert first["MASTER_PORT"] == second["MASTER_PORT"]


def test_a_bench_says_what_its_gpus_are_and_keeps_its_processes(bench):
    assert bench.gpu == "GPU" and bench.versions == {"torch": "2.11.0"} and not bench.shared
    assert pid(bench.ask({"module": "a"})) == pid(bench.ask({"module": "b"})) == bench.group.processes[0].pid


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("die", "rank 0 ended with 3: out of room"),
        ("kill", "rank 0 ended with -9"),
        ("broken", "a fault"),
    ],
)
def test_who_dies_or_is_broken_is_a_failure_and_others_take_its_place(bench, module, why):
    first = pid(bench.ask({"module": "a"}))
    assert bench.ask({"module": module})["failed"].startswith(why)
    assert pid(bench.ask({"module": "a"})) != first


def test_who_hangs_is_ended_when_its_time_is_up(bench, monkeypatch):
    monkeypatch.setattr(gpu, "LIMIT", 0.1)
    processes = list(bench.group.processes)
    assert bench.ask({"module": "hang"}) == {"failed": "no answer within 0 s: a rank hangs"}
    assert all(p.poll() is not None for p in processes), "nobody is left behind"
    monkeypatch.setattr(gpu, "LIMIT", 60.0)
    assert pid(bench.ask({"module": "a"}))


def test_a_rank_beside_the_first_that_dies_is_named(bench):
    bench.group.processes[1].kill()
    assert bench.ask({"module": "hang"})["failed"] == "rank 1 ended with -9"


def test_ranks_that_do_not_start_are_said(command, monkeypatch):
    monkeypatch.setattr(gpu, "Group", lambda environments: Group(environments, (sys.executable, "-c", "0 / 0")))
    with pytest.raises(gpu.CannotTune, match="did not start: rank 0 ended with 1: ZeroDivisionError"):
        gpu.Bench(2, 2, False)


def test_fewer_gpus_than_ranks_are_refused_before_anything_starts():
    with pytest.raises(gpu.CannotTune, match="2 ranks have 1 GPU"):
        gpu.Bench(2, 1, False)


def test_compilers_work_beside_each_other_and_survive_each_other(tmp_path):
    """Each writes down what it was given; one dies."""
    program = """
import json, pathlib, sys
for line in sys.stdin:
    task = json.loads(line)
    if task["module"] == "die":
        sys.exit(3)
    pathlib.Path(sys.argv[1], task["module"]).write_text(line)
    print("{}", flush=True)
"""
    compilers = Compilers(2, 1, (sys.executable, "-S", "-c", program, str(tmp_path)))
    assert compilers.compile([{"module": m} for m in ("a", "die", "b", "c")], 600.0) == 3
    assert sorted(p.name for p in Path(tmp_path).iterdir()) == ["a", "b", "c"] and len(compilers.groups) == 1
    assert json.loads((tmp_path / "c").read_text()) == {"module": "c"}
    compilers.end()


def test_all_that_comes_next_is_compiled_at_once_and_once(bench, monkeypatch):
    seen = []
    fake = SimpleNamespace(compile=lambda tasks, seconds: seen.append(tasks), end=lambda: None)
    monkeypatch.setattr(gpu, "Compilers", lambda *_: fake)
    tasks = [{"module": m} for m in "abca"]
    bench.compile(tasks)
    bench.compile(tasks)
    bench.compile([{"module": "d"}])
    assert [[t["module"] for t in batch] for batch in seen] == [["a", "b", "c"]], "one alone is compiled where it runs"


def test_a_closed_output_is_no_answer(command, monkeypatch):
    monkeypatch.setattr("chunkdsl.tune.group.SETTLE", 0.1)
    group = Group(rank_environments(1, False), command)
    group.ask(None, 60.0)
    with pytest.raises(Gone, match="rank 0 has closed its output"):
        group.ask({"module": "mute"}, 60.0)
