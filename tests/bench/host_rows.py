"""What the cost model says of transfers over the host link that a product hides. Their products were measured on a
cooler chip than the model stands for, so these rows are predicted at the clock of their run: that at which cuBLAS took
what it took there. Read by model_errors.py; nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

from earlier import one_buffer
from layer_rows import all_by_triton

from chunkdsl.cost.constants import Machine, machine
from chunkdsl.cost.library import library_gemm_us
from chunkdsl.pipeline import check_source
from chunkdsl.plan.schedule import Schedule
from chunkdsl.source import Source

HOST = machine("h200", "pcie")
DIMS = {"M": 8192}
SPEC = """mesh tp[2] over pcie
dim M = 1..8192
tensor a : bf16[M, 28672 @ tp]
tensor b : bf16[8192, 28672 @ tp]
policy as_it_was {{ route = swizzle, side = push, tile = 128x256x64, add = behind }}
op f(a, b) -> y {{ y = reduce_scatter(a @ b.T, M) with as_it_was {{ place = {}, via = {}, chunk = {} per shard }} }}
"""
FITTED = {  # what of data/links.toml
    ("warps", "own_sms(2)", "tma"),  # tma_program_gbs
    ("warps", "own_sms(2)", "ldst"),  # program_gbs
    ("triton", "own_sms(4)", "ldst"),  # crowding
    ("warps", "own_sms(4)", "ldst"),
}
Play = Callable[[Schedule, str, int, dict, Machine], object]
Cells = tuple[str, str, float, float, bool]  # case, what, measured, predicted, fitted


def at_the_clock_of(library_us: float, on: Machine = HOST) -> Machine:
    """The machine of a run in which cuBLAS took so long for 8192 x 8192 x 14336, or 8192 x 14336 x 8192."""
    faster = library_gemm_us(8192, 8192, 14336, "bf16", on) / library_us
    gflops = {dtype: rate * faster for dtype, rate in on.gpu.gflops.items()}
    return replace(on, gpu=replace(on.gpu, gflops=gflops, cache_gbs=on.gpu.cache_gbs * faster))


def gather_rows(table: list[dict], schedule: Schedule, play: Play) -> Iterator[Cells]:
    for r in table:
        p = play(schedule, f"c{r['chunks']}", 2, DIMS, HOST)
        fused = play(schedule, f"c{r['chunks']}", 2, DIMS, at_the_clock_of(r["library_us"])).total
        gemm = library_gemm_us(8192, 14336, 8192, "bf16", HOST)
        case = f"{r['chunks']} chunks a shard"
        yield case, "copy", r["copy_us"], p.communication, False
        yield case, "cuBLAS", r["library_us"], gemm, False
        yield case, "one after the other", r["sequence_us"], p.communication + gemm, False
        yield case, "fused", r["fused_us"], fused, False


def behind_warps_rows(table: list[dict], schedule: Schedule, play: Play) -> Iterator[Cells]:
    """All-gather + GEMM (c), GEMM + reduce-scatter by tiles (r), programs (t), the library (l)."""
    for r in table:
        said = play(schedule, r["op"], 2, DIMS, at_the_clock_of(r["library_us"])).total
        yield r["op"], "fused", r["fused_us"], said, r["op"] == "r8"  # warp_stores


def carried_rows(table: list[dict], play: Play) -> Iterator[Cells]:
    """GEMM + reduce-scatter by tiles and by programs, of both kernels."""
    for r in table:
        on = at_the_clock_of(r["library_us"])
        said = play(schedule_of(r["kernel"], r["place"], r["via"], r["chunks"]), "f", 2, DIMS, on).total
        case = f"{r['kernel']}, {r['place']}, {r['via']}, {r['chunks']} chunks a shard"
        yield case, "fused", r["fused_us"], said, (r["kernel"], r["place"], r["via"]) in FITTED


@cache
def schedule_of(kernel: str, place: str, via: str, chunks: int) -> Schedule:
    with one_buffer():
        made = check_source(Source("carried.chunk", SPEC.format(place, via, chunks))).schedule
    return all_by_triton(made) if kernel == "triton" else made
