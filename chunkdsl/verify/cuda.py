"""CUDA sources of a shipped module, compiled by NVRTC without a GPU, with the lints for loads in the switch."""

from __future__ import annotations

import time

from chunkdsl.aot.lint_multimem import lint_switch
from chunkdsl.runtime.cuda import CudaKernel
from chunkdsl.verify.simulate import Row, few

TARGETS = ("sm_90a", "sm_100a")


def compile_sources(module, title: str) -> list[Row]:
    """A row for each source and target; without NVRTC the row says that nothing was compiled."""
    operations = getattr(module, title).OPS.items()
    named = [(name, CudaKernel(o.KERNEL, o.SOURCE)) for name, o in operations if getattr(o, "SOURCE", "")]
    return [compile_source(name, kernel, target) for name, kernel in named for target in TARGETS]


def compile_source(name: str, kernel: CudaKernel, target: str) -> Row:
    started = time.perf_counter()
    check = f"CUDA compiles for {target} and passes the lints"
    try:
        found = lint_switch(kernel.compile(target)[0])
    except OSError as error:
        return Row(name, check, "any ranks", True, f"not compiled: {error}", ran=False)
    except RuntimeError as error:
        found = [str(error)]
    return Row(name, check, "any ranks", not found, few(found), time.perf_counter() - started)
