"""Compile many kernel variants for many targets, in worker processes where their modules can be imported again."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from chunkdsl.aot.record import KernelUse
from chunkdsl.aot.targets import Compiled, compile_kernel, find_target

START_COST = 6  # compilations that one process does in the time that a worker needs to import torch and triton


@dataclass(frozen=True)
class _Order:
    """A use without its kernel: what a worker needs to find and compile it."""

    file: str
    name: str
    parts: tuple
    target: str


def compile_all(
    uses: Iterable[KernelUse], targets: Iterable[str], processes: int = 2
) -> list[tuple[KernelUse, Compiled]]:
    """Each distinct use compiled for each target, in the order given; Triton's own cache keeps the results.

    Works in up to `processes` fresh processes if that pays and every kernel is a module-level name of a file,
    otherwise in this one. ValueError for an unknown target, CompileError for the first kernel that is refused.
    """
    names = [find_target(t).name for t in targets]
    jobs = [(use, t) for use in {u.key: u for u in uses}.values() for t in names]
    orders = [_order(use, target) for use, target in jobs]
    if processes > 1 and len(jobs) > START_COST and all(orders):
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as workers:
            made = list(workers.map(_carry_out, orders))
    else:
        made = [compile_kernel(use, target) for use, target in jobs]
    return [(use, compiled) for (use, _), compiled in zip(jobs, made, strict=True)]


def _order(use: KernelUse, target: str) -> _Order | None:
    function = use.kernel.fn
    file = inspect.getsourcefile(function)
    module = sys.modules.get(function.__module__)
    if not file or not Path(file).is_file() or getattr(module, function.__name__, None) is not use.kernel:
        return None
    parts = (dict(use.signature), dict(use.constants), dict(use.attrs), use.warps, use.stages, dict(use.args))
    parts = (*parts, use.registers)
    return _Order(str(Path(file).resolve()), function.__name__, parts, target)


def _carry_out(order: _Order) -> Compiled:
    return compile_kernel(KernelUse(getattr(_load(order.file), order.name), *order.parts), order.target)


@cache
def _load(file: str):
    spec = importlib.util.spec_from_file_location(f"aot_{Path(file).stem}", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
