"""The clock that measures, as far as that goes without a GPU: what rank 0 sends, what it makes of the answers, how
ranks agree on failures, and where it refuses to start."""

from types import SimpleNamespace

import pytest
import torch
from tuned_specs import CALLS, found

from chunkdsl.cli import main
from chunkdsl.tune import gpu
from chunkdsl.tune.search import Job


class Here:
    """Rank 0's view, with ranks that answer what they are told to."""

    def __init__(self, answer, shared=False):
        self.answer, self.shared, self.world, self.sent = answer, shared, 2, []
        self.names = ["NVIDIA H200", "NVIDIA H200"]

    def meet(self, value):
        self.sent.append(value)

    def measure(self, *task):
        assert task == self.sent[-1]
        return self.answer


def clock_and_job(answer, shared=False):
    here, space = Here(answer, shared), found()["up"]
    label, parts = space.options[0]
    setting = tuple((label, *pair) for pair in parts[0])
    return here, gpu.Measured(here, space.trials.made, 2), Job(space, setting, CALLS)


def test_rank_0_sends_a_proven_module_of_one_op_and_keeps_the_times():
    here, clock, job = clock_and_job({0: ([3.0] * 9, [4.0] * 9), 1: ([5.0] * 9, [6.0] * 9)})
    results = clock.measure(job)
    ((text, op, shape, calls),) = here.sent
    assert op == "up" and shape == (2,) and calls == [{"M": 1024}, {"M": 4096}]
    assert "class Open(Instance)" in text and "def mlp" not in text
    assert [(r.sizes, r.us[0], r.library[0], len(r.us)) for r in results] == [(CALLS[0], 3, 4, 9), (CALLS[1], 5, 6, 9)]
    assert {r.setting for r in results} == {job.setting} and clock.gpu == "NVIDIA H200" and not clock.rehearsal
    assert clock.versions["torch"] == torch.__version__


def test_a_failure_is_a_result_of_every_size():
    _, clock, job = clock_and_job("rank 1: RuntimeError: no room")
    assert [r.failed for r in clock.measure(job)] == ["rank 1: RuntimeError: no room"] * 2


def test_what_is_not_proven_is_not_run(monkeypatch):
    here, clock, job = clock_and_job({})
    verdict = SimpleNamespace(refutations=(SimpleNamespace(message="a race"),))
    monkeypatch.setattr(gpu, "prove_worlds", lambda made, worlds: [verdict])
    assert [r.failed for r in clock.measure(job)] == ["not proven: a race"] * 2 and here.sent == []


def test_ranks_that_share_a_gpu_rehearse():
    _, clock, _ = clock_and_job({}, shared=True)
    assert clock.rehearsal and clock.gpu == "NVIDIA H200, shared by 2 ranks"


def ranks_that(answers):
    """One rank, where the others come to each meeting with the next answer."""
    here, left = gpu.Ranks.__new__(gpu.Ranks), list(answers)
    here.world = 2

    def meet(value, error=""):
        other = left.pop(0)
        for rank, said in enumerate((error, other)):
            if said:
                raise gpu.Failed(f"rank {rank}: {said}")
        return [value, value]

    here.meet = meet
    return here, left


@pytest.mark.parametrize(
    ("answers", "mine", "found", "closed"),
    [
        (["", "", "", ""], "", {0: 64, 1: 128}, 1),
        (["ValueError: theirs"], "", "rank 1: ValueError: theirs", 0),
        (["", "", ""], "mine", "rank 0: ValueError: mine", 1),
        (["", "no room", ""], "", "rank 1: no room", 1),
        (["", "", "", "cannot close"], "", "rank 1: cannot close", 1),
    ],
)
def test_what_fails_on_one_rank_fails_on_all_and_closes_what_was_made(answers, mine, found, closed):
    """The ranks meet once when the instance is made, for each call, and at its end."""
    here, left = ranks_that(answers)
    seen = []
    instance = SimpleNamespace(op="op", close=lambda: seen.append("closed"))

    def act():
        if mine:
            raise ValueError(mine)

    here._instance = lambda *a: instance
    here._times = lambda op, dims, first: here._attempt(act) or dims
    assert here.measure("text", "op", (2,), [64, 128]) == found
    assert seen == ["closed"] * closed and left == []


@pytest.mark.parametrize(
    ("environ", "cuda", "why"),
    [
        ({}, 0, "there is one process alone"),
        ({"RANK": "0"}, 0, "there is no GPU"),
        ({"RANK": "0"}, 2, "TORCH_SYMM_MEM_DISABLE_MULTICAST=1 and NCCL_NVLS_ENABLE=0 is not set"),
        ({"RANK": "0", "WORLD_SIZE": "2", **gpu.NEEDED}, 1, "2 ranks have 1 GPU"),
    ],
)
def test_where_it_cannot_measure_it_says_why(environ, cuda, why, monkeypatch, capsys):
    for name in ("RANK", "WORLD_SIZE", *gpu.NEEDED):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    assert main(["tune", "specs/tp_mlp.chunk"]) == 2
    assert f"CD037[cannot-tune-here] cannot tune here: {why}" in capsys.readouterr().out
