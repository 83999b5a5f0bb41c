"""examples/train_tiny_llm.py on CPU processes: losses of the dense model, and a checkpoint of 4 ranks read by 2."""

import csv
import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from chunkdsl.pipeline import check_source
from chunkdsl.render.module import render_module
from chunkdsl.source import Source

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "runtime"))
from forked_ranks import run_ranks  # noqa: E402

PROGRAM = ROOT / "examples" / "train_tiny_llm.py"


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    checked = check_source(Source("tiny_llm.chunk", PROGRAM.with_name("tiny_llm.chunk").read_text(encoding="utf-8")))
    assert not checked.report.diagnostics, checked.report.diagnostics
    path = tmp_path_factory.mktemp("module") / "tiny_llm.py"
    path.write_text(render_module(checked.schedule, (1, 2, 4)), encoding="utf-8")
    return path


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def train(ranks, folder, *arguments):
    """What all ranks wrote. Torchrun itself is used in test_examples.py."""
    ended = run_ranks(PROGRAM, ranks, folder, ENVIRONMENT, arguments)
    assert [status for status, _, _ in ended] == [0] * ranks, [err[-3000:] for _, _, err in ended]
    return "".join(out for _, out, _ in ended)


def losses(path):
    with open(path, newline="") as file:
        return [(int(step), float(ours), float(dense)) for step, ours, dense in list(csv.reader(file))[1:]]


def test_a_checkpoint_of_four_ranks_resumes_on_two_and_the_losses_stay_those_of_the_dense_model(module, tmp_path):
    common = ("--module", module)
    files = ("--csv", tmp_path / "a.csv", "--plot", tmp_path / "a.svg")
    said = train(4, tmp_path, *common, "--steps", 2, "--save", tmp_path / "kept", *files)
    assert "4 on cpu" in said and "losses   agree" in said and "] 2/2  loss" in said
    image = ElementTree.fromstring((tmp_path / "a.svg").read_text(encoding="utf-8"))
    assert [len(image.findall(f".//{{*}}{kind}")) for kind in ("polyline", "circle")] == [1, 2]
    train(2, tmp_path, *common, "--steps", 1, "--resume", tmp_path / "kept", "--csv", tmp_path / "b.csv")
    first, second = losses(tmp_path / "a.csv"), losses(tmp_path / "b.csv")
    assert [step for step, _, _ in first + second] == [0, 1, 2]
    assert all(abs(ours - dense) < 1e-4 * dense for _, ours, dense in first + second)
    assert first[0][1] > 4.8 and second[0][1] < 4.8  # about log 128 before training, less when it goes on


def test_losses_are_kept_for_tensorboard_where_it_is_installed(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    spec = importlib.util.spec_from_file_location("train_tiny_llm", PROGRAM)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    program.keep(SimpleNamespace(csv=None, plot=None, tensorboard=tmp_path), [(7, 2.5, 2.25), (8, 2.0, 1.75)])
    found = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in found.Scalars("loss/generated module")] == [(7, 2.5), (8, 2.0)]
    assert [(e.step, e.value) for e in found.Scalars("loss/dense")] == [(7, 2.25), (8, 1.75)]
