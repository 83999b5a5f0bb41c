"""MODEL.md is what the model says of the recorded rows, and those are the rows of RESULTS.md."""

import re
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))
import model_errors

BENCH = Path(model_errors.__file__).parent


@cache
def found():
    return list(model_errors.rows())


def table(heading):
    """Cells of the table below a heading of RESULTS.md."""
    section = (BENCH / "RESULTS.md").read_text(encoding="utf-8").split(f"## {heading}", 1)[1].split("\n## ", 1)[0]
    return [[c.strip() for c in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("|")][2:]


def test_the_document_is_what_the_model_says():
    assert (BENCH / "MODEL.md").read_text(encoding="utf-8") == model_errors.whole(found())


def test_another_prediction_is_another_document():
    other = [replace(r, predicted=1.2 * r.predicted) for r in found()]
    assert model_errors.render(other) != model_errors.render(found())


def test_recorded_rows_are_those_of_the_results():
    recorded, op, two = model_errors.recorded(), "", []
    for r in table("Two H200s, NVLink (NV18)"):
        op = r[0].split(" ")[0] or op
        two.append((op, *map(int, r[1:4])))
    assert [(r["op"], r["rows"], r["library_us"], r["ours_us"]) for r in recorded["two"]] == two
    gemm = [(*r[:3], float(r[3])) for r in table("One H200: the emitted GEMM against cuBLAS")]
    assert gemm == [
        ("x".join(map(str, r["shape"])), r["weight"], f"{r['library_us']} us", r["ratio"]) for r in recorded["gemm"]
    ]
    host = [tuple(map(int, r[:5])) for r in table("One H200: all-gather + GEMM")]
    assert [tuple(r.values()) for r in recorded["host"]] == host


def test_recorded_products_by_the_library_are_those_of_the_results():
    rows = table("Two H200s: products by the library")
    for recorded, cells in zip(model_errors.recorded()["library"], rows, strict=True):
        assert (recorded["op"], recorded["rows"]) == (cells[0], int(cells[1]))
        assert recorded["chunks_us"] == {n: int(us) for n, us in zip("124", cells[7:10], strict=True) if us != "-"}


SMALL = ("kib", "nccl", "torch_one_shot", "torch_two_shot", "barriers", "dual", "word", "marks", "rounds", "guess",
         "ar_norm")  # fmt: skip


def test_recorded_small_all_reduces_are_those_of_the_results():
    rows = table("Two H200s, NVLink (NV18): small all-reduces")
    small, decode = rows[: len(model_errors.SIZES)], rows[-3:]
    for recorded, cells in zip(model_errors.recorded()["small"], small, strict=True):
        medians = [float(cell.split(" / ")[0]) for cell in cells if cell != "-"]
        assert recorded == dict(zip(SMALL, medians, strict=False))
    forms = table("Two H200s: forms of small all-reduces")
    assert [list(r.values()) for r in model_errors.recorded()["forms"]] == [list(map(float, r[:5])) for r in forms]
    for recorded, cells in zip(model_errors.recorded()["decode"], decode, strict=True):
        assert list(recorded.values()) == list(map(int, cells[:6]))


def test_recorded_users_kernels_are_those_of_the_results():
    rows = table("One H200: a user's kernel, rewritten, against itself untouched")
    for recorded, cells in zip(model_errors.recorded()["user"], rows, strict=True):
        assert f"{recorded['op']}, M = {recorded['rows']}" == cells[0]
        assert (f"{recorded['untouched_us']} us", recorded["ratio"]) == (cells[1], float(cells[2]))


def test_recorded_calls_of_one_and_two_buffers_are_those_of_the_results():
    rows = [[c[0], *map(int, c[1:3]), *map(float, c[3:6])] for c in table("One H200: what a second buffer saves")]
    assert [list(r.values()) for r in model_errors.recorded()["calls"]["rows"]] == rows


def test_recorded_eager_calls_are_those_of_the_results():
    rows = table("The host's time for an eager call")
    for recorded, cells in zip(model_errors.recorded()["eager"], rows, strict=False):
        times = [int(n) for cell in cells[2:5] for n in re.findall(r"\d+", cell)]
        assert list(recorded.values()) == [cells[0].split()[0], int(cells[1]), *times]
        assert abs(recorded["library_us"] / recorded["repeated_us"] - float(cells[5])) < 0.01
    assert rows[len(model_errors.recorded()["eager"])][0] == "op", "the next table begins"


def test_every_number_of_the_results_has_its_line_or_its_reason():
    """Each table of RESULTS.md that has times has a table in MODEL.md, or MODEL.md says why not."""
    text = (BENCH / "RESULTS.md").read_text(encoding="utf-8")
    found_in = [s for s in text.split("\n## ")[1:] if re.search(r"\bus\b|[Mm]icroseconds", s) and "\n|" in s]
    timed = [s.split("\n", 1)[0] for s in found_in]
    covered = {
        "One H200: the emitted GEMM against cuBLAS": "One H200: GEMM",
        "One H200: all-gather + GEMM, the peer's shard behind the host link": "One H200: peer behind the host link",
        "Two H200s, NVLink (NV18): against NCCL + cuBLAS": "Two H200s",
        "Two H200s: products by the library": "Two H200s: products by the library",
        "Two H200s, NVLink (NV18): small all-reduces": "Two H200s: small all-reduces",
        "One H200: a user's kernel, rewritten, against itself untouched": "One H200: a user's kernel",
        "One H200: products by specialised warps against cuBLAS": "One H200: products by specialised warps",
        "One H200: transfers over the host link behind products of specialised warps": (
            "One H200: host link behind specialised warps"
        ),
        "One H200: products of few tiles": "One H200: products of few tiles",
    }
    explained = {
        "Two H200s: layers of Llama 3.1 and Qwen2": "## Two H200s: layers",
        "Two H200s: small all-reduces, the second run": "second run",
        "One H200: small all-reduces of virtual ranks": "virtual ranks",
        "One H200: what a second buffer saves": "what a second buffer saves",
        "The host's time for an eager call": "eager call (the dispatcher's)",
        "Two H200s: beside flashinfer, kraken and Helion": "other people's",
    }
    assert set(timed) == {*covered, *explained}, "a new table of times: predict its rows, or say in MODEL.md why not"
    said = (BENCH / "MODEL.md").read_text(encoding="utf-8")
    assert all(reason in said for reason in explained.values())
    assert set(covered.values()) <= {r.table for r in found()}


@pytest.mark.parametrize(("fitted", "typical"), [(True, 0.06), (False, 0.22)])
def test_errors_stay_what_they_are(fitted, typical):
    assert model_errors.spread([r for r in found() if r.fitted is fitted])[0] < typical


def test_ratios_that_decide_are_right():
    """Fused against library: the model is on the same side of 1 wherever the measurement is 10 % away from it and the
    call has a thousand rows."""
    pairs = {}
    for r in found():
        if r.table == "Two H200s" and not r.case.endswith("M = 512"):
            pairs.setdefault(r.case, []).append(r)
    wrong = []
    for case, (library, module) in pairs.items():
        measured, predicted = library.measured / module.measured, library.predicted / module.predicted
        if abs(measured - 1) > 0.1 and (measured > 1) != (predicted > 1):
            wrong.append((case, round(measured, 2), round(predicted, 2)))
    assert wrong == []
