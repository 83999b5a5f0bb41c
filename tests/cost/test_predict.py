"""Totals of predictions, and that what we ship overlaps."""

from dataclasses import replace
from pathlib import Path

import pytest
from plans import KINDS, plan_of, predicted

from chunkdsl.cost.baseline import baseline, library_gemm_us
from chunkdsl.cost.constants import gpu_names, machine
from chunkdsl.cost.predict import predict
from chunkdsl.pipeline import timeline

ROOT = Path(__file__).parent.parent.parent
SPECS = sorted(path.stem for path in (ROOT / "specs").glob("*.chunk"))
H200 = machine("h200", "nvlink")


@pytest.mark.parametrize(("stem", "world"), [
    ("ag_gemm", 2), ("ag_gemm", 8), ("gemm_ar", 4), ("gemm_ar", 8), ("gemm_rs", 2), ("gemm_rs", 8), ("tp_mlp", 4),
    ("tp_mlp_swiglu", 2),
])  # fmt: skip
def test_what_we_ship_overlaps(stem, world):
    """Much of the shorter of compute and communication vanishes behind the longer; on few ranks that beats the
    library. Of an all-reduce the second half, which hands finished sums out, has only the sums to hide behind."""
    checked, (p,) = timeline(str(ROOT / "specs" / f"{stem}.chunk"), world, "h200")
    assert not checked.report.failed
    assert p.overlap > (0.4 if stem == "gemm_ar" else 0.5), (p.total, p.compute, p.communication)
    assert p.speedup > 1.1 or world == 8


def test_a_plan_that_does_not_overlap_is_seen():
    """The same plan with every tile waiting for every chunk of its rank: one after the other."""
    op, plan = plan_of(KINDS["copies"].replace("[4096 @", "[16384 @").replace("2048, 4096", "2048, 16384"), 4, 8192)
    tiles = [t for t in plan.tasks if t.kind == "tile"]
    everything = {r: tuple({s for t in tiles if t.rank == r for s in t.waits}) for r in range(4)}
    torn = [replace(t, waits=everything[t.rank]) if t.kind == "tile" else t for t in plan.tasks]
    assert predict(op, replace(plan, tasks=tuple(torn)), H200).overlap < 0.2 < 0.6 < predict(op, plan, H200).overlap


@pytest.mark.parametrize("gpu", gpu_names())
def test_every_gpu_predicts(gpu):
    p = predicted(KINDS["copies"], on=machine(gpu))
    assert 10 < p.total < 10_000 and p.baseline > 0


def test_one_rank_has_nothing_to_hide():
    p = predicted(KINDS["push"], world=1)
    assert p.communication < 30 and p.hidden >= 0 and all(s.us == 0 for s in p.stages if s.kind == "collective")


def test_the_baseline_is_the_fallback_in_order():
    p = predicted(KINDS["copies"])
    assert [s.kind for s in p.stages] == ["collective", "product"]
    assert [s.kind for s in predicted(KINDS["two shots"]).stages] == ["product", "collective"]
    assert sum(s.us for s in baseline(p.op, 4, {"M": 4096}, H200)) == p.baseline
    assert p.stages[1].us == library_gemm_us(4096, 1024, 2048, "bf16", H200)


def test_a_library_picks_smaller_tiles_for_few_rows():
    few = library_gemm_us(128, 4096, 4096, "bf16", H200)
    assert few < 0.7 * library_gemm_us(128 * 16, 4096, 4096, "bf16", H200)
