"""Ranks that fail as processes do, on gloo: other sizes, a skipped call, a kill, groups that overlap. Three processes
go through all scenes; the table of docs/failures.md has the outcomes."""

import json
from pathlib import Path

import pytest
from forked_ranks import run_ranks

from chunkdsl.pipeline import check_source
from chunkdsl.render.module import render_module
from chunkdsl.source import Source

PROGRAM = Path(__file__).with_name("failing_rank.py")
TWO_OPS = """mesh tp[2] over nvlink
dim M = 0..64
dim H = 32
dim F = 16
tensor x : bf16[M @ tp, H]
tensor w : bf16[F, H]
op up(x, w) -> y { y = all_gather(x) @ w.T with { tile = 16x16x16, chunk = 8 along M, via = ldst } }
"""
MESH_OPS = """mesh dp[2], tp[2]
dim M = 0..64
dim H = 32
tensor x : bf16[M @ (dp, tp), H]
op up(x) -> y { y = all_gather(x, over = tp) + 1 }
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What ranks were told; rank 1 has killed itself in the end."""
    folder = tmp_path_factory.mktemp("failing")
    for name, text, worlds in (("two_ops", TWO_OPS, (2, 3)), ("mesh_ops", MESH_OPS, ((2, 1),))):
        checked = check_source(Source(f"{name}.chunk", text))
        assert not checked.report.failed, checked.report.diagnostics
        (folder / f"{name}.py").write_text(render_module(checked.schedule, worlds), encoding="utf-8")
    ended = run_ranks(PROGRAM, 3, folder)
    assert [status for status, _, _ in ended] == [0, -9, 0], [err[-3000:] for _, _, err in ended]
    return [json.loads(out) for _, out, _ in ended]


@pytest.mark.parametrize("rank", [0, 2])
def test_calls_that_do_not_agree_are_refused_on_every_rank_and_leave_the_instance_alive(told, rank):
    mine = told[rank]
    assert "RuntimeError: up: ranks [1] call with other sizes than rank 0" in mine["other sizes"][0]
    assert mine["refused"][0].startswith("RuntimeError: up: rank 1 refuses its arguments: up: x is torch.float32")
    assert mine["after both"][0] == [24, 16]
    assert mine["closed"][0] == "RuntimeError: up: TwoOps is closed"


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_skips_a_call_is_named_when_the_group_s_timeout_has_passed(told, rank):
    said, seconds = told[rank]["skipped"]
    assert f"rank {rank}: a meeting of all ranks failed and ranks [1] do not answer" in said
    assert seconds > 1.4, "it waits for the group's timeout"
    for later in ("next", "close of it"):
        assert f"up is dead on rank {rank}" in told[rank][later][0] and "ranks [1]" in told[rank][later][0]
        assert told[rank][later][1] < seconds, "it does not wait again"


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_raises_in_a_call_is_named_and_cannot_come_back_into_the_peers_collective(told, rank):
    assert "a gather failed and ranks [1] do not answer" in told[rank]["raised"][0]
    assert "up is dead on rank 1: a call raised OSError (no room)" in told[1]["after it"][0]
    assert told[1]["raised"][0] == "OSError: no room"
    assert f"up is dead on rank {rank}" in told[rank]["after it"][0]


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_is_killed_in_a_call_is_named(told, rank):
    said, _ = told[rank]["killed"]
    assert "failed and ranks [1] do not answer" in said


def test_groups_that_overlap_work_side_by_side(told):
    for rank in (0, 2):
        assert [said for said, _ in told[rank]["overlapping"]] == [[16, 16]]


def test_instances_on_a_mesh_of_two_axes_share_the_group_that_it_needs(told):
    said, _ = told[0]["unequal"]
    assert said.startswith("ValueError: MeshOps: the ranks of the mesh are in [") and "new_group([0, 1])" in said
    assert told[0]["descriptors"] == 0
