"""What tests/bench/multi_gpu.py measures, what the cost model says of it, and the tables. Nothing is measured here.

A row is one op at one size: `ag_gemm.qkv` with M = 2048 rows, or `small_ar.word` with T payload rows of 4 KiB.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FOLDERS = ("specs", "tests/gpu/specs", "tests/bench/specs")
WORLDS = (4, 8)  # of the predictions that MODEL.md prints
ROWS = (512, 1024, 2048, 4096, 8192, 16384)
KIB = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
MEASURED = {  # op: (run-time dim, its sizes), as in RESULTS.md
    "ag_gemm.qkv": ("M", ROWS),
    "gemm_rs.out_proj": ("M", ROWS),
    "gemm_ar.down": ("M", ROWS[:-1]),
    "small_ar.word": ("T", tuple(n // 4 for n in KIB)),
    "small_ar.rounds": ("T", tuple(n // 4 for n in KIB)),
}
PEERS = {  # what torch has for it; where there are two, the faster one counts
    "ag_gemm": "fused_all_gather_matmul",
    "gemm_rs": "fused_matmul_reduce_scatter",
    "gemm_ar": "mm, then one_shot or two_shot all-reduce",
    "small_ar": "one_shot or two_shot all-reduce",
}
OTHERS = {  # calls of other peers, by what is in specs; the first word is the peer's; other_peers.py makes them
    "small_ar": (
        "flashinfer one_shot", "flashinfer two_shot", "flashinfer vllm", "kraken one_shot", "kraken two_shot",
        "helion one_shot",
    ),
    "gemm_ar": ("flashinfer", "kraken"),
    "gemm_rs": ("kraken fused", "kraken copy engine", "helion"),
    "ag_gemm": ("flashinfer", "kraken", "kraken with 4 SMs free", "helion"),
}  # fmt: skip
BESIDE = {  # the sizes of rows beside other peers; ours at small sizes is `word`, which is the faster one there
    **dict.fromkeys(("ag_gemm.qkv", "gemm_rs.out_proj", "gemm_ar.down"), (512, 2048, 8192)),
    **dict.fromkeys(("small_ar.word", "small_ar.rounds"), (2, 16, 64, 256)),
}
ONLY_ALONE = ("small_ar.rounds",)


def spec_path(stem: str) -> Path:
    return next(p for p in (ROOT / f"{folder}/{stem}.chunk" for folder in FOLDERS) if p.exists())


def shown(op: str, size: int) -> str:
    """The size of a row, for a table."""
    return f"{4 * size} KiB" if op.startswith("small_ar") else f"M = {size}"


# ---- the cost model


@cache
def checked_spec(stem: str):
    """The schedule of a spec as `chunkdsl build` settles it."""
    from chunkdsl import pipeline

    return pipeline.read_one(str(spec_path(stem))).schedule


def predicted(worlds: Iterable[int], rows: Mapping = MEASURED) -> dict[str, dict[str, list[float]]]:
    """By world size and row ("ag_gemm.qkv 2048"): microseconds of the library's way and of the module, in a graph.
    Without the rows of specs that do not serve that world size."""
    from chunkdsl.check.worlds import served
    from chunkdsl.cost.machines import machine_for
    from chunkdsl.cost.predict import predict
    from chunkdsl.plan.unroll import unroll

    found: dict[str, dict[str, list[float]]] = {}
    for world in worlds:
        of_world = found[str(world)] = {}
        for key, (dim, sizes) in rows.items():
            stem, name = key.split(".")
            made = checked_spec(stem)
            op = next(o for o in made.ops if o.name == name)
            for size in sizes if served(made, world) else ():
                said = predict(op, unroll(made, op, world, [{dim: size}]), machine_for(made, op, {dim: size}))
                of_world[f"{key} {size}"] = [round(said.baseline, 2), round(said.total, 2)]
    return found


# ---- tables


def digits(us: float | str | None) -> str:
    if not isinstance(us, (int, float)):
        return "-"
    return f"{us:.2f}" if us < 20 else f"{us:.0f}"


def ratio(a: float | None, b: float | None) -> str:
    return f"{a / b:.2f}" if a and b else "-"


def error(said: float | None, measured: float | None) -> str:
    return f"{100 * (said / measured - 1):+.0f} %" if said and measured else "-"


def measured_rows(run: Mapping) -> dict[str, Mapping]:
    """By row, what a run found where it was measured."""
    done = (c for c in run["cases"] if c["kind"] == "measure" and c["how"] == "done")
    return {f"{c['op']} {c['size']}": c["found"] for c in done}


def torch_us(times: Mapping) -> float | None:
    """The fastest of torch's ops that were timed."""
    return min((us for name, us in times.items() if name.startswith("torch ") and us), default=None)


