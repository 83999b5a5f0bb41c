"""Peers that are measured where they are installed: what is missing says why, and their times stand beside ours."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "gpu"))
import multi_gpu
import multi_rows
import other_peers


@pytest.fixture
def two_ranks(monkeypatch):
    """What rank 1 says of each peer, by order."""
    said = []

    def gather(into, mine):
        into[:] = [mine, said.pop(0) if said else mine]

    monkeypatch.setattr(other_peers.dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(other_peers.dist, "all_gather_object", gather)
    return said


def test_a_peer_that_is_not_installed_is_refused_with_the_reason(two_ranks, monkeypatch):
    monkeypatch.setattr(other_peers, "shared", lambda like, shape=None: like)
    found = other_peers.other_of("small_ar", "kraken one_shot", [torch.zeros(4, 8)])
    assert found == (None, "ModuleNotFoundError: No module named 'kraken'")


def test_a_peer_is_there_if_every_rank_has_it(two_ranks, monkeypatch):
    monkeypatch.setitem(other_peers.MAKERS, "small_ar", {"here": lambda p: p.sum, "half": lambda p: p.sum})
    call, why = other_peers.other_of("small_ar", "here", [torch.ones(3)])
    assert call() == 3 and why == ""
    two_ranks[:] = ["OSError: no"]
    assert other_peers.other_of("small_ar", "half", [torch.ones(3)]) == (None, "OSError: no")


def test_every_call_that_is_planned_has_a_maker_and_modules():
    assert {stem: tuple(made) for stem, made in other_peers.MAKERS.items()} == multi_rows.OTHERS
    families = {name.split()[0] for names in multi_rows.OTHERS.values() for name in names}
    assert families == other_peers.IMPORTED.keys()
    assert {*multi_rows.BESIDE} == {*multi_rows.MEASURED}
    assert all({*sizes} <= {*multi_rows.MEASURED[key][1]} for key, sizes in multi_rows.BESIDE.items())


OPS = {"ag_gemm": "qkv", "gemm_rs": "out_proj", "gemm_ar": "down", "small_ar": "word"}
def test_of_multiprocessors_kraken_is_told_during_its_call_alone(two_ranks, monkeypatch):
    def gather(own, w):
        return None, torch.cuda.get_device_properties("any").multi_processor_count

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=132))
    monkeypatch.setattr(other_peers, "shared", lambda like, shape=None: like)
    monkeypatch.setattr(other_peers, "load_module", lambda name: SimpleNamespace(all_gather_matmul=gather))
    told = {}
    for name in ("kraken", "kraken with 4 SMs free"):
        call, _ = other_peers.other_of("ag_gemm", name, [torch.ones(2, 3), torch.ones(4, 3)])
        told[name] = call()
    assert told == {"kraken": 132, "kraken with 4 SMs free": 128}
    assert torch.cuda.get_device_properties("any").multi_processor_count == 132


SPECS = {stem: {"ops": [op], "worlds": [2], "shipped": True} for stem, op in OPS.items()}
# A session without torch: what hangs, dies, raises or is refused is said by the peer's name.
SESSION = """
import json, os, sys, time
cases = json.load(open(sys.argv[1]))["cases"]
def say(**said):
    os.write(int(os.environ["CHUNKDSL_PROGRESS"]), (json.dumps(said) + "\\n").encode())
for case in cases:
    say(begin=case["name"])
    peer, found = case["about"].get("peer", ""), {"wrong": ""}
    if peer:
        found = {"eager": {peer: 20.0, "ours": 10.0}, "apart": {peer: 0.0}}
        say(**{"so far": found, "at": "a replay", "limit": 0.2 if peer == "kraken" else 600})
        found = {"graph": {peer: 8.0, "ours": 4.0}}
    if peer == "kraken" and case["about"]["size"] == 2048:
        time.sleep(600)
    if peer == "kraken copy engine":
        os._exit(3)
    if peer == "helion":
        say(failed="no", rank=0)
        os._exit(1)
    if case["kind"] == "measure":
        found = {"graph": {"library": 6.0, "ours": 4.0}, "eager": {"library": 12.0, "ours": 10.0}}
    say(end=found)
