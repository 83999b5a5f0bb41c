"""Peers that are measured where they are installed: what is missing says why, and their times stand beside ours."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "gpu"))
import multi_gpu
import multi_rows
import other_peers
from watched import Outcome


@pytest.fixture
def two_ranks(monkeypatch):
    """What rank 1 says of each peer, by order."""
    said = []

    def gather(into, mine):
        into[:] = [mine, said.pop(0) if said else mine]

    monkeypatch.setattr(other_peers.dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(other_peers.dist, "all_gather_object", gather)
    return said


def test_a_peer_that_is_not_installed_is_named_with_the_reason(two_ranks, monkeypatch):
    monkeypatch.setattr(other_peers, "shared", lambda like, shape=None: like)
    calls, refused = other_peers.others_of("small_ar", [torch.zeros(4, 8)])
    assert calls == {} and refused.keys() == other_peers.MAKERS["small_ar"].keys()
    assert refused["kraken one_shot"] == "ModuleNotFoundError: No module named 'kraken'"


def test_a_peer_is_there_if_every_rank_has_it(two_ranks, monkeypatch):
    made = {"here": lambda p: p.sum, "half": lambda p: p.sum}
    monkeypatch.setitem(other_peers.MAKERS, "small_ar", made)
    two_ranks[:] = ["", "OSError: no"]
    calls, refused = other_peers.others_of("small_ar", [torch.ones(3)])
    assert calls.keys() == {"here"} and calls["here"]() == 3 and refused == {"half": "OSError: no"}


def test_a_measurement_that_hangs_beside_peers_is_tried_without_them():
    first = next(iter(multi_gpu.measurements("gemm_ar", "down", 2, others=True)))
    second = first.again
    assert first.about["others"] and "others" not in second.about
    assert second.again.about == {**second.about, "torchs": False}
    assert next(iter(multi_gpu.measurements("gemm_ar", "down", 2))).about == second.about
    lost = [multi_gpu.as_record(Outcome(c, "hung", "no answer")) for c in (first, second)]
    done = [multi_gpu.as_record(Outcome(c, "done", found={})) for c in (second, second.again)]
    assert not multi_gpu.failed({"cases": [lost[0], done[0]]}) and not multi_gpu.failed({"cases": [*lost, done[1]]})
    assert multi_gpu.failed({"cases": lost})


def test_the_table_has_each_peers_time_over_ours_and_why_others_are_missing():
    found = {
        "graph": {"library": 200.0, "ours": 100.0, "kraken": 150.0}, "refused": {"helion": "ImportError: no"},
        "eager": {"library": 210.0, "ours": 120.0, "kraken": 180.0, "flashinfer": 130.0}, "apart": {"kraken": 0.001},
    }  # fmt: skip
    cases = [{"kind": "measure", "how": "done", "op": "ag_gemm.qkv", "size": n, "found": found} for n in (512, 2048)]
    text = multi_rows.table_of_others({"cases": cases, "peers": {"kraken": "1.2"}})
    lines = text.splitlines()
    assert lines[0] == "Peers: kraken 1.2."
    assert lines[4] == "| ag_gemm.qkv | M = 512 | kraken | 150 | 100 | 1.50 | 180 | 120 | 1.50 | 1.0e-03 |"
    assert lines[5] == "| ag_gemm.qkv | M = 512 | flashinfer | - | 100 | - | 130 | 120 | 1.08 | - |"
    assert lines[-1] == "- ag_gemm, helion (M = 512, M = 2048): ImportError: no"


def test_versions_are_read_from_the_folder(tmp_path):
    for name in ("thing-1.5.dist-info", "kraken"):
        (tmp_path / name).mkdir()
    (tmp_path / "thing-1.5.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: thing\nVersion: 1.5\n")
    (tmp_path / "kraken" / "VERSION").write_text("90a24c2\n")
    assert multi_gpu.versions(str(tmp_path)) == {"thing": "1.5", "kraken": "90a24c2"}
    with pytest.raises(SystemExit, match="there is no folder"):
        multi_gpu.main(["--device", "cpu", "--peers", str(tmp_path / "gone")])
