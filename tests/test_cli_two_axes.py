"""`--world` on meshes of two axes: how many ranks each axis has, what a plain number means, what cannot be."""

import json

import pytest

from chunkdsl.cli import main

SPEC = """mesh dp[2] over rdma, tp[4] over nvlink
dim M = 1..256
tensor x : bf16[M @ (dp, tp), 64]
tensor w : bf16[192 @ tp, 64]
op f(x, w) -> y { y = all_gather(x, over = tp) @ w.T with { chunk = 16 along M, via = ldst } }
op g(x) -> y {
    y = all_gather(x, over = (dp, tp)) * 2 with { chunk = 16 along M, route = hierarchical(swizzle, ring), via = ldst }
}
"""
ONE_AXIS = "mesh tp[4]\ndim M = 1..256\ntensor x : bf16[M @ tp, 64]\nop f(x) -> y { y = all_gather(x) * 2 }\n"


@pytest.fixture
def specs(tmp_path, monkeypatch):
    (tmp_path / "two.chunk").write_text(SPEC, encoding="utf-8")
    (tmp_path / "one.chunk").write_text(ONE_AXIS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def planned(capsys, *words):
    assert main(["plan", "two.chunk", "--json", *words]) == 0
    return {p["op"]: p for p in json.loads(capsys.readouterr().out)}


@pytest.mark.parametrize("worlds", ["2x2", "2x2,1x3", "4", "2x2,6"])
def test_check_proves_for_the_ranks_of_both_axes(specs, capsys, worlds):
    assert main(["check", "two.chunk", "--world", worlds]) == 0


def test_a_plan_is_that_of_the_rank_s_subgroup(specs, capsys):
    plans = planned(capsys, "--world", "2x3", "--rank", "4", "--dim", "M=9")
    of_f, of_g = (plans[op]["summary"] for op in "fg")
    assert (of_f["world"], of_f["rank"], of_f["link"]) == (3, 1, "nvlink")
    assert (of_g["world"], of_g["rank"], of_g["link"]) == (6, 4, "rdma and nvlink")
    sent = {(t["source"], t["destination"]) for t in of_g["transfers"]}
    assert sent == {(4, 1), (4, 5)}  # its index on the other node, and its neighbour on its own


def test_without_it_the_mesh_s_own_sizes_are_taken_and_a_number_counts_all_ranks(specs, capsys):
    assert planned(capsys)["g"]["summary"]["world"] == 8
    assert planned(capsys, "--world", "4")["f"]["summary"]["world"] == 2  # dp keeps its 2 ranks


@pytest.mark.parametrize(
    ("command", "spec", "world", "said"),
    [
        ("check", "two.chunk", "3", "--world 3 does not fit the mesh: dp has 2 ranks, and 3 is not a multiple of it"),
        ("plan", "two.chunk", "7", "say how many each axis has: --world 2x4"),
        ("check", "one.chunk", "2x4", "--world 2x4 does not fit the mesh: it has one axis, tp"),
        ("verify", "one.chunk", "2x4", "--world 8"),
        ("build", "two.chunk", "5", "CD014"),
    ],
)
def test_ranks_that_the_mesh_cannot_have_are_refused(specs, capsys, command, spec, world, said):
    assert main([command, spec, "--world", world]) == 2
    captured = capsys.readouterr()
    assert said in captured.out + captured.err


@pytest.mark.parametrize("world", ["2x", "x4", "2x2x2", "0x4", "64x64", "2*4", "-2x4"])
def test_what_is_no_number_of_ranks_is_a_usage_error(specs, capsys, world):
    assert main(["plan", "two.chunk", f"--world={world}"]) == 2
    assert "or as 2x4 has it" in capsys.readouterr().err