"""


@pytest.fixture
def run(monkeypatch, tmp_path):
    """(exit code, JSON, printed) of a whole run in which one call of kraken hangs, another dies and Helion's raise."""

    def go(*arguments):
        session, out = tmp_path / "session.py", tmp_path / "out.json"
        session.write_text(SESSION)
        monkeypatch.setattr(multi_gpu, "SESSION", session)
        monkeypatch.setattr(multi_gpu, "SLOWNESS", 1)
        index = {"specs": SPECS, "predictions": {}, "predicted_for": "H200"}
        monkeypatch.setattr(multi_gpu, "index_of", lambda args: index)
        monkeypatch.setattr(multi_gpu, "plan_cases", lambda *given: plan_cases(*given[:3], 99))
        code = multi_gpu.main(["--device", "cpu", "--peers", str(tmp_path), "--json", str(out), *arguments])
        return code, json.loads(out.read_text())

    plan_cases = multi_gpu.plan_cases
    return go


def test_a_peer_that_hangs_is_named_and_everything_else_is_measured(run, capsys):
    code, made = run("--sizes", "16,512,2048,8192")
    how = {c["name"]: c["how"] for c in made["cases"]}
    lost = {name: said for name, said in how.items() if said != "done"}
    assert code == 0 and lost == {
        "time ag_gemm.qkv M = 2048 beside kraken": "hung",
        "time ag_gemm.qkv M = 8192 beside kraken": "not run",
        "time gemm_ar.down M = 2048 beside kraken": "hung",
        "time gemm_ar.down M = 8192 beside kraken": "not run",
        **{f"time gemm_rs.out_proj M = {m} beside kraken copy engine": h for m, h in lost_at("died")},
        **{f"time gemm_rs.out_proj M = {m} beside helion": h for m, h in lost_at("failed")},
        **{f"time ag_gemm.qkv M = {m} beside helion": h for m, h in lost_at("failed")},
    }
    (hung,) = [c for c in made["cases"] if c["name"] == "time ag_gemm.qkv M = 2048 beside kraken"]
    assert hung["why"].startswith("a replay: no answer") and hung["found"]["eager"] == {"kraken": 20.0, "ours": 10.0}
    said = capsys.readouterr().out
    assert "| ag_gemm.qkv | M = 2048 | kraken | - | - | - | 20 | 10.00 | 2.00 | 0.0e+00 |" in said
    assert "| ag_gemm.qkv | M = 512 | kraken | 8.00 | 4.00 | 2.00 | 20 | 10.00 | 2.00 | 0.0e+00 |" in said
    assert "| gemm_rs.out_proj | M = 8192 | NCCL + cuBLAS | 6.00 | 4.00 | 1.50 | 12.00 | 10.00 | 1.20 | - |" in said
    assert "| small_ar.word | 64 KiB | helion one_shot | 8.00 | 4.00 | 2.00 |" in said


def lost_at(first):
    """By size, how a call goes whose first is lost."""
    return (512, first), (2048, "not run"), (8192, "not run")


def test_ours_come_first_and_each_peer_has_groups_of_its_own():
    cases, _ = multi_gpu.plan_cases(SPECS, 2, [], 99)
    lists = multi_gpu.beside(cases)
    assert [{c.about["peer"].split()[0] for c in todo} for todo in lists] == [{"flashinfer"}, {"kraken"}, {"helion"}]
    assert all(todo[-1].about["stem"] == "ag_gemm" for todo in lists)
    assert all(c.limit == multi_gpu.PEER and "torchs" not in c.about for todo in lists for c in todo)


def test_without_more_said_a_run_beside_peers_is_short(tmp_path):
    args = multi_gpu.arguments(["--peers", str(tmp_path)])
    assert args.seconds == 240 and args.specs == [*multi_rows.OTHERS]
    assert multi_gpu.arguments([]).seconds == 500 and multi_gpu.arguments([]).specs == []


def test_the_table_says_why_calls_are_missing():
    case = {"kind": "beside", "op": "ag_gemm.qkv", "peer": "helion", "found": {"refused": {"helion": "no"}}}
    text = multi_rows.table_of_others({"cases": [{**case, "size": n} for n in (512, 2048)], "peers": {"kraken": "1.2"}})
    lines = text.splitlines()
    assert lines[0] == "Peers: kraken 1.2." and lines[-1] == "- ag_gemm, helion (M = 512, M = 2048): no"


def test_versions_are_read_from_the_folder(tmp_path):
    for name in ("thing-1.5.dist-info", "kraken"):
        (tmp_path / name).mkdir()
    (tmp_path / "thing-1.5.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: thing\nVersion: 1.5\n")
    (tmp_path / "kraken" / "VERSION").write_text("90a24c2\n")
    assert multi_gpu.versions(str(tmp_path)) == {"thing": "1.5", "kraken": "90a24c2"}
    with pytest.raises(SystemExit, match="there is no folder"):
        multi_gpu.main(["--device", "cpu", "--peers", str(tmp_path / "gone")])
