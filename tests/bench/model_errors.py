"""The error of the cost model against every measured row that it applies to, as the text of MODEL.md.

    python tests/bench/model_errors.py > tests/bench/MODEL.md

The rows are those of RESULTS.md, kept in recorded.json, and runs of multi_gpu.py, kept in multi_gpu.json; nothing is
measured here.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from earlier import one_buffer, tiles_of, widest_tiles
from host_rows import HOST, behind_warps_rows, carried_rows, gather_rows
from layer_rows import all_by_triton, layer_rows, narrow_rows, rankings, tuned_miss
from layer_rows import document as layers
from model_text import HEAD, WEAKEST
from multi_rows import WORLDS, document, predicted

from chunkdsl.cost.baseline import baseline, collective_us, library_gemm_us
from chunkdsl.cost.constants import machine
from chunkdsl.cost.predict import predict
from chunkdsl.cost.work import program_us
from chunkdsl.diagnostics import Report
from chunkdsl.lower.schedule import schedule_program
from chunkdsl.pipeline import check_source
from chunkdsl.plan.settled import Settled, Settlement
from chunkdsl.plan.tile_kernels import warp_shape, warp_tiles
from chunkdsl.plan.unroll import unroll
from chunkdsl.source import Source

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SIZES = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)  # KiB of the small all-reduces
FITTED_ROWS = (2048, 8192)  # of the two-GPU table; the GEMM table is fitted as a whole, the rest is held out
NVLINK = machine("h200", "nvlink")
EAGER = machine("h200", "nvlink", captured=False)


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


def schedule_of(path: Path, warps: bool = False):
    """By the fixed rules of lower/choices.py, which were in force when the rows were measured; but that copy engines
    pulled then what is gathered, behind a staging and an entry barrier, and that calls had one buffer above 1 MiB.
    `warps`: as soon as there were kernels of specialised warps; before, all tiles were the Triton kernel's."""
    source, rules = Source(path.name, path.read_text(encoding="utf-8")), {}
    program = check_source(source).program
    with one_buffer():
        schedule_program(program, Report(source), Settlement(rules=rules))
    gathers = (v for v, key in rules if key == "side" and v.kind == "all_gather")
    copied = (v for v in gathers if "copy_engine" in (v.policy.via, rules.get((v, "via"), ("",))[0]))
    pulled = {(v, "side"): Settled("pull", "pull", "") for v in copied}
    with one_buffer():
        made = schedule_program(program, Report(source), Settlement(pulled))
    return made if warps else all_by_triton(made)


def rows() -> Iterator[Row]:
    found = recorded()
    yield from gemm_rows(found["gemm"])
    yield from product_rows(found["warps"]["rows"])
    yield from few_rows(found["few"]["rows"])
    yield from two_gpu_rows(found["two"])
    yield from library_rows(found["library"])
    yield from host_rows(found)
    yield from ratio_rows(found["ratios"]["rows"])
    yield from rows_of_narrow()
    yield from small_rows(found["small"])
    yield from decode_rows(found["decode"])
    yield from user_rows(found["user"])
    yield from prototype_rows(found)


def gemm_rows(table) -> Iterator[Row]:
    schedule = schedule_of(HERE / "specs" / "local_gemm.chunk")
    for r in table:
        m, n, k = r["shape"]
        case = f"{m}x{n}x{k} {r['weight']}"
        total = played(schedule, "nt" if r["weight"] == "[N, K]" else "nn", 1, {"M": m, "N": n, "K": k}).total
        yield Row("One H200: GEMM", case, "cuBLAS", r["library_us"], library_gemm_us(m, n, k, "bf16", NVLINK), True)
        yield Row("One H200: GEMM", case, "module", r["library_us"] / r["ratio"], total, True)


def product_rows(table) -> Iterator[Row]:
    """Kernels alone, without the one that opens a call."""
    name, schedule = "One H200: products by specialised warps", schedule_of(HERE / "specs" / "local_gemm.chunk", True)
    for r in table:
        m, n, k = r["shape"]
        case = f"{m}x{n}x{k} {r['weight']}"
        yield Row(name, case, "cuBLAS", r["library_us"], library_gemm_us(m, n, k, "bf16", NVLINK), True)
        for what, made in (("Triton", all_by_triton(schedule)), ("warps", schedule)):
            said = played(made, r["weight"], 1, {"M": m, "N": n, "K": k}).total - NVLINK.kernels.kernel_us
            yield Row(name, case, what, r["library_us"] / r[what.lower()], said, what == "warps")


