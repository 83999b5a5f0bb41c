"""How a process that is one rank ends: with 0 behind the last barrier, with 1 where anything is raised, with 3 when its
time is up. No GPU."""

import multiprocessing
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))
import check_multimem
import check_processes
import local_ranks
import small_all_reduce

OPTIONS = dict(port=0, calls="1", bench=[], stems=["there"], parts=[], deadline=60)
PROGRAMS = check_processes, check_multimem, small_all_reduce


class Machine:
    device = None

    def __init__(self, *given):
        pass

    def barrier(self):
        pass


class Module:
    RANGES, OPS = {}, {"two_norm": None}
    two_norm = SimpleNamespace(why_not="it is a test")

    def __init__(self, **options):
        pass

    def close(self):
        pass


def ended(program, load, monkeypatch) -> tuple[int, str]:
    """(exit code of the one rank that runs the program, what it did last)."""
    met, meet = os.pipe()
    monkeypatch.setattr(check_processes, "start", lambda rank, world, port: Machine())
    monkeypatch.setattr(check_processes.dist, "barrier", lambda: os.write(meet, b"met"))
    monkeypatch.setattr(program, "load", load)
    monkeypatch.setattr(small_all_reduce.torch.cuda, "get_device_name", lambda: "none")
    monkeypatch.setattr(small_all_reduce, "dist", SimpleNamespace(group=SimpleNamespace(WORLD=None)))
    rank = 0, 1, SimpleNamespace(**OPTIONS)
    process = multiprocessing.get_context("fork").Process(target=program.main_rank, args=rank)
    process.start()
    process.join(60)
    os.close(meet)
    with os.fdopen(met, "rb") as said:
        return process.exitcode, said.read().decode()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_a_rank_that_is_done_waits_for_the_others_and_ends_well(program, monkeypatch):
    assert ended(program, lambda stem: Module, monkeypatch) == (0, "met")


def test_a_process_whose_time_is_up_ends_whatever_hangs():
    def hang():
        local_ranks.end_after(0.05)
        threading.Event().wait()

    process = multiprocessing.get_context("fork").Process(target=hang, daemon=True)
    process.start()
    process.join(60)
    assert process.exitcode == 3


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_a_rank_that_fails_ends_at_once_and_says_so(program, monkeypatch):
    assert ended(program, lambda stem: 1 / 0, monkeypatch) == (1, "")
