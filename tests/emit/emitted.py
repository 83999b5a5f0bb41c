"""Small specs built and run on simulated ranks, for the tests of what is emitted."""

from __future__ import annotations

import functools
import importlib.util
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from chunkdsl.check.worlds import served
from chunkdsl.diagnostics import Report
from chunkdsl.lower.program import lower
from chunkdsl.lower.schedule import schedule_program
from chunkdsl.render.module import class_name, render_module
from chunkdsl.source import Source
from chunkdsl.syntax.parse import parse
from chunkdsl.verify.simulate import Row, run_op
from chunkdsl.verify.twin import few_words

MODULES = tempfile.TemporaryDirectory(prefix="chunkdsl-emit-")  # goes with the process
HEAD = "mesh tp[2] over nvlink\ndim M = 0..64\ndim H = 48\ndim F = 96\n"
GATHER = (
    HEAD + "tensor x : {t}[M @ tp, H]\ntensor w : {t}[F @ tp, H]\n"
    "op f(x, w) -> y {{ y = all_gather(x) @ w.T with {{ {p} }} }}\n"
)
SCATTER = (
    HEAD + "tensor x : {t}[M, F @ tp]\ntensor w : {t}[H, F @ tp]\ntensor b : {t}[H]\n"
    "op f(x, w, b) -> y {{ y = reduce_scatter(x @ w.T, M) + b with {{ {p} }} }}\n"
)
REDUCE = SCATTER.replace("reduce_scatter(x @ w.T, M)", "all_reduce(x @ w.T)")
SMALL = "tile = 16x16x16, chunk = 10 along M, "


@functools.cache
def built(text: str):
    """(program, schedule, module, class name). AssertionError with the findings of a spec that has errors."""
    source = Source("small.chunk", text)
    report = Report(source)
    program = lower(parse(source, report), source, report)
    assert program is not None, report.diagnostics
    schedule = schedule_program(program, report)
    assert not report.failed, [(d.code, d.message) for d in report.diagnostics]
    schedule = replace(schedule, ops=tuple(_small(op) for op in schedule.ops))
    folder = Path(tempfile.mkdtemp(dir=MODULES.name))
    path = folder / f"small_{abs(hash(text)):x}.py"
    worlds = tuple(w for w in range(1, 17) if served(schedule, w))
    path.write_text(render_module(schedule, worlds), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return program, schedule, module, class_name(schedule.path)


def _small(op):
    """So few rows take all forms of a small all-reduce."""
    if op.exchange is None:
        return op
    return replace(op, exchange=replace(op.exchange, forms=few_words(op.exchange, 2)))


def run(text: str, world: int, sizes, seed: int = 0, pointers: bool = False) -> list[Row]:
    """Every check of `verify` on the first op of a spec: calls of these sizes of M, in a row."""
    program, schedule, module, title = built(text)
    calls = [{"M": m} for m in sizes]
    op = schedule.ops[0]
    return run_op(module, title, schedule, op, program.ops[0], world, seed, calls, pointers=pointers)


def failures(rows: list[Row]) -> list[str]:
    return [f"{r.check} ({r.where}): {r.detail}" for r in rows if not r.passed]