def few_rows(table) -> Iterator[Row]:
    """Kernels alone of calls that have few tiles, in all tiles that were measured."""
    name, schedule = "One H200: products of few tiles", schedule_of(HERE / "specs" / "local_gemm.chunk", True)
    for r in table:
        m, n, k = r["shape"]
        case, dims = f"{m}x{n}x{k}", {"M": m, "N": n, "K": k}
        yield Row(name, case, "cuBLAS", r["library_us"], library_gemm_us(m, n, k, "bf16", NVLINK), False)
        for columns, measured in r["us"].items():
            with tiles_of(int(columns)):
                said = played(schedule, "nt", 1, dims).total - NVLINK.kernels.kernel_us
            yield Row(name, case, f"warps, {columns} columns", measured, said, columns == "256")
        said = played(all_by_triton(schedule), "nt", 1, dims).total - NVLINK.kernels.kernel_us
        yield Row(name, case, "Triton", r["triton_us"], said, False)


def columns_of(schedule, m: int, n: int, k: int) -> int:
    """Of the tiles of specialised warps that a product runs with."""
    op, gpu, (rows, wide, _) = next(o for o in schedule.ops if o.name == "nt"), NVLINK.gpu, warp_tiles().tile
    (launch,) = (x for x in op.launches if x.products)
    tiles = -(-m // rows) * -(-n // wide)
    return warp_shape(launch, op, gpu.target, 1, tiles, n, k, gpu.multiprocessors).columns


def ratio_rows(table) -> Iterator[Row]:
    """NCCL + cuBLAS over ours, not microseconds: the run said no more."""
    for r in table:
        stem, name = r["op"].split(".")
        schedule = schedule_of(ROOT / "specs" / f"{stem}.chunk", True)
        op = next(o for o in schedule.ops if o.name == name)
        for i, measured in enumerate(r["ratios"]):
            dims = {"M": r["from"] << i}
            library = sum(stage.us for stage in baseline(op, 2, dims, NVLINK))
            with widest_tiles():
                said = library / played(schedule, name, 2, dims).total
            yield Row("Two H200s in one command: ratios", f"{r['op']}, M = {dims['M']}", "ratio", measured, said, False)


def rows_of_narrow() -> Iterator[Row]:
    """NCCL + cuBLAS over ours, as the ratios above; of layers of 512 rows, with gates open."""
    name = "Two H200s: layers of 512 rows: ratios"
    yield from (Row(name, case, "ratio", *both, False) for case, *both in narrow_rows(recorded()["narrow"]["rows"]))


def largest_miss(rows: int = 512) -> float:
    """Where the library is predicted to be the faster, from so many rows on: how much faster a fused call was, against
    the library, than predicted; of what was tuned and of the run of which there are ratios."""
    found = [r for r in ratio_rows(recorded()["ratios"]["rows"]) if int(r.case.split("M = ")[1]) >= rows]
    return max(tuned_miss(rows=rows), *(r.measured / r.predicted - 1 for r in found if r.predicted < 1))


def two_gpu_rows(table) -> Iterator[Row]:
    for r in table:
        stem, name = r["op"].split(".")
        schedule = schedule_of(ROOT / "specs" / f"{stem}.chunk")
        op = next(o for o in schedule.ops if o.name == name)
        dims, fitted = {"M": r["rows"]}, r["rows"] in FITTED_ROWS
        library = sum(stage.us for stage in baseline(op, 2, dims, NVLINK))
        total = played(schedule, name, 2, dims).total
        case = f"{r['op']}, M = {r['rows']}"
        yield Row("Two H200s", case, "NCCL + cuBLAS", r["library_us"], library, fitted)
        fitted |= r["op"] == "ag_gemm.qkv" and r["rows"] < 2048
        yield Row("Two H200s", case, "module", r["ours_us"], total, fitted)


def library_rows(table) -> Iterator[Row]:
    """Of each op and size all numbers of chunks a shard. `N` is what two_gpus_library.py calls the gathers with."""
    schedule = schedule_of(HERE / "specs" / "layers_library.chunk")
    for r in table:
        for chunks, measured in r["chunks_us"].items():
            total = played(schedule, f"{r['op']}_{chunks}", 2, {"M": r["rows"], "N": COLUMNS.get(r["op"], 16)}).total
            case, what = f"{r['op']}, M = {r['rows']}", f"{chunks} chunk{'s' * (chunks != '1')} a shard"
            yield Row("Two H200s: products by the library", case, what, measured, total, False)


COLUMNS = {"gather_4096": 28672, "gather_8192": 57344}


def host_rows(found: dict) -> Iterator[Row]:
    by_triton = schedule_of(HERE / "specs" / "host_overlap.chunk")
    by_warps, behind = schedule_of(HERE / "specs" / "host_overlap.chunk", True), found["host_warps"]["rows"]
    tables = {
        "One H200: peer behind the host link": gather_rows(found["host"], by_triton, played),
        "One H200: host link behind specialised warps": behind_warps_rows(behind, by_warps, played),
        "One H200: programs behind the host link": carried_rows(found["host_carried"]["rows"], played),
    }
    yield from (Row(name, *cells) for name, table in tables.items() for cells in table)


def played(schedule, name: str, world: int, dims: dict, machine=NVLINK):
    """One call of an op as predicted."""
    op = next(o for o in schedule.ops if o.name == name)
    return predict(op, unroll(schedule, op, world, [dims]), machine)


def small_rows(table) -> Iterator[Row]:
    """Fitted are the smallest payloads of each form."""
    name, forms = "Two H200s: small all-reduces", schedule_of(HERE / "specs" / "small_ar.chunk")
    decode = schedule_of(ROOT / "specs" / "decode_all_reduce.chunk")
    for r in table:
        case, size = f"{r['kib']} KiB", r["kib"] * 1024
        yield Row(name, case, "NCCL", r["nccl"], collective_us(size, 2, 2, NVLINK, adds=True), False)
        for what in ("barriers", "dual", "word", "marks", "rounds", "guess", "ar_norm"):
            if what in r:
                norm = what == "ar_norm"
                said = played(decode if norm else forms, what, 2, {"T": r["kib"] // (8 if norm else 4)}).total
                yield Row(name, case, SHOWN.get(what, what), r[what], said, r["kib"] == (8 if norm else 4))


SHOWN = {"rounds": "two_shot", "guess": "speculative", "ar_norm": "with residual and norm"}


def decode_rows(table) -> Iterator[Row]:
    """The difference that its 64 all-reduces make to a step of the loop, for one of them."""
    name = "Two H200s: one all-reduce of the decode loop"
    schedule = schedule_of(ROOT / "specs" / "decode_all_reduce.chunk")
    for r in table:
        case, size = f"{r['tokens']} tokens", r["tokens"] * 8192
        said = collective_us(size, 2, 2, NVLINK, adds=True)
        yield Row(name, case, "NCCL", (r["nccl_us"] - r["none_us"]) / 64, said, False)
        said = played(schedule, "ar", 2, {"T": r["tokens"]}).total
        yield Row(name, case, "ours, norm apart", (r["apart_us"] - r["none_us"]) / 64, said, False)


def user_rows(table) -> Iterator[Row]:
    """Rank 0 of 2 of `specs/user_gemm.chunk`, whose kernel has tiles of 128 x 128; the peer's rows are there already.
    Both launches are whole waves of its programs, worked out here: tracing the kernel takes too long for this table."""
    name, gpu, k = "One H200: a user's kernel", NVLINK.gpu, NVLINK.kernels
    for r in table:
        cols, depth = (7168, 4096) if r["op"] == "up" else (4096, 7168)
        waves = -(-(-(-r["rows"] // 128) * (cols // 128)) // gpu.multiprocessors)
        each = program_us(2 * 128 * 128 * depth, 2 * 256 * depth, "bf16", NVLINK)
        ours = k.first_tile_us + waves * (k.ticket_us + each + 1e-3 * 2 * 128 * 128 / k.store_gbs)
        case, measured = f"{r['op']}, M = {r['rows']}", r["untouched_us"]
        yield Row(name, case, "untouched", measured, k.kernel_us + waves * each, False)
        yield Row(name, case, "by ticket, with waits", measured / r["ratio"], k.kernel_us + ours, False)


def prototype_rows(found) -> Iterator[Row]:
    """What was measured before the compiler existed, by prototypes of the same structure."""
    name, local = "Before the compiler: one H200", schedule_of(HERE / "specs" / "local_gemm.chunk")
    for r in found["prototype_gemm"]:
        m, n, k = r["shape"]
        case = f"{m}x{n}x{k}"
        yield Row(name, case, "cuBLAS", r["library_us"], library_gemm_us(m, n, k, "bf16", NVLINK), False)
        total = played(local, "nt", 1, {"M": m, "N": n, "K": k}).total
        yield Row(name, case, "Triton, TMA", r["ours_us"], total, False)
    for r in found["prototype_host"]:
        m, n, k = r["shape"]
        p, gemm = fused("all_gather", r, HOST), library_gemm_us(m, n, k, "bf16", HOST)
        case = f"{m}x{n}x{k} behind the host link, {r['chunks']} chunks"
        yield Row(name, case, "one after the other", r["sequence_us"], p.communication + gemm, False)
        yield Row(name, case, "fused", r["fused_us"], p.total, False)
    yield from small_prototypes(found["prototype_small"])
    for r in found["prototypes"]:
        m, n, k = r["shape"]
        name = f"Before the compiler: two H200s, {'Gluon kernel, outside graphs' if r['eager'] else 'Triton kernel'}"
        gathers = r["collective"] == "all_gather"
        case, gemm = f"{r['collective']} {m}x{n}x{k}", library_gemm_us(m, n, k, "bf16", NVLINK)
        alone = collective_us(2 * m * (k if gathers else n), 2, 1, NVLINK, adds=not gathers)
        yield Row(name, case, "cuBLAS", r["gemm_us"], gemm, False)
        yield Row(name, case, "NCCL", r["collective_us"], alone, False)
        yield Row(name, case, "NCCL + cuBLAS", r["library_us"], alone + gemm, False)
        total = fused(r["collective"], r, EAGER if r["eager"] else NVLINK, r["eager"]).total
        yield Row(name, case, "prototype", r["ours_us"], total, False)


def small_prototypes(table) -> Iterator[Row]:
    name = "Before the compiler: two H200s, small all-reduces"
    forms = schedule_of(HERE / "specs" / "small_ar.chunk")
    for r in table:
        case = f"{r['kib']} KiB"
        yield Row(name, case, "NCCL", r["nccl"], collective_us(r["kib"] * 1024, 2, 2, NVLINK, adds=True), False)
        for what in ("barriers", "dual", "word"):
            if what in r:
                said = played(forms, what, 2, {"T": r["kib"] // 4}).total
                yield Row(name, case, f"prototype, {what}", r[what], said, False)


@cache
def spec_of(collective: str, m: int, n: int, k: int, chunks: int):
    """The prototype's op in the language; n and k are what a rank computes."""
    head = f"mesh tp[2] over nvlink\ndim M = 1..{m}\n"
    if collective == "all_gather":
        text = f"""{head}tensor x : bf16[M @ tp, {k}]
tensor w : bf16[{2 * n} @ tp, {k}]
op f(x, w) -> y {{ y = all_gather(x) @ w.T with {{ chunk = {chunks} per shard, via = copy_engine, side = pull }} }}
"""
    else:
        text = f"""{head}tensor h : bf16[M, {2 * k} @ tp]
tensor w : bf16[{n}, {2 * k} @ tp]
op f(h, w) -> y {{ y = reduce_scatter(h @ w.T, M) with {{ chunk = {chunks} per shard }} }}
"""
    with one_buffer():
        return check_source(Source("prototype.chunk", text)).schedule


def fused(collective: str, r: dict, machine, warps: bool = False):
    m = r["shape"][0]
    made = spec_of(collective, *r["shape"], r["chunks"])
    return played(made if warps else all_by_triton(made), "f", 2, {"M": m}, machine)


def spread(found: list[Row]) -> tuple[float, float]:
    """(root mean square, largest) of the errors, as factors minus one."""
    logs = [math.log(r.predicted / r.measured) for r in found]
    return math.exp(math.sqrt(sum(e * e for e in logs) / len(logs))) - 1, max((r.error for r in found), key=abs)



def render(found: list[Row]) -> str:
    lines = [HEAD, "| rows | number | typical error | largest |", "| --- | --- | --- | --- |"]
    held = [r for r in found if not r.fitted]
    small = [r for r in held if r.table == "Two H200s: small all-reduces" and r.what != "NCCL"]
    groups = {
        "fitted": [r for r in found if r.fitted],
        "held out": held,
        "held out, modules on two H200s": [r for r in held if (r.table, r.what) == ("Two H200s", "module")],
        "held out, products by the library": [r for r in held if r.table == "Two H200s: products by the library"],
        "held out, small all-reduces of modules": small,
        "held out, prototypes and libraries before the compiler": [r for r in held if r.table.startswith("Before")],
    }
    for name, group in groups.items():
        typical, largest = spread(group)
        lines.append(f"| {name} | {len(group)} | {100 * typical:.0f} % | {100 * largest:+.0f} % |")
    lines.append(WEAKEST)
    for table in dict.fromkeys(r.table for r in found):
        lines += [f"## {table}", "", "| case | what | measured | predicted | error | fitted |", f"|{' --- |' * 6}"]
        for r in (r for r in found if r.table == table):
            fitted = "yes" if r.fitted else ""
            numbers = f"{digits(r.measured)} | {digits(r.predicted)} | {100 * r.error:+.0f} %"
            lines.append(f"| {r.case} | {r.what} | {numbers} | {fitted} |")
        lines.append("")
    return "\n".join(lines)


def digits(us: float) -> str:
    return f"{us:.2f}" if us < 20 else f"{us:.0f}"


def runs() -> dict:
    """By number of GPUs, the JSON of tests/bench/multi_gpu.py there."""
    return json.loads((HERE / "multi_gpu.json").read_text(encoding="utf-8"))


def whole(found: list[Row]) -> str:
    """The text of MODEL.md."""
    said = recorded()["layers"]
    text = f"{render(found)}\n{layers(list(layer_rows(said['rows'])), said, rankings())}\n"
    return text + document(predicted(sorted({*WORLDS, *map(int, runs())})), runs())


if __name__ == "__main__":
    sys.stdout.write(whole(list(rows())))
