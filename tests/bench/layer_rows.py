"""What the cost model says of the layers that two_gpus.py measures, and of what `chunkdsl tune` measured of them: how
far off it is, by class, and how well it ranks the settings of an op. Read by model_errors.py; nothing is measured here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log
from pathlib import Path
from statistics import mean, median

from earlier import one_buffer, widest_tiles
from multi_rows import checked_spec, digits, error

from chunkdsl.cost.baseline import baseline
from chunkdsl.cost.choose import trials_of
from chunkdsl.cost.constants import Machine, machine, margin
from chunkdsl.cost.predict import ending
from chunkdsl.cost.simulate import simulate
from chunkdsl.diagnostics import Report
from chunkdsl.lower.schedule import schedule_program
from chunkdsl.pipeline import check_source
from chunkdsl.plan.schedule import OpSchedule, Schedule
from chunkdsl.plan.unroll import unroll
from chunkdsl.source import Source
from chunkdsl.tune.evidence import load
from chunkdsl.tune.scores import compared_sizes, table
from chunkdsl.tune.space import Space, schedule_of

HERE = Path(__file__).resolve().parent
NVLINK = machine("h200", "nvlink")
STEMS = {"gather": "layers_ag", "scatter": "layers_rs", "reduce": "layers_ar"}
LARGE = 2048  # rows from which on classes are told apart


@dataclass(frozen=True)
class LayerRow:
    """One recorded layer and what the model says of it. `measured` and `predicted` have microseconds by what was timed:
    `library` (NCCL + cuBLAS), `ours` and `triton` in graphs of 16 ms, `library4` and `ours4` in those of 4 ms; `ours`
    only of rows that ran fused."""

    op: str
    model: str
    rows: int
    measured: dict[str, float]
    predicted: dict[str, float]

    def error(self, what: str) -> float:
        return self.predicted[what] / self.measured[what] - 1


def by_triton(op: OpSchedule) -> OpSchedule:
    """The op with Triton's kernel for all its tiles, as `m.warps = 0` has it, and as everything was at first."""
    return replace(op, launches=tuple(replace(n, why_triton=n.why_triton or "by hand") for n in op.launches))


def all_by_triton(made: Schedule) -> Schedule:
    return replace(made, ops=tuple(map(by_triton, made.ops)))


def call_us(made: Schedule, op: OpSchedule, dims: dict, on: Machine = NVLINK) -> float:
    """Microseconds of one call on two ranks."""
    return ending(simulate(op, unroll(made, op, 2, [dims]), on))


def library_us(op: OpSchedule, dims: dict, on: Machine = NVLINK) -> float:
    return sum(stage.us for stage in baseline(op, 2, dims, on))


@cache
def measured_spec(stem: str) -> Schedule:
    """The schedule of a spec, with the buffers that its calls had when they were measured."""
    with one_buffer():
        return checked_spec.__wrapped__(stem)


def layer_rows(found: list[dict], on: Machine = NVLINK) -> Iterator[LayerRow]:
    """The recorded layers, with what the modules are built with: what was tuned."""
    for r in found:
        made = measured_spec(STEMS[r["op"].partition("_")[0]])
        op = next(o for o in made.ops if o.name == r["op"])
        dims = {"M": r["rows"]} | ({"N": r["columns"]} if "columns" in r else {})
        library = library_us(op, dims, on)
        measured = {"library": r["us16"]["library"], "library4": r["us4"]["library"]}
        predicted = {"library": library, "library4": library}
        if r["fused"] == "both":  # else it is the fallback that was measured
            with widest_tiles():
                ours, triton = call_us(made, op, dims, on), call_us(made, by_triton(op), dims, on)
            measured |= {"ours": r["us16"]["ours"], "triton": r["us16"]["triton"], "ours4": r["us4"]["ours"]}
            predicted |= {"ours": ours, "ours4": ours, "triton": triton}
        yield LayerRow(r["op"], r["model"], r["rows"], measured, predicted)


def narrow_rows(found: list[dict]) -> Iterator[tuple[str, float, float]]:
    """(what, NCCL + cuBLAS over ours, the same as predicted) of calls of 512 rows in the tiles that they have."""
    for r in found:
        made = measured_spec(STEMS[r["op"].partition("_")[0]])
        op = next(o for o in made.ops if o.name == r["op"])
        dims = {"M": 512} | ({"N": r["columns"]} if "columns" in r else {})
        case = ", ".join([r["op"], *(f"{name} = {size}" for name, size in dims.items())])
        yield case, r["ratio"], library_us(op, dims) / call_us(made, op, dims)


