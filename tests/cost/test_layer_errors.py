"""What the model says of the layers and of what was tuned stays as near to what was measured as recorded.json's bounds
say, and a model that knows less does not."""

import re
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import mean, median

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))
import layer_rows
import model_errors
from layer_rows import LARGE, NVLINK, STEMS, Ranking, call_us, checked_spec, rankings

from chunkdsl.cost import work
from chunkdsl.cost.constants import margin
from chunkdsl.plan import tile_kernels
from chunkdsl.plan.unroll import unroll

SIZES = (2048, 4096, 8192)  # what mutants are judged by


@cache
def recorded():
    return model_errors.recorded()


def faults(on=NVLINK):
    """Which bounds the model breaks: of the fused layers of a class, of how settings are ranked."""
    bounds, found = recorded()["bounds"], []
    for kind, stem in STEMS.items():
        errors = []
        for r in recorded()["layers"]["rows"]:
            if r["op"].startswith(kind) and r["rows"] in SIZES:
                made = checked_spec(stem)
                op = next(o for o in made.ops if o.name == r["op"])
                said = call_us(made, op, {"M": r["rows"], **({"N": r["columns"]} if "columns" in r else {})}, on)
                errors.append(said / r["us16"]["ours"] - 1)
        found += [f"{kind} median"] * (abs(median(errors)) > bounds["median"][kind])
        found += [f"{kind} size"] * (median(map(abs, errors)) > bounds["size"][kind])
    ranked = rankings(on)
    found += ["correlation"] * (mean(r.correlation for r in ranked) < bounds["correlation"])
    found += [f"{r.op} behind" for r in ranked if r.behind > bounds["behind"]]
    return found


def test_errors_of_layers_stay_within_their_bounds():
    assert faults() == []


def test_a_model_of_the_triton_kernel_alone_is_seen(monkeypatch):
    monkeypatch.setattr(work.Work, "_shape", lambda *_: None)
    assert {"scatter median", "reduce median"} <= set(faults())


@pytest.mark.parametrize("factor", [0.93, 1.07])
def test_another_rate_of_specialised_warps_is_seen(factor):
    other = replace(NVLINK, gpu=replace(NVLINK.gpu, warps_loop=factor * NVLINK.gpu.warps_loop))
    assert {"gather median", "scatter median", "reduce median"} <= set(faults(other))


def test_tiles_that_wait_before_they_are_computed_are_seen(monkeypatch):
    """What a tile adds up it needs once it is computed."""
    cost = work.Work._tile
    monkeypatch.setattr(work.Work, "_tile", lambda *args: replace(cost(*args), late=False))
    assert "scatter_28672 behind" in faults()


def test_stores_that_hold_specialised_warps_up_are_seen(monkeypatch):
    cost = work.Work._tile
    monkeypatch.setattr(work.Work, "_tile", lambda *args: replace(cost(*args), held=True))
    assert "scatter median" in faults()


def test_a_launch_beside_a_product_gets_the_multiprocessors_that_it_leaves(monkeypatch):
    """The product has 128 of 132, so that many sums are made behind it."""
    made = checked_spec("layers_ar_one")
    op = next(o for o in made.ops if o.name == "oneshot_14336")
    shared = call_us(made, op, {"M": 8192})
    monkeypatch.setattr(work.Work, "beside", lambda *_: "")
    assert 4 < shared - call_us(made, op, {"M": 8192}) < 40


def test_narrow_tiles_leave_what_their_own_programs_do():
    """512 rows are 64 tiles of the plan's, and 128 narrow ones, each of a program."""
    schedule, lane = checked_spec("layers_ar_one"), "oneshot_14336_y_partial tiles"
    op = next(o for o in schedule.ops if o.name == "oneshot_14336")
    made = work.Work(op, unroll(schedule, op, 2, [{"M": 512}]), NVLINK)
    assert made.programs(lane, 0) == 128 and made.spare(lane, 0) == 4


