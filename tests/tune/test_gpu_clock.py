"""The clock that measures, as far as that goes without a GPU: what ranks are asked, what it makes of the answers, how
ranks agree on failures, and where it refuses to start."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tuned_specs import CALLS, found

from chunkdsl.cli import main
from chunkdsl.tune import gpu, worker
from chunkdsl.tune.search import Job


class Bench:
    """Ranks that answer what they are told to."""

    world, gpu, versions, shared = 2, "NVIDIA H200", {"torch": "2.11.0"}, False

    def __init__(self, answer):
        self.answer, self.asked, self.compiled, self.batches = answer, [], set(), []

    def ask(self, task):
        self.asked.append(task)
        return self.answer

    def compile(self, tasks):
        self.batches.append([t["module"] for t in tasks])
        self.compiled |= {t["module"] for t in tasks}


@pytest.fixture
def setup():
    """A clock on a bench that gives an answer, and jobs for all other chunks of a gather."""
    space, made = found()["up"], []

    def of(answer):
        bench, modules = Bench(answer), gpu.Rendered(space.trials.made, 2)
        made.append(modules)
        label, parts = space.options[0]
        jobs = [Job(space, tuple((label, *pair) for pair in part), CALLS) for part in parts[:3]]
        return bench, gpu.Measured(bench, modules), jobs

    yield of
    for modules in made:
        modules.end()
        assert not Path(modules.folder).exists()


def test_ranks_get_a_proven_module_of_one_op_and_the_times_are_kept(setup):
    times = [[[3.0] * 9, [4.0] * 9, [8.0] * 9, [9.0] * 9], [[5.0] * 9, [6.0] * 9, [5.0] * 9, [6.0] * 9]]
    bench, clock, (job, *_) = setup({"found": times})
    results = clock.measure(job)
    (task,) = bench.asked
    assert task["op"] == "up" and task["world"] == (2,) and task["calls"] == [{"M": 1024}, {"M": 4096}]
    text = Path(task["module"]).read_text()
    assert "class Open(Instance)" in text and "def mlp" not in text
    assert [(r.sizes, r.us[0], r.library[0], len(r.us)) for r in results] == [(CALLS[0], 3, 4, 9), (CALLS[1], 5, 6, 9)]
    assert [r.ratios for r in results] == [(3 / 4, 8 / 9), (5 / 6, 5 / 6)]
    assert {r.setting for r in results} == {job.setting} and clock.gpu == "NVIDIA H200" and not clock.rehearsal


def test_what_comes_next_is_compiled_with_the_first_and_what_has_no_module_is_left_out(setup, monkeypatch):
    bench, clock, jobs = setup({"failed": "no room"})

    def module_text(made, world, job):
        if job is jobs[2]:
            raise gpu.NoModule("a race")
        return "text"

    monkeypatch.setattr(gpu, "module_text", module_text)
    for i, job in enumerate(jobs):
        clock.measure(job, jobs[i + 1 :])
    assert [len(batch) for batch in bench.batches] == [2] and len(bench.asked) == 2


def test_a_failure_is_a_result_of_every_size(setup):
    _, clock, (job, *_) = setup({"failed": "rank 1: RuntimeError: no room"})
    assert [r.failed for r in clock.measure(job)] == ["rank 1: RuntimeError: no room"] * 2


def test_what_is_not_proven_is_not_run(setup, monkeypatch):
    bench, clock, jobs = setup({})
    verdict = SimpleNamespace(refutations=(SimpleNamespace(message="a race"),))
    monkeypatch.setattr("chunkdsl.check.worlds.prove_worlds", lambda made, worlds: [verdict])
    assert [r.failed for r in clock.measure(jobs[0], jobs[1:])] == ["not proven: a race"] * 2 and bench.asked == []


def test_ranks_that_share_a_gpu_rehearse(monkeypatch):
    hello = {"names": ["NVIDIA H200"] * 2, "versions": {}}
    monkeypatch.setattr(gpu, "Group", lambda environments: SimpleNamespace(ask=lambda *_: hello, end=lambda _: None))
    bench = gpu.Bench(2, 1, True)
    clock = gpu.Measured(bench, None)
    assert clock.rehearsal and clock.gpu == "NVIDIA H200, shared by 2 ranks"


def ranks_that(answers):
    """One rank, where the others come to each meeting with the next answer."""
    here, left = worker.Ranks.__new__(worker.Ranks), list(answers)
    here.world = 2

    def meet(value, error=""):
        other = left.pop(0)
        for rank, said in enumerate((error, other)):
            if said:
                raise worker.Failed(f"rank {rank}: {said}")
        return [value, value]

    here.meet = meet
    return here, left


@pytest.mark.parametrize(
    ("answers", "mine", "answer", "closed"),
    [
        (["", "", "", "", ""], "", {"found": [64, 128]}, 1),
        (["ValueError: theirs", ""], "", {"failed": "rank 1: ValueError: theirs", "broken": False}, 0),
        (["", "ValueError: theirs", ""], "", {"failed": "rank 1: ValueError: theirs", "broken": False}, 0),
        (["", "", "", "", ""], "mine", {"failed": "rank 0: ValueError: mine", "broken": False}, 1),
        (["", "", "no room", "", ""], "", {"failed": "rank 1: no room", "broken": False}, 1),
        (["", "", "", "", "cannot close", ""], "", {"failed": "rank 1: cannot close", "broken": False}, 1),
    ],
)
def test_what_fails_on_one_rank_fails_on_all_and_closes_what_was_made(answers, mine, answer, closed, monkeypatch):
    """The ranks meet once when the module is read, when the instance is made, for each call, at its end, and where
    something failed to see whose GPU is lost."""
    here, left = ranks_that(answers)
    seen = []
    instance = SimpleNamespace(op="op", close=lambda: seen.append("closed"))

    def act():
        if mine:
            raise ValueError(mine)

    monkeypatch.setattr(worker, "load", lambda path: (None, None))
    here._instance = lambda *a: instance
    here._times = lambda op, dims, first: here._attempt(act) or dims
    here._lost = lambda: False
    assert here.measure({"module": "m.py", "op": "op", "world": (2,), "calls": [64, 128]}) == answer
    assert seen == ["closed"] * closed and left == []


def test_a_rank_whose_gpu_does_nothing_more_is_told(monkeypatch):
    here, _ = ranks_that([""] * 9)
    here.device = torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    assert here._lost() is False

    def fault(device):
        raise RuntimeError("an illegal memory access")

    monkeypatch.setattr(torch.cuda, "synchronize", fault)
    assert here._lost() is True


@pytest.mark.parametrize(
    ("environ", "gpus", "argv", "why"),
    [
        ({}, 0, ["specs/tp_mlp.chunk"], "there is no GPU"),
        ({}, 2, ["specs/tp_mlp.chunk"], "TORCH_SYMM_MEM_DISABLE_MULTICAST=1 and NCCL_NVLS_ENABLE=0 is not set"),
        (worker.NEEDED, 1, ["specs/ag_gemm.chunk", "--world", "2"], "2 ranks have 1 GPU"),
    ],
)
def test_where_it_cannot_measure_it_says_why(environ, gpus, argv, why, monkeypatch, capsys):
    for name in worker.NEEDED:
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert main(["tune", *argv]) == 2
    assert f"CD037[cannot-tune-here] cannot tune here: {why}" in capsys.readouterr().out


def test_values_that_are_not_legal_together_have_no_module(monkeypatch):
    """Each was legal beside the untuned setting; a kit lists combinations of them."""
    monkeypatch.setattr("chunkdsl.tune.space.schedule_of", lambda space, setting: None)
    with pytest.raises(gpu.NoModule, match="not legal"):
        gpu.module_text(None, (2,), SimpleNamespace(space=None, setting=(("product", "compute", "library"),)))