def classes(rows: list[LayerRow]) -> dict[str, list[float]]:
    """Errors by class."""
    names = {"gather": "all-gather + GEMM", "scatter": "GEMM + reduce-scatter", "reduce": "GEMM + all-reduce"}
    found: dict[str, list[float]] = {}
    for kind, name in names.items():
        mine = [r for r in rows if r.op.startswith(kind)]
        large = [r for r in mine if r.rows >= LARGE]
        found[f"{name}, from {LARGE} rows on"] = errors(large, "ours")
        found[f"{name}, from {LARGE} rows on, graphs of 4 ms"] = errors(large, "ours4")
        found[f"{name}, from {LARGE} rows on, Triton's kernel"] = errors(large, "triton")
        found[f"{name}, NCCL + cuBLAS"] = errors(mine, "library")
    found["512 rows"] = errors([r for r in rows if r.rows < LARGE], "ours")
    return found


def errors(rows: list[LayerRow], what: str) -> list[float]:
    return [r.error(what) for r in rows if what in r.measured]


# ---- what was tuned


@dataclass(frozen=True)
class Ranking:
    """The settings of an op that were measured, by geometric mean over the sizes at which they were compared: of the
    time against the library's in the same run, and of the predicted time."""

    op: str
    settings: tuple[str, ...]
    measured: tuple[float, ...]
    predicted: tuple[float, ...]

    @property
    def correlation(self) -> float:
        """Of ranks (Spearman)."""
        a, b = ranks(self.measured), ranks(self.predicted)
        spread = [x - mean(a) for x in a], [x - mean(b) for x in b]
        top = sum(x * y for x, y in zip(*spread, strict=True))
        return top / (sum(x * x for x in spread[0]) * sum(y * y for y in spread[1])) ** 0.5

    @property
    def best(self) -> int:
        return min(range(len(self.measured)), key=self.measured.__getitem__)

    @property
    def taken(self) -> int:
        """The one that is predicted fastest."""
        return min(range(len(self.predicted)), key=self.predicted.__getitem__)

    @property
    def lost(self) -> float:
        """By how much what is predicted fastest was slower than the best."""
        return self.measured[self.taken] / self.measured[self.best] - 1

    @property
    def behind(self) -> float:
        """By how much the best is predicted slower than what is predicted fastest: pruning must allow for it."""
        return self.predicted[self.best] / self.predicted[self.taken] - 1


def ranks(values: tuple[float, ...]) -> list[float]:
    """The rank of each; those that are within a thousandth of each other share theirs."""
    return [mean([sum(w < v * 0.999 for w in values), sum(w <= v * 1.001 for w in values) - 1]) for v in values]


@cache
def tuned_settings() -> tuple[tuple[Schedule, str, str, OpSchedule, dict, float, float, bool], ...]:
    """(schedule, op, setting, its schedule, sizes, measured us, NCCL + cuBLAS us, compared) of all that was tuned."""
    found = []
    for stem in STEMS.values():
        path = HERE / "specs" / f"{stem}.chunk"
        source = Source(path.name, path.read_text(encoding="utf-8"))
        program = check_source(source).program
        with one_buffer():
            made = schedule_program(program, Report(source))
        tuned = load(path.with_suffix(".tuned.json").read_text(encoding="utf-8"))
        for op, trials in trials_of(program, made):
            space, known = Space(op, trials, (), ()), table(tuned, op.name, made.world)
            calls = compared_sizes(known)
            for setting, results in known.items():
                with one_buffer():
                    as_set = schedule_of(space, setting)
                text = ", ".join(f"{key} = {value}" for _, key, value in setting) or "the rules"
                for sizes, r in results.items():
                    us, library = median(r.us), median(r.library)
                    found.append((made, op.name, text, as_set, dict(sizes), us, library, sizes in calls))
    return tuple(found)