def test_the_rows_are_those_of_the_results():
    text = (Path(model_errors.__file__).parent / "RESULTS.md").read_text(encoding="utf-8")

    def cells(heading, name):
        section = text.split(f"## {heading}", 1)[1].split("\n## ", 1)[0]
        found = [[c.strip() for c in line.split("|")[1:-1]] for line in section.splitlines()]
        return [row for row in found if row and re.fullmatch(name, row[0])]

    both = cells("Two H200s: layers of Llama 3.1 and Qwen2", r"(gather|scatter|reduce)_\d+")
    hot, cool = ([row for row in both if len(row) == n] for n in (16, 11))
    for r, h, c in zip(recorded()["layers"]["rows"], hot, cool, strict=True):
        assert [r["op"], r["model"], str(r["rows"])] == h[:3] == c[:3] and r["fused"] == h[15]
        assert list(r["us16"].values()) == list(map(int, (*h[3:7], h[9])))
        assert list(r["us4"].values()) == list(map(int, c[3:7]))
    rows = cells("One H200: products by specialised warps against cuBLAS", r"\d+x\d+x\d+")
    for r, row in zip(recorded()["warps"]["rows"], rows, strict=True):
        shape = "x".join(map(str, r["shape"]))
        assert [shape, r["weight"], str(r["library_us"])] == row[:3]
        assert [r[k] for k in ("triton", "warps", "waits", "signals")] == [float(row[i]) for i in (3, 4, 6, 8)]
    rows = cells("One H200: transfers over the host link behind products of specialised warps", r"[crtl]\d+")
    for r, row in zip(recorded()["host_warps"]["rows"], rows, strict=True):
        assert list(map(str, r.values())) == row[:5]
    rows = cells("One H200: products of few tiles", r"\d+x\d+x\d+")
    for r, row in zip(recorded()["few"]["rows"], rows, strict=True):
        said = ["x".join(map(str, r["shape"])), r["library_us"], *r["us"].values(), r["triton_us"]]
        assert list(map(str, said)) == [row[i] for i in (0, 2, 3, 4, 5)]
    words = re.sub(r"\s+", " ", text.split("A third time, with kernels that start beside", 1)[1])
    for r in recorded()["ratios"]["rows"]:
        listed = ", ".join(f"{ratio:.2f}" for ratio in r["ratios"])
        assert listed in words, r["op"]


def test_what_runs_is_what_is_predicted():
    """Specialised warps, in the tiles that fill the multiprocessors better, for two ranks where tiles add up; Triton's
    kernel beyond."""
    made = checked_spec("layers_rs")
    op = next(o for o in made.ops if o.name == "scatter_14336")

    def columns(world, tiles, target="sm_90", depth=7168):
        shape = work.warp_shape(op.launches[0], op, target, world, tiles, 4096, depth, 132)
        return shape and shape.columns

    assert op.launches[1].within and columns(2, 132) == 256 and columns(2, 64) == 128
    assert columns(4, 132) is columns(2, 132, "sm_100") is columns(2, 132, depth=128) is None


def lost_by_shape():
    """How much slower the tiles that calls are computed in are than the best shape measured, at most."""
    schedule = model_errors.schedule_of(Path(model_errors.__file__).parent / "specs" / "local_gemm.chunk", True)
    rows = recorded()["few"]["rows"]
    taken = [r["us"][str(model_errors.columns_of(schedule, *r["shape"]))] / min(r["us"].values()) for r in rows]
    return max(taken) - 1


def test_calls_have_the_tiles_that_were_fastest(monkeypatch):
    assert lost_by_shape() < 0.02
    w = tile_kernels.warp_tiles()
    for time in (0.4, 0.7):  # too good and too bad a narrow tile
        wrong = replace(w, shapes=(w.shapes[0], replace(w.shapes[1], time=time)))
        monkeypatch.setattr(tile_kernels, "warp_tiles", lambda wrong=wrong: wrong)
        assert lost_by_shape() > 0.05


def test_what_was_fastest_would_have_been_measured():
    """Nothing that tuning leaves out by the model was the fastest; a model that errs by more would say so."""
    ranked = rankings()
    assert len(ranked) == 8 and all(r.behind <= margin("tune") for r in ranked)
    turned = Ranking("x", ("a", "b", "c"), (1.0, 1.1, 1.2), (1.3, 1.1, 1.0))
    assert (turned.best, turned.taken, turned.correlation) == (0, 2, -1.0)
    assert turned.behind == pytest.approx(0.3) and turned.lost == pytest.approx(0.2)


def test_rows_below_their_gate_are_not_taken_for_fused_ones():
    rows = [r for r in recorded()["layers"]["rows"] if r["rows"] < LARGE]
    made = list(layer_rows.layer_rows(rows))
    closed = [r.op for r, said in zip(made, rows, strict=True) if "ours" not in r.measured and said["fused"] != "both"]
    assert closed == ["gather_8192", "gather_8192", "scatter_14336", "reduce_14336"]
