"""The program for several GPUs, without one: its cases on simulated ranks, its JSON, its tables, its refusals."""

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "gpu"))
import build_for_gpu
import modules
import multi_gpu
import multi_rows
from watched import GRACE, Case, Outcome

TIMES = {"library": 200.0, "torch one_shot": 190.0, "torch two_shot": 180.0, "ours": 150.0}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(exit code, JSON) of a run on simulated ranks with a case that hangs before all others."""
    path = tmp_path_factory.mktemp("multi") / "out.json"
    code = multi_gpu.main(["--device", "cpu", "--specs", "gemm_ar", "--plant", "hang", "--json", str(path),
                           "--seconds", "100000"])  # fmt: skip
    return code, json.loads(path.read_text())


def test_a_hang_is_killed_and_all_others_are_done(made):
    code, run = made
    assert [(c["name"], c["how"]) for c in run["cases"]] == [
        ("planted hang", "hung"), ("check gemm_ar.down", "done"), ("time gemm_ar.down M = 512", "done"),
    ]  # fmt: skip
    assert code == 0 and run["world"] == 2


def test_simulated_ranks_are_checked_against_exact_and_not_timed(made):
    _, check, measured = made[1]["cases"]
    assert check["found"]["wrong"] == "" and check["found"]["calls"] == 2
    assert "no evidence" in measured["found"]["untimed"] and measured["found"]["apart"]["library"] < 0.01


def test_the_table_is_printed_again_from_the_json(made, tmp_path, capsys):
    path = tmp_path / "out.json"
    path.write_text(json.dumps(made[1]))
    assert multi_gpu.main(["--table", str(path)]) == 0
    said = capsys.readouterr().out
    assert said == multi_gpu.show(made[1]) + "\n"
    assert "1 of 1 ops that run on 2 ranks gave the bits of `exact`" in said and "- planted hang: hung" in said
    assert "| gemm_ar.down | M = 512 | - | - | - |" in said, "a prediction without a measurement"
    assert "predictions are for H200s, which this is not" in said
    assert "which this is not" not in multi_gpu.show(recorded())


def recorded(**changed):
    """A run as GPUs would have it: one row that was measured, one that could not be captured, one wrong op."""
    row = {"kind": "measure", "how": "done", "why": "", "seconds": 1.0}
    cases = [
        {"name": "check gemm_ar.down", "kind": "check", "how": "done", "why": "", "found": {"wrong": ""}},
        {"name": "check tp_mlp.mlp", "kind": "check", "how": "done", "why": "", "found": {"wrong": "rank 1"}},
        {**row, "name": "a", "op": "gemm_ar.down", "size": 2048,
         "found": {"graph": TIMES, "eager": {"library": 300.0, "ours": 310.0}, "refused": {"torch fused": "no"}}},
        {**row, "name": "b", "op": "small_ar.word", "size": 2, "how": "hung", "why": "no answer", "found": {}},
    ]  # fmt: skip
    machine = {"name": "NVIDIA H200", "gpus": 4, "torch": "2.11.0", "triton": "3.6.0", "nccl": "2.28"}
    return {"date": "2027-01-02", "world": 4, "machine": machine, "cases": cases, "predictions": {},
            "predicted_for": "H200"} | changed  # fmt: skip


def test_a_row_holds_times_ratios_and_the_error_of_the_prediction():
    text = multi_rows.table(recorded(), {"gemm_ar.down 2048": [220.0, 135.0]})
    cells = [c.strip() for c in text.splitlines()[2].split("|")[1:-1]]
    assert cells == [
        "gemm_ar.down", "M = 2048", "200", "180", "150", "1.33", "1.20", "300", "-", "310",
        "220", "+10 %", "135", "-10 %",
    ]  # fmt: skip
    assert len(text.splitlines()) == 3


def test_without_times_the_reason_is_given_once_and_no_table():
    row = {"kind": "measure", "how": "done", "why": "", "seconds": 0.0, "op": "gemm_ar.down"}
    cases = [{**row, "name": f"time {size}", "size": size, "found": {"untimed": "no GPU each"}} for size in (512, 1024)]
    said = multi_gpu.show(recorded(cases=[*recorded()["cases"][:2], *cases]))
    assert said.count("no GPU each") == 1 and "| op |" not in said
    assert "| op |" in multi_gpu.show(recorded())


def test_what_is_wrong_or_lost_is_named_and_counts():
    run = recorded()
    text = multi_rows.bits(run)
    assert "1 of 2 ops" in text and "check tp_mlp.mlp: WRONG: rank 1" in text and "- b: hung: no answer" in text
    assert multi_gpu.failed(run)
    run["cases"] = run["cases"][:1]
    assert not multi_gpu.failed(run)


def test_a_measurement_that_is_done_without_torchs_ops_is_no_failure():
    (case,) = list(multi_gpu.measurements("gemm_ar", "down", 2))[:1]
    again = case.again
    assert case.about["torchs"] and not again.about["torchs"] and again.again is None
    lost, found = Outcome(case, "hung", "no answer"), Outcome(again, "done", found={"graph": TIMES})
    assert not multi_gpu.failed({"cases": [multi_gpu.as_record(o) for o in (lost, found)]})
    assert multi_gpu.failed({"cases": [multi_gpu.as_record(lost)]})


def test_the_document_has_the_predictions_and_what_was_measured():
    said = {"4": {f"{k} {n}": [220.0, 135.0] for k, (_, sizes) in multi_rows.MEASURED.items() for n in sizes}}
    without, beside = multi_rows.document(said, {}), multi_rows.document(said, {"4": recorded()})
    assert "Predictions, not measurements" in without and "Predictions, not measurements" not in beside
    assert "| gemm_ar.down | M = 2048 | 4 | 220 | 135 | 1.63 |" in without
    assert multi_rows.table(recorded(), said["4"]) in beside
    assert "4 x NVIDIA H200" in beside and "tp_mlp.mlp: WRONG" in beside


SPECS = {
    "tp_mlp": {"ops": ["mlp"], "worlds": [1, 2, 4], "shipped": True},
    "dp_tp_mlp": {"ops": ["mlp"], "worlds": [[1, 4], [2, 2], [4, 1]], "shipped": True},
    "ring8": {"ops": ["up"], "worlds": [8], "shipped": True},
    "gemm_ar": {"ops": ["down"], "worlds": [1, 2, 4], "shipped": True},
    "small_ar": {"ops": ["guess", "word", "rounds"], "worlds": [2], "shipped": False},
    "rs_pull": {"ops": ["f"], "worlds": [1, 2, 4], "shipped": False},
}


def test_what_is_measured_is_checked_and_timed_before_the_rest():
    cases, left_out = multi_gpu.plan_cases(SPECS, 4, [], 99)
    names = [c.name for c in cases]
    assert names[0] == "check gemm_ar.down" and names[-2:] == ["check tp_mlp.mlp", "check dp_tp_mlp.mlp"]
    assert [n for n in names if n.startswith("time")] == [f"time gemm_ar.down M = {m}" for m in multi_rows.ROWS[:-1]]
    assert [c.about["shape"] for c in cases][-2:] == [4, [2, 2]]
    assert [(o.case.name, o.how) for o in left_out if o.case.about["stem"] != "small_ar"] == [
        ("check ring8.up", "not served")]  # fmt: skip
    chosen = multi_gpu.plan_cases(SPECS, 4, ["tp_mlp", "rs_pull"], 99)[0]
    assert [c.name for c in chosen] == ["check tp_mlp.mlp", "check rs_pull.f"]


def test_the_index_says_what_the_modules_hold(monkeypatch, tmp_path):
    monkeypatch.chdir(Path(__file__).parent)  # the program goes elsewhere
    monkeypatch.setattr(build_for_gpu, "ProcessPoolExecutor", ThreadPoolExecutor)
    assert build_for_gpu.main(["--only", "rs_pull", "-o", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "index.json").read_text())
    monkeypatch.setattr(modules, "FOLDER", tmp_path)
    built = modules.load("rs_pull")
    assert found["specs"] == {"rs_pull": {"ops": list(built.OPS), "worlds": list(built.PROVEN), "shipped": False}}
    assert build_for_gpu.index_unbuilt(["rs_pull"], build_for_gpu.PREDICTED) == found
    assert found["predicted_for"] == "H200"


def test_of_what_is_only_measured_the_measured_ops_are_checked():
    cases, _ = multi_gpu.plan_cases(SPECS, 2, [], 1)
    of_it = [c.name for c in cases if c.about["stem"] == "small_ar"]
    assert of_it == [f"{what} small_ar.{op}{size}" for what, size in (("check", ""), ("time", " 4 KiB"))
                     for op in ("word", "rounds")]  # fmt: skip


def test_a_world_that_no_spec_serves_has_no_cases():
    cases, left_out = multi_gpu.plan_cases(SPECS, 3, [], 99)
    assert cases == [] and len(left_out) == 6


@pytest.mark.parametrize(("plant", "how", "why"), [("raise", "failed", "rank 2: RuntimeError: planted"),
                                                   ("die", "died", "rank 2: exit code 7")])  # fmt: skip
def test_on_gpus_each_rank_is_a_process_and_any_of_them_ends_its_group(tmp_path, plant, how, why):
    """Planted cases come before anything that needs a GPU."""
    starter = multi_gpu.Starter(tmp_path, {"device": "cuda", "world": 3}, "build")
    case = Case(f"planted {plant}", "planted", 100000.0, {"how": plant})
    (outcome,) = multi_gpu.run_cases([case], starter, 100000.0, 100000.0)
    assert outcome.how == how and outcome.why.endswith(why)


ON_A_GPU = {
    "bench": ("multi_gpu", "multi_rows", "watched", "rank_session", "gpu_session", "peers", "other_peers"),
    "gpu": ("checks", "timing", "modules", "local_ranks", "check_processes"),
}


def test_what_runs_on_a_gpu_needs_no_part_of_the_compiler():
    """There is no lark there: what else is imported of chunkdsl, functions import that run elsewhere."""
    tests, found = Path(__file__).parent.parent, set()
    for folder, names in ON_A_GPU.items():
        for name in names:
            text = (tests / folder / f"{name}.py").read_text(encoding="utf-8")
            found |= set(re.findall(r"^(?:from|import) (chunkdsl\S*)", text, re.MULTILINE))
    assert found == {"chunkdsl.runtime.machine"}


def test_it_refuses_to_start_with_multicast(monkeypatch):
    monkeypatch.delenv("NCCL_NVLS_ENABLE", raising=False)
    with pytest.raises(SystemExit, match="NCCL_NVLS_ENABLE=0"):
        multi_gpu.main(["--json", ""])


def test_it_says_what_to_build(monkeypatch, tmp_path):
    for name, value in {"TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NCCL_NVLS_ENABLE": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=r"build_for_gpu\.py"):
        multi_gpu.main(["--build", str(tmp_path)])


def test_modules_are_compiled_once_each_and_one_that_hangs_does_no_harm(monkeypatch):
    cases, _ = multi_gpu.plan_cases(SPECS, 4, [], 99)
    asked, said = [], []

    def lost(todo, start, *rest):
        asked.append(todo[0].about["stem"])
        return []

    monkeypatch.setattr(multi_gpu, "run_cases", lost)
    multi_gpu.compile_ahead(cases, None, 4, 10.0, said.append)
    assert sorted(asked) == ["dp_tp_mlp", "gemm_ar", "tp_mlp"]


def test_every_case_has_a_limit_and_all_of_them_end_in_nine_minutes():
    assert multi_gpu.arguments([]).seconds + GRACE < 540
    cases, _ = multi_gpu.plan_cases(SPECS, 4, [], 99)
    assert all(isinstance(c, Case) and 0 < c.limit <= 120 for c in cases)
