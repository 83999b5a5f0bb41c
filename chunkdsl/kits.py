"""`chunkdsl tune` in three parts, each on the machine that it needs: modules are made where chunkdsl is installed whole
(`write`), measured where the GPUs are, with torch and Triton alone (`measure`), and what was found is taken back to the
spec (`collect`). The search and the file of results are those of tuning.py.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

import chunkdsl
from chunkdsl.diagnostics import Report
from chunkdsl.source import Source
from chunkdsl.tuning import Options, begin, cannot_write, draw, origin_of, prepare, run, told

if TYPE_CHECKING:
    from chunkdsl.ir.meshes import World
    from chunkdsl.tune.clock import Clock
    from chunkdsl.tune.evidence import Tuned
    from chunkdsl.tune.kit import Kit


def write(path: str, folder: str, world: World | None, options: Options, most: int, out: TextIO) -> tuple[Report, str]:
    """Makes the modules of a spec's settings, `most` for each op, and what says which is which; its path as text."""
    from chunkdsl.tune.kit import write_kit
    from chunkdsl.tune.progress import bar

    ready = prepare(path, world, options)
    if ready.report.failed:
        return ready.report, ""

    def tell(done: int, total: int, name: str) -> None:
        out.write(f"{bar(done, total)} {name}\n")

    try:
        index = write_kit(folder, ready.made, ready.found, ready.world, chunkdsl.__version__, most, tell)
    except (OSError, ValueError) as error:  # ValueError: a NUL in a path
        cannot_write(folder, error, ready.report)
        return ready.report, ""
    return ready.report, f"{index}\n"


def measure(
    folder: str, clock_of: Callable[[Kit], Clock], options: Options, out: TextIO,
    now: Callable[[], float] = time.monotonic,
) -> tuple[Report, str]:  # fmt: skip
    """Measures every kit of a folder, one after the other, each with its share of the time; what was found, as text."""
    from chunkdsl.check.tuning import unusable_kit

    report, kits, texts = Report(Source(folder, "")), [], []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*.kit.json"))):
        kits.append(_read(path, report))
    if not kits and not report.failed:
        report.add(unusable_kit(folder, "there is no *.kit.json in it"))
    if report.failed:
        return report, ""
    begun = now()
    clocks = [clock_of(kit) for kit in kits]  # before any time is shared out: all modules are compiled
    for i, (kit, clock) in enumerate(zip(kits, clocks, strict=True)):
        file = os.path.join(folder, _stem(kit) + ".tuned.json")
        tuned = begin(file, origin_of(kit.digest, clock), options.fresh, report)
        if report.failed:
            return report, ""
        seconds = (options.seconds - (now() - begun)) / (len(kits) - i)
        tuned = run(file, tuned, kit.found, kit.world, clock, seconds, out, now, report)
        if report.failed:
            return report, ""
        texts.append(told(kit.found, tuned, kit.world) + f"{file}\n")
    return report, "".join(texts)


def collect(path: str, source: str, options: Options) -> tuple[Report, str]:
    """Adds results that were measured elsewhere, a file or those of this spec in a folder, to those beside the spec."""
    from chunkdsl import pipeline
    from chunkdsl.check.timelines import no_such_drawing
    from chunkdsl.replace import replace_file
    from chunkdsl.report.tuning_page import KINDS
    from chunkdsl.tune.evidence import dump
    from chunkdsl.tune.kit import listed_in
    from chunkdsl.tune.settle import tuned_path

    file = tuned_path(path)
    plot = options.plot or file.removesuffix(".json") + ".html"
    source = os.path.join(source, os.path.basename(file)) if os.path.isdir(source) else source
    checked = pipeline.read_one(path, settled=False)
    report = checked.report
    if not plot.endswith(KINDS):
        report.add(no_such_drawing(plot, KINDS))
    theirs = None if report.failed else _results(source, path, checked.schedule.digest, report)
    ours = begin(file, theirs.origin, options.fresh, report) if theirs else None
    if report.failed:
        return report, ""
    merged, texts = ours.with_more(r for r in theirs.results if r not in ours.results), []
    try:
        replace_file(file, dump(merged).encode())
    except (OSError, ValueError) as error:  # ValueError: a NUL in a path
        cannot_write(file, error, report)
        return report, ""
    for world in dict.fromkeys(r.world for r in merged.results):
        found = listed_in(merged, world, checked.schedule.ranges)
        texts.append(told(found, merged, world))
        draw(plot, found, merged, world, path, report)
    return report, "" if report.failed else "".join(texts) + f"{file}\n{plot}\n"


def _results(source: str, path: str, digest: str, report: Report) -> Tuned | None:
    """What was measured elsewhere, if it is of this text of the spec; else it is reported."""
    from chunkdsl.check.tuning import unusable_kit
    from chunkdsl.tune.settle import read_tuned

    found = read_tuned(source, report)
    if found is None and not report.failed:
        report.add(unusable_kit(source, "there is no such file"))
    elif found and found.origin.digest != digest:
        report.add(unusable_kit(source, f"it is of another text of {path}"))
    return found


def _read(path: str, report: Report) -> Kit | None:
    from chunkdsl.check.tuning import unusable_kit
    from chunkdsl.tune.evidence import Malformed
    from chunkdsl.tune.kit import read_kit

    try:
        kit = read_kit(path)
        if kit.chunkdsl == chunkdsl.__version__:
            return kit
        why = f"it was made by chunkdsl {kit.chunkdsl}, this is {chunkdsl.__version__}"
    except (OSError, UnicodeDecodeError, Malformed) as error:
        why = getattr(error, "strerror", None) or str(error)
    report.add(unusable_kit(path, why))
    return None


def _stem(kit: Kit) -> str:
    return os.path.splitext(os.path.basename(kit.spec))[0]
