"""The scenes of tests/gpu/check_failures.py on simulated ranks: that program runs where GPUs are, and must be right
when it does. torch.cuda, the process group and the clock are stubs; what modules do and say is not."""

import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from greenlet import getcurrent

from chunkdsl.pipeline import check_source
from chunkdsl.render.module import render_module
from chunkdsl.sim.world import World
from chunkdsl.source import Source
from chunkdsl.verify.verify import load

GPU = str(Path(__file__).parent.parent / "gpu")
SPEC = """mesh tp[2] over nvlink
dim M = 1..2048
dim H = 32
dim F = 16
tensor x : bf16[M @ tp, H]
tensor w : bf16[F @ tp, H]
op qkv(x, w) -> y { y = all_gather(x) @ w.T with { chunk = 8 along M, via = copy_engine, tile = 16x16x16 } }
"""
ROWS = 16


class Killed(BaseException):
    """A process that is no more."""


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    text = render_module(check_source(Source("ag_gemm.chunk", SPEC)).schedule, (2,))
    return load(text, tmp_path_factory.mktemp("module"), "ag_gemm").AgGemm


@pytest.fixture
def scenes(monkeypatch):
    """The program, and {host function at work: its machine}."""
    machines = {}

    def kill(*_):
        raise Killed

    def synchronize():
        machines[getcurrent()].synchronize()

    monkeypatch.syspath_prepend(GPU)
    had = set(sys.modules)
    import check_failures as program

    same = program.same
    group = SimpleNamespace(barrier=lambda: machines[getcurrent()].barrier(), new_group=tuple)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(program, "dist", group)
    monkeypatch.setattr(program, "os", SimpleNamespace(kill=kill, getpid=os.getpid))
    monkeypatch.setattr(program, "time", SimpleNamespace(sleep=lambda _: None, monotonic=lambda: 0.0))
    monkeypatch.setattr(program, "same", lambda a, b: synchronize() or same(a, b))
    monkeypatch.setattr(program, "ROWS", ROWS)
    monkeypatch.setattr(program.Rank.call, "__defaults__", (ROWS,))
    yield program, machines
    for name in set(sys.modules) - had:
        if GPU in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def run(scenes, module, name):
    program, machines = scenes

    class Rank(program.Rank):
        def __init__(self, machine):
            self.machine, self.rank, self.world = machine, machine.rank, machine.world

        def cls(self, group=None, **options):
            return module(machine=self.machine if group is None else self.machine.among(group, None), **options)

    def host(machine):
        machines[getcurrent()] = machine
        try:
            program.SCENES[name](Rank(machine))
        except Killed:
            return "killed"
        return "as documented"

    return World(2, expire=name in ("skip", "kill")).run(host)


@pytest.mark.parametrize("name", ["skip", "raises", "kill", "sizes", "overlap"])
def test_a_scene_ends_as_documented(scenes, module, name):
    assert run(scenes, module, name) == ["as documented", "killed" if name == "kill" else "as documented"]


@pytest.mark.parametrize(
    ("programs", "wanted", "codes"),
    [
        (["", "raise SystemExit(3)"], [0, 3], [0, 3]),
        (["raise SystemExit(1)", "import signal; signal.pause()"], [0, 0], [1, "hangs"]),
        (["import signal; signal.pause()"], [0], ["hangs"]),
    ],
)
def test_a_rank_that_hangs_is_ended_and_said(scenes, monkeypatch, programs, wanted, codes):
    program, _ = scenes
    monkeypatch.setattr(program, "time", SimpleNamespace(monotonic=count().__next__, sleep=lambda _: None))
    ranks = [subprocess.Popen([sys.executable, "-S", "-c", text]) for text in programs]
    for rank, code in zip(ranks, codes, strict=True):
        if code != "hangs":
            rank.wait()  # those that end by themselves have done so when the clock, which counts looks, begins
    assert program.ended(ranks, wanted, bound=20, grace=2) == codes
    assert [rank.wait() for rank in ranks] == [-9 if code == "hangs" else code for code in codes]


def test_a_scene_in_which_nobody_is_told_fails(scenes, module, monkeypatch):
    monkeypatch.setattr(module, "check", lambda self: None)
    with pytest.raises(AssertionError, match="rank 0: nothing was raised, wanted 'ranks"):
        run(scenes, module, "skip")
