"""The error of the cost model against every measured row that it applies to, as the text of MODEL.md.

    python tests/bench/model_errors.py > tests/bench/MODEL.md

The rows are those of RESULTS.md, kept in recorded.json; nothing is measured here.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from chunkdsl.cost.baseline import baseline, collective_us, library_gemm_us
from chunkdsl.cost.constants import machine
from chunkdsl.cost.predict import predict
from chunkdsl.pipeline import check_source
from chunkdsl.plan.unroll import unroll
from chunkdsl.source import Source

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FITTED_ROWS = (2048, 8192)  # of the two-GPU table; the GEMM table is fitted as a whole, the rest is held out
NVLINK, HOST = machine("h200", "nvlink"), machine("h200", "pcie")


@dataclass(frozen=True)
class Row:
    """One measured time and what the model says, in microseconds."""

    table: str
    case: str
    what: str
    measured: float
    predicted: float
    fitted: bool

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def recorded() -> dict:
    return json.loads((HERE / "recorded.json").read_text(encoding="utf-8"))


def schedule_of(path: Path):
    """By the fixed rules of lower/choices.py, which were in force when the rows were measured."""
    return check_source(Source(path.name, path.read_text(encoding="utf-8"))).schedule


def rows() -> Iterator[Row]:
    found = recorded()
    yield from gemm_rows(found["gemm"])
    yield from two_gpu_rows(found["two"])
    yield from host_rows(found["host"])
    yield from part_rows(found["parts"])


def gemm_rows(table) -> Iterator[Row]:
    schedule = schedule_of(HERE / "specs" / "local_gemm.chunk")
    for r in table:
        m, n, k = r["shape"]
        op = schedule.ops[0 if r["weight"] == "[N, K]" else 1]
        case = f"{m}x{n}x{k} {r['weight']}"
        total = predict(op, unroll(schedule, op, 1, [{"M": m, "N": n, "K": k}]), NVLINK).total
        yield Row("One H200: GEMM", case, "cuBLAS", r["library_us"], library_gemm_us(m, n, k, "bf16", NVLINK), True)
        yield Row("One H200: GEMM", case, "module", r["library_us"] / r["ratio"], total, True)


def two_gpu_rows(table) -> Iterator[Row]:
    for r in table:
        stem, name = r["op"].split(".")
        schedule = schedule_of(ROOT / "specs" / f"{stem}.chunk")
        op = next(o for o in schedule.ops if o.name == name)
        dims, fitted = {"M": r["rows"]}, r["rows"] in FITTED_ROWS
        library = sum(stage.us for stage in baseline(op, 2, dims, NVLINK))
        total = predict(op, unroll(schedule, op, 2, [dims]), NVLINK).total
        case = f"{r['op']}, M = {r['rows']}"
        yield Row("Two H200s", case, "NCCL + cuBLAS", r["library_us"], library, fitted)
        yield Row("Two H200s", case, "module", r["ours_us"], total, fitted)


def host_rows(table) -> Iterator[Row]:
    schedule = schedule_of(HERE / "specs" / "host_overlap.chunk")
    for r in table:
        op = next(o for o in schedule.ops if o.name == f"c{r['chunks']}")
        p = predict(op, unroll(schedule, op, 2, [{"M": 8192}]), HOST)
        gemm = library_gemm_us(8192, 14336, 8192, "bf16", HOST)
        case = f"{r['chunks']} chunks a shard"
        for what, measured, said in (
            ("copy", r["copy_us"], p.communication),
            ("cuBLAS", r["library_us"], gemm),
            ("one after the other", r["sequence_us"], p.communication + gemm),
            ("fused", r["fused_us"], p.total),
        ):
            yield Row("One H200: peer behind the host link", case, what, measured, said, False)


def part_rows(table) -> Iterator[Row]:
    for r in table:
        m, n, k = r["shape"]
        gathers = r["collective"] == "all_gather"
        size = 2 * m * (k if gathers else n)
        gbs = NVLINK.link.library_gbs if gathers else NVLINK.link.library_reduce_gbs
        case = f"{m}x{n}x{k}"
        if gathers:
            said = library_gemm_us(m, n, k, "bf16", NVLINK)
            yield Row("Two H200s: before the compiler", case, "cuBLAS", r["gemm_us"], said, False)
        what = f"NCCL {r['collective']}"
        said = collective_us(size, 2, 1, gbs, NVLINK)
        yield Row("Two H200s: before the compiler", case, what, r["collective_us"], said, False)


def spread(found: list[Row]) -> tuple[float, float]:
    """(root mean square, largest) of the errors, as factors minus one."""
    logs = [math.log(r.predicted / r.measured) for r in found]
    return math.exp(math.sqrt(sum(e * e for e in logs) / len(logs))) - 1, max((r.error for r in found), key=abs)


MODULES = ("Two H200s", "module")
HEAD = """# The cost model against measurements

Written by `python tests/bench/model_errors.py > tests/bench/MODEL.md` from `recorded.json`, which holds the rows of
[RESULTS.md](RESULTS.md) and a few taken before the compiler existed; a test writes it again and compares. Times in us.
Where they disagree the measurement is right.

Fitted were, on the rows marked "yes" (all GEMMs of one H200; of the two-GPU table the rows with M = 2048 and 8192):
`inner_loop`, `library_loop`, `memory` of the h200; `library`, `library_reduce`, `tile_stores` of nvlink; `kernel_us`,
`first_tile_us`, `ticket_us`, `store_gbs`, `library_gemm_us`. All other rows are held out. Figures of other GPUs than
the h200 and of more than two ranks are data sheets and assumptions: **no row is of more than two GPUs**. What is said
of 4 and 8 ranks rests on its form alone. Nor does it know clocks: under its power cap an H200 drifts by 10 %
from one run to the next, and the rows come from several runs.
"""
WEAKEST = """
Weakest: NCCL's all-reduce of few rows, which is slower than the model says; GEMMs behind the host link, measured on a
cooler chip; NCCL before the compiler, measured outside graphs.
"""


def render(found: list[Row]) -> str:
    lines = [HEAD, "| rows | number | typical error | largest |", "| --- | --- | --- | --- |"]
    groups = {
        "fitted": [r for r in found if r.fitted],
        "held out": [r for r in found if not r.fitted],
        "held out, modules on two H200s": [r for r in found if not r.fitted and (r.table, r.what) == MODULES],
    }
    for name, group in groups.items():
        typical, largest = spread(group)
        lines.append(f"| {name} | {len(group)} | {100 * typical:.0f} % | {100 * largest:+.0f} % |")
    lines.append(WEAKEST)
    for table in dict.fromkeys(r.table for r in found):
        lines += [f"## {table}", "", "| case | what | measured | predicted | error | fitted |", f"|{' --- |' * 6}"]
        for r in (r for r in found if r.table == table):
            fitted = "yes" if r.fitted else ""
            numbers = f"{r.measured:.0f} | {r.predicted:.0f} | {100 * r.error:+.0f} %"
            lines.append(f"| {r.case} | {r.what} | {numbers} | {fitted} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(render(list(rows())))
