"""`chunkdsl plan`: options, exit codes, the JSON form, and numbers that are right by hand."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chunkdsl import pipeline
from chunkdsl.cli import main
from chunkdsl.plan.dump import load
from chunkdsl.plan.summary import expected_tasks
from chunkdsl.plan.unroll import unroll
from chunkdsl.report.plan_text import WIDTH, size_text

ROOT = Path(__file__).parent.parent
HEAD = """mesh tp[4] over nvlink
dim M = 1..1024 step 2
dim H = 512
dim F = 1024
"""
MLP = HEAD + """tensor x  : bf16[M @ tp, H]
tensor w1 : bf16[F @ tp, H]
tensor b1 : bf16[F @ tp]
tensor w2 : bf16[H, F @ tp]
op mlp(x, w1, b1, w2) -> y {
    h = gelu(all_gather(x) @ w1.T + b1)
        with { chunk = 64 along M, via = copy_engine, tile = 64x64x32, fuse_from = 128 along M }
    y = reduce_scatter(h @ w2.T, M) with { chunk = 2 per shard, via = tma, place = own_sms(8), tile = 64x64x32 }
}
"""
TWO = MLP + """tensor p : f32[M, H] sum tp
op total(p) -> q { q = all_reduce(p) with { side = pull, fallback = exact } }
"""
CHOICE = {"where", "key", "value", "why", "runner_up", "margin"}
ROW = 512 * 2  # bytes of a row of x, and of the partial sums


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    (tmp_path / "mlp.chunk").write_text(MLP)
    (tmp_path / "two.chunk").write_text(TWO)
    (tmp_path / "bad.chunk").write_text(MLP.replace("-> y", "-> z"))
    (tmp_path / "none.chunk").write_text("mesh tp[2]\n")
    (tmp_path / "garbage.chunk").write_bytes(bytes(range(256)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHUNKDSL_DEBUG", raising=False)


def run(capsys, *argv):
    code = main(["plan", *argv])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    return code, captured.out, captured.err


def plans(capsys, *argv):
    code, out, err = run(capsys, *argv, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def words(text):
    return {" ".join(line.split()) for line in text.splitlines()}


# ---- text


def test_the_report_shows_every_part(capsys):
    code, out, err = run(capsys, "mlp.chunk", "--rank", "3")
    assert (code, err) == (0, "")
    lines = words(out)
    assert "op mlp(x, w1, b1, w2) -> y mlp.chunk:9" in lines
    assert "rank 3 of 4 over nvlink; M = 1024" in lines
    route = r"all_gather\(x\) route swizzle direct [+-][\d.]+ % spreads the ranks' reads over different peers"
    assert any(re.fullmatch(route, line) for line in lines)
    assert "2 mlp_h 10 all shards own, previous ranks 64x64x32 64 = 4 x 4 x 4" in lines
    assert "3 mlp_x_gathered_move 10 24 copies" in lines
    assert "mlp_y_partial 4 100 + 8, 4 stages 124 + 8, 4 stages 128 + 8, 4 stages 128 + 8, 4 stages" in lines
    assert "mlp_x_gathered 64 rows 64 4 4 64 KiB" in lines and "mlp_y_stage 2 per shard 128 2 4 128 KiB" in lines
    assert "mlp_x_gathered 3 -> 0, 1, 2 4 256 KiB 768 KiB push, copy_engine copy engine" in lines
    assert "mlp_y_stage 3 -> 0, 1, 2 2 256 KiB 768 KiB push, tma 8 programs" in lines
    assert "mlp_closed finished reading 4 4 4" in lines
    assert "mlp_x_gathered symmetric 1,024 x 512 bf16 1 1 MiB" in lines
    assert "leaves over nvlink 1.5 MiB in this call, 1.5 MiB arrive" in lines
    assert any("the call ends with a barrier; fused from 128 along M; fallback nccl" in line for line in lines)


@pytest.mark.parametrize("argv", [(), ("--world", "64", "--rank", "63"), ("--dim", "M=2"), ("--world", "1")])
def test_no_line_is_too_long_or_ends_in_blanks(argv, capsys):
    out = run(capsys, "two.chunk", *argv)[1]
    assert out.count("What auto became") == 2
    for line in out.splitlines():
        assert len(line) <= WIDTH and line == line.rstrip()


def test_below_the_gate_it_says_so(capsys):
    assert "This call runs the fallback (nccl)" in run(capsys, "mlp.chunk", "--dim", "M=126")[1]
    assert "This call runs the fallback" not in run(capsys, "mlp.chunk", "--dim", "M=128")[1]


def test_a_size_that_no_module_serves_is_planned_and_said(capsys):
    out = run(capsys, "mlp.chunk", "--world", "3")[1]
    assert "This world size cannot run fused: rank 0's rows of w2 have 342 elements" in out
    assert "cannot run fused" not in run(capsys, "mlp.chunk", "--world", "2")[1]


def test_what_is_too_large_to_be_played_out_is_said_and_not_left_out(monkeypatch, capsys):
    assert "Predicted, not measured" in run(capsys, "mlp.chunk")[1]
    monkeypatch.setattr(pipeline, "LARGEST_PREDICTED", 20)
    out = run(capsys, "mlp.chunk")[1]
    tasks = len(plans(capsys, "mlp.chunk")[0]["plan"]["tasks"])
    assert f"Nothing: this call has {tasks} tasks; `plan` plays out up to 20" in out and "not measured" not in out
    assert plans(capsys, "mlp.chunk")[0]["predicted"].startswith(f"this call has {tasks} tasks")


def test_the_gate_of_every_number_of_ranks_and_the_margins_are_shown(capsys, place, tmp_path):
    free = MLP.replace(", fuse_from = 128 along M", "").replace("chunk = 64", "chunk = 48")  # many for four ranks
    (tmp_path / "free.chunk").write_text(free)
    out = run(capsys, "free.chunk")[1]
    assert re.search(r"fused from \d+ along M|never fused|always fused", out)
    assert "A rule stays unless a value is predicted to gain 2%" in out
    assert "..." not in out[out.index("What auto became") : out.index("In stream order")], "reasons are whole"
    gates = re.search(r"The gate by number of ranks: (.*)", out)
    first, ranks = re.search(r"(never|\d+ along M) from ([24]) on", gates[1]).groups()
    two = run(capsys, "free.chunk", "--world", ranks)[1]
    assert (f"fused from {first}" if first != "never" else "never fused") in two


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"),
                                             (3 << 20, "3 MiB"), ((5 << 30) // 2, "2.5 GiB")])  # fmt: skip
def test_sizes_as_text(count, text):
    assert size_text(count) == text


# ---- options


@pytest.mark.parametrize(
    ("argv", "codes"),
    [
        (("gone.chunk",), {"CD002"}),
        ((".",), {"CD002"}),
        (("garbage.chunk",), {"CD003"}),
        (("mlp.chunk", "--dim", "N=1"), {"CD008"}),
        (("mlp.chunk", "--dim", "H=512"), {"CD008"}),
        (("mlp.chunk", "--dim", "M=0"), {"CD009"}),
        (("mlp.chunk", "--dim", "M=1026"), {"CD009"}),
        (("mlp.chunk", "--dim", "M=101"), {"CD009"}),
        (("mlp.chunk", "--rank", "4"), {"CD010"}),
        (("mlp.chunk", "--rank", "-1"), {"CD010"}),
        (("mlp.chunk", "--rank", "2", "--world", "2", "--dim", "N=1", "--dim", "M=0"), {"CD008", "CD009", "CD010"}),
    ],
)
def test_what_does_not_fit_exits_2(argv, codes, capsys):
    code, out, _ = run(capsys, *argv)
    assert code == 2 and all(f"error: {c}[" in out for c in codes)
    assert {f["code"] for f in json.loads(run(capsys, *argv, "--json")[1])} == codes


@pytest.mark.parametrize(("name", "found"), [("bad.chunk", "CD2"), ("none.chunk", "CD011")])
def test_a_spec_with_errors_exits_1(name, found, capsys):
    code, out, _ = run(capsys, name)
    assert code == 1 and f"error: {found}" in out and "What auto became" not in out
    assert json.loads(run(capsys, name, "--json")[1])[0]["code"].startswith(found)


@pytest.mark.parametrize("argv", [(), ("a", "b"), ("a", "--world", "2,3"), ("a", "--world", "0"), ("a", "--rank", "x"),
                                  ("a", "--dim", "M"), ("a", "--dim", "M=x"), ("a", "--dim", "=3"),
                                  ("a", "--dim", "M=-1"), ("a", "--dim", "M=" + "9" * 30)])  # fmt: skip
def test_wrong_usage(argv, capsys):
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "") and "usage: chunkdsl" in err


def test_the_last_value_of_a_dim_counts(capsys):
    assert plans(capsys, "mlp.chunk", "--dim", "M=2", "--dim", "M=8")[0]["summary"]["dims"] == {"M": 8}


@pytest.mark.parametrize("dims", [{"M": 1024}, {"M": 100}, {"M": 2}])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_the_number_of_tasks_is_foreseen(world, dims):
    schedule = pipeline.read_one("two.chunk").schedule
    for op in schedule.ops:
        plan = unroll(schedule, op, world, [dims])
        made = sum(t.lane != "main" for t in plan.tasks)
        assert made / 2 <= expected_tasks(op, world, dims) <= made * 2


def test_a_plan_that_nobody_could_read_is_refused(capsys, monkeypatch):
    monkeypatch.setattr(pipeline, "LARGEST_PLAN", 100)
    code, out, _ = run(capsys, "mlp.chunk")
    assert code == 2 and "error: CD013[plan-too-large] the plan of mlp has about" in out
    assert run(capsys, "mlp.chunk", "--dim", "M=2", "--world", "2")[0] == 0


# ---- json


def test_json_has_an_object_for_each_op_and_its_plan_loads_back_equal(capsys):
    found = plans(capsys, "two.chunk", "--world", "3", "--dim", "M=100")
    assert [f["op"] for f in found] == ["mlp", "total"]
    schedule = pipeline.read_one("two.chunk").schedule
    for f, op in zip(found, schedule.ops, strict=True):
        assert set(f) == {"op", "plan", "choices", "summary", "predicted"}
        assert f["predicted"]["op"] == op.name and f["predicted"]["total_us"] >= f["predicted"]["ideal_us"] > 0
        assert load(json.dumps(f["plan"])) == unroll(schedule, op, 3, [{"M": 100}], {"M": 1024})
        assert [set(c) for c in f["choices"]] == [CHOICE] * len(op.choices) and op.choices
    assert found[0]["summary"]["world"] == 3 and found[0]["summary"]["fallback"] == "nccl"
    assert found[1]["summary"]["fallback"] == "exact"


def test_stdout_is_json_alone_and_the_same_twice(tmp_path):
    command = [sys.executable, "-m", "chunkdsl", "plan", "two.chunk", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    outs = [
        subprocess.run(command, env={**environment, "PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout
        for seed in "01"
    ]
    assert outs[0] == outs[1] and len(json.loads(outs[0])) == 2


# ---- numbers


@pytest.mark.parametrize(("world", "rows"), [(2, 1024), (4, 1024), (4, 1000), (4, 2), (3, 10), (1, 64)])
def test_bytes_on_the_link_are_those_of_a_gather_and_a_scatter(world, rows, capsys):
    """A gather brings every other shard here; a scatter takes the partial sums of every other shard away."""
    for rank in range(world):
        s = plans(capsys, "mlp.chunk", "--world", str(world), "--rank", str(rank), "--dim", f"M={rows}")[0]["summary"]
        shard = -(-rows // world)
        own = max(0, min(rows - rank * shard, shard))
        others = rows - own
        gathered, scattered = others * ROW, own * (world - 1) * ROW
        assert s["received_bytes"] == gathered + scattered
        assert s["sent_bytes"] == own * (world - 1) * ROW + others * ROW
        assert sum(t["bytes"] for t in s["transfers"]) == s["sent_bytes"]  # it pushes x and sums


def test_signals_and_transfers_of_all_ranks_agree(capsys):
    all_ranks = [plans(capsys, "two.chunk", "--rank", str(r), "--dim", "M=10") for r in range(4)]
    for op in range(2):
        summaries = [p[op]["summary"] for p in all_ranks]
        for flags in summaries[0]["signals"]:
            rows = [x for s in summaries for x in s["signals"] if x["flags"] == flags["flags"]]
            assert sum(x["gives"] for x in rows) == sum(x["gets"] for x in rows) > 0
        moved = sum(t["bytes"] for s in summaries for t in s["transfers"])
        assert moved == sum(s["sent_bytes"] for s in summaries) == sum(s["received_bytes"] for s in summaries)


def test_copy_engine_chunks_without_rows_still_send_their_flag_word(capsys):
    s = plans(capsys, "mlp.chunk", "--dim", "M=2")[0]["summary"]  # ranks 2 and 3 hold no row
    copies = next(x for x in s["started"] if x["kind"] == "copies")
    assert copies["copies"] == 3 + 3  # the row of this rank and a flag word to each of three peers
    assert copies["text"].endswith(", from x itself")
    idle = plans(capsys, "mlp.chunk", "--dim", "M=2", "--rank", "3")[0]["summary"]
    assert next(x for x in idle["started"] if x["kind"] == "copies")["copies"] == 0 + 3


# ---- small all-reduces


def test_a_small_all_reduce_shows_its_forms_by_payload_and_what_is_predicted(capsys):
    spec = str(ROOT / "specs" / "decode_all_reduce.chunk")
    assert main(["plan", spec, "--world", "2", "--dim", "T=1"]) == 0
    first = capsys.readouterr().out.split("\nop ar_norm")[0]
    table = first.split("How payloads travel, by the bytes of each rank\n")[1].split("\n\n")[0].splitlines()
    assert table[1].split()[:3] == ["up", "to", "32"] and table[1].endswith("this call")
    assert table[-1].split() == ["above", "the", "fallback", "(nccl)"]
    assert sum(line.endswith("this call") for line in table) == 1
    totals = first.split("Predicted, not measured")[1]
    for name in ("call", "compute alone", "communication", "ideal", "stream by stream", "speed-up over it"):
        assert f"\n  {name}" in totals
    head, *ranks = totals.split("\n\n")[1].splitlines()
    assert head.split() == ["rank", "ends", "at", "stream", "exchange"]
    assert len(ranks) == 3  # two ranks, and what the numbers are
