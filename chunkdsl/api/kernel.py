"""The function that `compile` is given: a `@triton.jit` function from a file, also under autotune or heuristics, whose
configuration the call then pins."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from pathlib import Path

from chunkdsl.api.errors import ChunkError, refuse
from chunkdsl.check.api import compile_arguments
from chunkdsl.check.kernels import kernel_cannot_be_fused, kernel_not_readable
from chunkdsl.kernels.fault import KernelFault
from chunkdsl.kernels.source import KernelSource, read_kernel


def source_of(kernel) -> KernelSource:
    """ChunkError where it is not a Triton function, or its file cannot be used."""
    fn = kernel
    while not inspect.isfunction(fn) and hasattr(fn, "fn"):  # JITFunction, Autotuner, Heuristics
        fn = fn.fn
    if not inspect.isfunction(fn) or fn is kernel:
        raise refuse(compile_arguments(f"kernel = {kernel!r} is no Triton kernel", "decorate a function: @triton.jit"))
    file = inspect.getsourcefile(fn)
    if file is None or not Path(file).is_file():
        what = f"the kernel `{fn.__name__}` does not come from a file"
        raise refuse(compile_arguments(what, "put it into a .py file: its text goes into the module"))
    path = shown(Path(file))
    try:
        found = read_kernel(path, Path(file), fn.__name__)
        _ = found.parameters, found.needed
        check_choices(found, fn.__globals__)
    except KernelFault as fault:
        raise refuse(kernel_not_readable(path, fault.line, fault.reason, None, fault.mend), path) from None
    return found


def check_choices(source: KernelSource, held: Mapping[str, object]) -> None:
    """KernelFault where the file has chosen another import than a module would (`KernelSource.imports`)."""
    used = {name: line for node in source.needed for name, line in source.free_names(node)}
    for name in used.keys() & source.choices.keys():
        node, text = source.imports[name]
        made: dict[str, object] = {}
        exec(text, made)
        if name in held and made[name] is not held[name]:
            why = f"`{name}` is another function in this program than `{text.split('  #')[0]}` of line {node.lineno}"
            raise KernelFault(why, used[name], "import it in one way, at the top level")


def shown(file: Path) -> str:
    """A file as messages name it: from the working directory where it lies below it."""
    path = os.path.relpath(file)
    return file.name if path.startswith("..") else path.replace(os.sep, "/")


def unfit(source: KernelSource, fault: KernelFault) -> ChunkError:
    """The error of what a trace found, at the kernel's own line."""
    code = source.text.splitlines()[fault.line - 1].strip() if fault.line else ""
    found = kernel_cannot_be_fused(source.path, fault.line, fault.reason, code, None, fault.mend)
    return refuse(found, source.path)
