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


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    checked = check_source(Source("tiny_llm.chunk", PROGRAM.with_name("tiny_llm.chunk").read_text(encoding="utf-8")))
    assert not checked.report.diagnostics, checked.report.diagnostics
    path = tmp_path_factory.mktemp("module") / "tiny_llm.py"
    path.write_text(render_module(checked.schedule, (2, 4)), encoding="utf-8")
    py_compile.compile(str(path))  # once, and not by each rank
    return path


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def losses(path):
    with open(path, newline="") as file:
        return [(int(step), float(ours), float(dense)) for step, ours, dense in list(csv.reader(file))[1:]]


@pytest.fixture(scope="module")
def curves(module, tmp_path_factory):
    """(what four ranks said, their folder, rows of their four steps, rows of steps 2 and 3 by two ranks that resumed in
    each way of resumed_runs.py). Torchrun itself is used in test_examples.py."""
    folder = tmp_path_factory.mktemp("run")
    files = ("--csv", folder / "a.csv", "--plot", folder / "a.svg")
    first = ("--steps", 4, "--save", folder / "kept", "--every", 2, *files)
    then = ("--steps", 2, "--resume", folder / "kept" / "step-2", "--csv", folder / "b.csv")
    runs = [(PROGRAM, 4, folder, first), (ROOT / "tests" / "resumed_runs.py", 2, tmp_path_factory.mktemp("two"), then)]
    runs = [(*run, ("--module", module, *arguments)) for *run, arguments in runs]
    ended = run_in_turn(runs, ENVIRONMENT, ["triton", "torch._dynamo.variables"])
    statuses = [[status for status, _, _ in ranks] for ranks in ended]
    assert statuses == [[0] * 4, [0] * 2], [err[-3000:] for ranks in ended for _, _, err in ranks]
    resumed = {path.name.split("-")[0]: losses(path) for path in folder.glob("*-b.csv")}
    return "".join(out for _, out, _ in ended[0]), folder, losses(folder / "a.csv"), resumed


def test_four_ranks_train_as_the_dense_model_does_and_keep_bar_csv_and_plot(curves):
    said, folder, rows, _ = curves
    assert "4 on cpu" in said and "losses   agree" in said and "] 4/4  loss" in said
    image = ElementTree.fromstring((folder / "a.svg").read_text(encoding="utf-8"))
    assert [len(image.findall(f".//{{*}}{kind}")) for kind in ("polyline", "circle")] == [1, 4]
    assert [step for step, _, _ in rows] == [0, 1, 2, 3]
    assert all(abs(ours - dense) < 1e-5 * dense for _, ours, dense in rows)
    assert rows[0][1] > 4.8 and rows[-1][1] < 4.2  # about log 128 before training
    assert sorted(path.name for path in (folder / "kept").iterdir()) == ["step-2", "step-4"]


def apart(rows, others):
    """The largest relative distance at equal steps of two runs' losses, the module's and the dense model's."""
    assert [step for step, *_ in rows] == [step for step, *_ in others]
    pairs = [pair for row, other in zip(rows, others, strict=True) for pair in zip(row[1:], other[1:], strict=True)]
    return max(abs(a - b) / b for a, b in pairs)


def test_two_ranks_go_on_from_a_checkpoint_of_four_as_if_the_run_had_not_ended(curves):
    _, _, uninterrupted, resumed = curves
    assert apart(resumed["whole"], uninterrupted[2:]) < 1e-5


@pytest.mark.parametrize("missing", ["model", "optimizer", "draws"])
def test_what_is_left_out_of_a_checkpoint_is_missed(curves, missing):
    _, _, uninterrupted, resumed = curves
    assert apart(resumed[missing], uninterrupted[2:]) > 1e-3


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
