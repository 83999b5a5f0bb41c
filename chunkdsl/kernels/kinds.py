"""Which arguments a kernel loads and which it stores, before their sizes are known: some programs of one launch, run on
more memory than they can need. Nothing about places is kept (`footprint`)."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from chunkdsl.kernels.fault import KernelFault
from chunkdsl.kernels.source import KernelSource
from chunkdsl.kernels.trace import Argument, Program, Recorder, trace


class Kinds(Recorder):
    """Accesses beyond a declared shape are let by: it is not known yet."""

    def _outside(self, kind, a, line, offsets, bad):
        pass


def kinds(
    source: KernelSource, tensors: Mapping[str, tuple[tuple[int, ...], torch.dtype, tuple[int, ...]]],
    scalars: Mapping[str, object], grid: Program, ranks: int,
) -> dict[str, set[str]]:
    """Of each tensor parameter what its kernel does to it: load, store, atomic. `tensors`: shape, of which the
    first dimension may be a shard's on `ranks` ranks, dtype and a descriptor's block. Looks at the first and the last
    program.

    KernelFault where the kernel does not run."""  # fmt: skip
    arguments = [
        Argument(
            name, (shape[0] * ranks, *shape[1:]) if shape else (1,), dtype, max(1, shape[-1] if shape else 1),
            block=block,
        )
        for name, (shape, dtype, block) in tensors.items()
    ]
    programs = sorted({(0, 0, 0), tuple(n - 1 for n in grid)})
    found: dict[str, set[str]] = {name: set() for name in tensors}
    pointers = {name: name for name in tensors}
    for t in trace(source, source.load(), arguments, pointers, scalars, grid, programs, recording=Kinds).touches:
        found[t.argument].add(t.kind)
    if not any("store" in k for k in found.values()):
        raise KernelFault("its first and last program store nothing", source.kernel.lineno, "check the grid")
    return found
