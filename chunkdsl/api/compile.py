"""`chunkdsl.compile`: a kernel with a spec gives the spec's module, with a `ChunkSchedule` something to call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from chunkdsl import pipeline
from chunkdsl.api.errors import ChunkError, findings, refuse
from chunkdsl.api.fused import Fused
from chunkdsl.api.kernel import source_of
from chunkdsl.api.modules import TARGETS, Compiler, compile_for
from chunkdsl.api.roles import Hints
from chunkdsl.api.schedule import ChunkSchedule
from chunkdsl.api.store import Store, load
from chunkdsl.check.api import compile_arguments
from chunkdsl.syntax.tables import folder as cache


def compile(
    kernel=None,
    spec: str | os.PathLike | None = None,
    *,
    schedule: ChunkSchedule | None = None,
    target_backend: str = "triton",
    folder: str | os.PathLike | None = None,
    gathered: str | Sequence[str] = (),
    results: str | Sequence[str] = (),
    summed: str = "",
    shapes: Mapping[str, Sequence[str | int]] | None = None,
):
    """A single-GPU Triton kernel as an overlapped multi-GPU kernel.

    With `spec`, the path of a `.chunk` file whose `kernel` item names this kernel: the module of that spec, imported,
    as `chunkdsl build` writes it. With `schedule`: a `Fused`, called like the kernel on this rank's tensors,
    `fused[grid](A, B, C, M, N, K, BM=128, ...)`. Without `kernel`: a decorator for one.

    `target_backend`: "triton", or a GPU (sm_80, sm_90, sm_100, gfx942) for which the module's kernels are compiled
    ahead of time and linted too. `folder`: where modules are written (default: the user's cache). `gathered`,
    `results`, `summed` and `shapes` say what a call alone leaves open: parameters of the kernel that are gathered and
    stored, the size that is added over, shapes in the kernel's names, {"a_ptr": ("M", "K")}.

    Raises ChunkError, whose `diagnostics` are the findings."""
    if kernel is None:
        options = dict(schedule=schedule, target_backend=target_backend, folder=folder, gathered=gathered,
                       results=results, summed=summed, shapes=shapes)  # fmt: skip
        return lambda function: compile(function, spec, **options)
    with findings():
        return compiled(kernel, spec, schedule, target_backend, folder, Hints(
            names(gathered), names(results), summed, tuple((n, tuple(s)) for n, s in (shapes or {}).items()),
        ))  # fmt: skip


def compiled(kernel, spec, schedule, target_backend: str, folder, hints: Hints):
    source = source_of(kernel)
    if target_backend not in TARGETS:
        raise refuse(compile_arguments(f"target_backend = {target_backend!r}", f"it is one of {', '.join(TARGETS)}"))
    if (spec is None) == (schedule is None):
        mend = "compile(kernel, spec) or compile(kernel=kernel, schedule=schedule)"
        raise refuse(compile_arguments("compile takes a spec or a schedule, one of the two", mend))
    if spec is not None:
        return module_of(source, str(spec), target_backend, folder)
    if not isinstance(schedule, ChunkSchedule):
        raise refuse(compile_arguments(f"schedule = {schedule!r}", "a ChunkSchedule"))
    return Fused(Compiler(source, schedule, target_backend, hints, Store(root(folder))))


def names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def root(folder: str | os.PathLike | None) -> Path:
    return Path(folder) if folder is not None else cache() / "modules"


def module_of(source, spec: str, target: str, folder) -> ModuleType:
    """The module of a spec that calls the kernel, as `chunkdsl build` writes it."""
    from chunkdsl.render.module import class_name
    from chunkdsl.render.write import NotGenerated, module_path, write_module

    built = pipeline.build(spec)
    if built.report.failed:
        raise ChunkError(built.report)
    items = built.program.kernels.values()
    wanted = source.function, source.file.resolve()
    if all((k.source.function, k.source.file.resolve()) != wanted for k in items):
        named = ", ".join(f"{k.source.function} of {k.source.path}" for k in items) or "none"
        what = f"{spec} does not name `{source.function}` of {source.path}; its kernels: {named}"
        raise refuse(compile_arguments(what, "name it in a `kernel` item"), spec)
    path = module_path(str(folder if folder is not None else root(None) / "specs"), spec)
    try:
        write_module(path, built.module)
    except (OSError, NotGenerated) as error:
        what = f"cannot write {path}: {getattr(error, 'strerror', None) or error}"
        raise refuse(compile_arguments(what, "name another folder"), spec) from None
    module = load(Path(path))
    if target != "triton":
        compile_for(module, class_name(spec), Path(path), built.schedule.world, target)
    return module
