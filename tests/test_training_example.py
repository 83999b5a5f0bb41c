"""examples/train_tiny_llm.py on CPU processes: losses of the dense model, and a checkpoint of 4 ranks resumed by 2."""

import csv
import importlib.util
import os
import py_compile
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
from forked_ranks import run_in_turn  # noqa: E402

PROGRAM = ROOT / "examples" / "train_tiny_llm.py"


def build(folder):
    """A module for two and four ranks."""
    checked = check_source(Source("tiny_llm.chunk", PROGRAM.with_name("tiny_llm.chunk").read_text(encoding="utf-8")))
    assert not checked.report.diagnostics, checked.report.diagnostics
    path = folder / "tiny_llm.py"
    path.write_text(render_module(checked.schedule, (2, 4)), encoding="utf-8")
    py_compile.compile(str(path))  # once, and not by each rank
    return path


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def losses(path):
    with open(path, newline="") as file:
        return [(int(step), float(ours), float(dense)) for step, ours, dense in list(csv.reader(file))[1:]]


def run(folder):
    """(what four ranks said, rows of their four steps, {way: rows of steps 2 and 3 by two that resumed}). Ways are
    those of resumed_runs.py; torchrun itself is used in test_examples.py."""
    module, two = build(folder), folder / "two"
    two.mkdir()
    files = ("--csv", folder / "a.csv", "--plot", folder / "a.svg")
    first = ("--steps", 4, "--save", folder / "kept", "--every", 2, *files)
    then = ("--steps", 2, "--resume", folder / "kept" / "step-2", "--csv", two / "b.csv")
    runs = [(PROGRAM, 4, folder, first), (ROOT / "tests" / "resumed_runs.py", 2, two, then)]
    runs = [(*where, ("--module", module, *arguments)) for *where, arguments in runs]
    ended = run_in_turn(runs, ENVIRONMENT, ["triton", "torch._dynamo.variables"])
    statuses = [[status for status, _, _ in ranks] for ranks in ended]
    assert statuses == [[0] * 4, [0] * 2], [err[-3000:] for ranks in ended for _, _, err in ranks]
    resumed = {path.name.split("-")[0]: losses(path) for path in two.glob("*-b.csv")}
    return "".join(out for _, out, _ in ended[0]), losses(folder / "a.csv"), resumed


def apart(rows, others):
    """The largest relative distance at equal steps of two runs' losses, the module's and the dense model's."""
    assert [step for step, *_ in rows] == [step for step, *_ in others]
    pairs = [pair for row, other in zip(rows, others, strict=True) for pair in zip(row[1:], other[1:], strict=True)]
    return max(abs(a - b) / b for a, b in pairs)


def test_four_ranks_train_as_the_dense_model_does_and_two_go_on_as_if_the_run_had_not_ended(tmp_path):
    """And what is left out of a checkpoint is missed: weights, optimizer and draws each."""
    said, rows, resumed = run(tmp_path)
    assert "4 on cpu" in said and "losses   agree" in said and "] 4/4  loss" in said
    image = ElementTree.fromstring((tmp_path / "a.svg").read_text(encoding="utf-8"))
    assert [len(image.findall(f".//{{*}}{kind}")) for kind in ("polyline", "circle")] == [1, 4]
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["step-2", "step-4"]
    assert [step for step, _, _ in rows] == [0, 1, 2, 3]
    assert all(abs(ours - dense) < 1e-5 * dense for _, ours, dense in rows)
    assert rows[0][1] > 4.8 and rows[-1][1] < 4.2  # about log 128 before training
    assert apart(resumed.pop("whole"), rows[2:]) < 1e-5
    assert sorted(resumed) == ["draws", "model", "optimizer"]
    for missing, found in resumed.items():
        assert apart(found, rows[2:]) > 1e-3, missing


@pytest.fixture
def program(monkeypatch):
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    spec = importlib.util.spec_from_file_location("train_tiny_llm", PROGRAM)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_a_folder_without_a_checkpoint_is_refused(program, tmp_path):
    with pytest.raises(program.CannotRun, match="is no checkpoint; --save FOLDER writes FOLDER/step-N"):
        program.train(SimpleNamespace(resume=tmp_path), 0, "cpu")


def test_losses_are_kept_for_tensorboard_where_it_is_installed(program, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    program.keep(SimpleNamespace(csv=None, plot=None, tensorboard=tmp_path), [(7, 2.5, 2.25), (8, 2.0, 1.75)])
    found = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in found.Scalars("loss/generated module")] == [(7, 2.5), (8, 2.0)]
    assert [(e.step, e.value) for e in found.Scalars("loss/dense")] == [(7, 2.25), (8, 1.75)]