def rankings(on: Machine = NVLINK) -> list[Ranking]:
    by_op: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for made, op, text, as_set, dims, us, library, compared in tuned_settings():
        if compared:
            with widest_tiles():
                pair = (us / library, call_us(made, as_set, dims, on))
            by_op.setdefault(op, {}).setdefault(text, []).append(pair)
    found = []
    for op, settings in by_op.items():
        means = [[exp(mean(log(x) for x in way)) for way in zip(*pairs, strict=True)] for pairs in settings.values()]
        measured, predicted = zip(*means, strict=True)
        found.append(Ranking(op, tuple(settings), measured, predicted))
    return found


def tuned_miss(on: Machine = NVLINK, rows: int = 512) -> float:
    """Where the library is predicted to be the faster, from so many rows on: how much faster a fused call was, against
    the library, than predicted."""
    found = []
    for made, _, _, as_set, dims, us, library, _ in tuned_settings():
        with widest_tiles():
            said = library_us(as_set, dims, on) / call_us(made, as_set, dims, on)
        if said < 1 and dims["M"] >= rows:
            found.append(library / us / said - 1)
    return max(found)


# ---- the text


INTRO = """## Two H200s: layers

{date}, {device}; torch {torch}, triton {triton}: the rows of RESULTS.md (layers of Llama 3.1 and Qwen2), modules
built with what was tuned. The model stands for graphs of 16 ms, GPUs under their power cap; graphs of 4 ms are
cooler, and all that is tuned in short runs is too: there it says some per cent too much. Fitted were the rows of 2048
and 8192 in graphs of 16 ms (`warps_loop`; `library`, `library_reduce`, `library_all_reduce`, `library_us`; what
smaller tiles of the library keep), the others and Triton's kernel are held out. Without a time: the gate is closed,
and the fallback was measured.
"""
TUNED = """## Of what was tuned: how well settings are ranked

Every setting of `specs/layers_*.tuned.json`, by the geometric mean over 512 to 8192 rows, measured as time over that
of NCCL + cuBLAS in the same run. `chunkdsl tune` measures what is predicted to take at most {tune:.0%} longer than
the best (`tune` of cost/data/choices.toml). Measured differences below 1 % are noise.
"""


def document(rows: list[LayerRow], said: dict, found: list[Ranking]) -> str:
    lines = [INTRO.format(date=said["date"], device=said["device"], **said["versions"])]
    lines += ["| class | rows | median error | median size of errors | largest |", "|" + " --- |" * 5]
    for name, errors in classes(rows).items():
        largest, size = max(errors, key=abs), median(map(abs, errors))
        lines.append(f"| {name} | {len(errors)} | {median(errors):+.1%} | {size:.1%} | {largest:+.0%} |")
    columns = ("NCCL + cuBLAS", "ours", "by Triton's kernel")
    heads = [f"{name} | predicted | error" for name in columns]
    lines += ["", f"| op | model | M | {' | '.join(heads)} | ours, graphs of 4 ms | error |", "|" + " --- |" * 14]
    for r in rows:
        cells = [r.op, r.model, str(r.rows)]
        for what in ("library", "ours", "triton"):
            a, b = r.measured.get(what), r.predicted.get(what)
            cells += [digits(a), digits(b), error(b, a)]
        cells += [digits(r.measured.get("ours4")), error(r.predicted.get("ours4"), r.measured.get("ours4"))]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", TUNED.format(tune=margin("tune"))]
    heads = (
        "op",
        "settings",
        "rank correlation",
        "fastest",
        "predicted fastest",
        "it loses",
        "fastest predicted behind",
    )
    lines += [f"| {' | '.join(heads)} | kept |", "|" + " --- |" * 8]
    for x in found:
        names = [x.settings[x.best], x.settings[x.taken]]
        kept = "yes" if x.behind <= margin("tune") else "no"
        cells = [x.op, str(len(x.settings)), f"{x.correlation:+.2f}", *names, f"{x.lost:.1%}", f"{x.behind:.1%}", kept]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| op | setting | measured over the fastest | predicted over the fastest |", "|" + " --- |" * 4]
    for x in found:
        for i in sorted(range(len(x.settings)), key=x.measured.__getitem__):
            parts = x.measured[i] / min(x.measured), x.predicted[i] / min(x.predicted)
            lines.append(f"| {x.op} | {x.settings[i]} | {parts[0]:.3f} | {parts[1]:.3f} |")
    return "\n".join(lines) + "\n"


def recorded_layers() -> dict:
    return json.loads((HERE / "recorded.json").read_text(encoding="utf-8"))["layers"]