def table(run: Mapping, predictions: Mapping[str, list[float]]) -> str:
    """The rows of one run, in graphs and eagerly, with what the model says of the graphs."""
    columns = (
        "op", "size", "NCCL + cuBLAS us", "torch us", "ours us", "over NCCL", "over torch", "eager: NCCL + cuBLAS",
        "eager: torch", "eager: ours", "predicted NCCL + cuBLAS", "error", "predicted ours", "error",
    )  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    found = measured_rows(run)
    for key, (_, sizes) in MEASURED.items():
        for size in sizes:
            row = found.get(f"{key} {size}")
            if row is None:
                continue  # bits() says why
            graph, eager = row.get("graph", {}), row.get("eager", {})
            library, ours, torch = graph.get("library"), graph.get("ours"), torch_us(graph)
            said = predictions.get(f"{key} {size}", (None, None))
            cells = [key, shown(key, size), *map(digits, (library, torch, ours)), ratio(library, ours)]
            cells += [ratio(torch, ours), *map(digits, (eager.get("library"), torch_us(eager), eager.get("ours")))]
            cells += [digits(said[0]), error(said[0], library), digits(said[1]), error(said[1], ours)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def table_of_others(run: Mapping) -> str:
    """Every call that a run has beside ours, row by row: its time and that of ours measured in turn with it, in graphs
    and eagerly, how far its result is from ours; then why calls were refused."""
    columns = ("op", "size", "peer", "us", "ours us", "over ours", "eager us", "ours", "over ours", "apart from ours")
    lines = [f"Peers: {', '.join(f'{name} {v}' for name, v in run['peers'].items())}.", ""]
    lines += [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
    refused: dict[tuple[str, str], list[str]] = {}
    rows = [c for c in run["cases"] if c["kind"] in ("measure", "beside")]
    for c in sorted(rows, key=lambda c: ([*MEASURED].index(c["op"]), c["size"])):  # stable: as they were done
        found, size = c["found"], shown(c["op"], c["size"])
        graph, eager, apart = (found.get(name, {}) for name in ("graph", "eager", "apart"))
        for name in (name for name in eager if name != "ours"):
            cells = [c["op"], size, "NCCL + cuBLAS" if name == "library" else name]
            for times in (graph, eager):
                us, ours = times.get(name), times.get("ours")
                cells += [digits(us), digits(ours), ratio(us, ours)]
            cells.append(f"{apart[name]:.1e}" if name in apart else "-")
            lines.append(f"| {' | '.join(cells)} |")
        for name, why in found.get("refused", {}).items():
            refused.setdefault((f"{c['op'].split('.')[0]}, {name}", why), []).append(size)
    said = [f"- {what} ({', '.join(sizes)}): {why}" for (what, why), sizes in refused.items()]
    return "\n".join([*lines, *([""] if said else []), *said])


def heading(run: Mapping) -> str:
    """What a run ran on, in one sentence."""
    said = run["machine"]
    where = f"{said['gpus']} x {said['name']}" if said["gpus"] else said["name"]
    versions = [f"{k} {said[k]}" for k in ("torch", "triton", "nccl") if k in said]
    return ", ".join([run["date"], f"{run['world']} ranks", where, *versions]) + "."


def bits(run: Mapping) -> str:
    """The checks of a run: how many ops had the bits of `exact`, and every one that had not or was not run."""
    checks = [c for c in run["cases"] if c["kind"] == "check" and c["how"] != "not served"]
    right = [c for c in checks if c["how"] == "done" and not c["found"]["wrong"]]
    lines = [f"Bits: {len(right)} of {len(checks)} ops that run on {run['world']} ranks gave the bits of `exact`.", ""]
    for c in run["cases"]:
        if c["how"] != "done":
            lines.append(f"- {c['name']}: {c['how']}: {c['why']}")
        elif c["found"].get("wrong"):
            lines.append(f"- {c['name']}: WRONG: {c['found']['wrong']}")
    return "\n".join(lines).rstrip()


def document(predictions: Mapping[str, Mapping[str, list[float]]], runs: Mapping[str, Mapping]) -> str:
    """The section of MODEL.md, by world size: what a recorded run found there, else what the model says."""
    lines = ["## Several H200s: `multi_gpu.py`"]
    for world, run in runs.items():
        lines += ["", f"### {world} GPUs, measured", "", heading(run), "", bits(run), ""]
        lines += [table(run, predictions.get(world, {}))]
    missing = [world for world in predictions if world not in runs]
    if missing:
        named = " and ".join(missing)
        lines += ["", f"### {named} GPUs, predicted", ""]
        lines += [f"**Predictions, not measurements**: {NOT_RUN.format(' and on '.join(missing))}", ""]
        columns = ("op", "size", "GPUs", "NCCL + cuBLAS, predicted", "module, predicted", "ratio, predicted")
        lines += [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
        for key, (_, sizes) in MEASURED.items():
            for size, world in product(sizes, missing):
                library, ours = predictions[world][f"{key} {size}"]
                cells = [key, shown(key, size), world, digits(library), digits(ours), ratio(library, ours)]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


NOT_RUN = """nothing has been run on {} GPUs so far.
`tests/bench/multi_gpu.py` is the program that does. Its JSON, added to `multi_gpu.json` under the number of GPUs, puts
its table in the place of these predictions, with their errors."""
