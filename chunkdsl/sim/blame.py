"""Messages of a world that has stopped: who waits for what, and errors inside kernels with their line."""

from __future__ import annotations

import traceback
from os.path import basename

from chunkdsl.interp.rewrite import is_kernel_file
from chunkdsl.sim.actors import Program
from chunkdsl.sim.faults import Deadlock, KernelError

_SHOWN = 24


def deadlock(world, why: str) -> Deadlock:
    """A Deadlock that lists every program's poll, every host's wait and every lane that is not empty."""
    lines = []
    for program in world.programs[:_SHOWN]:
        lines.append(f"{program.name}: {program.polling or 'runs'}")
    if len(world.programs) > _SHOWN:
        lines.append(f"and {len(world.programs) - _SHOWN} more programs")
    for host in world.hosts:
        if not host.stack.dead:
            lines.append(f"{host.name}: waits in {host.waiting}" if host.waiting else f"{host.name}: runs")
        elif host.waiting == "":
            lines.append(f"{host.name}: has returned")
    lines += [str(lane) for lane in world.lanes() if not lane.empty]
    return Deadlock(f"deadlock: {why} (seed {world.seed})\n" + "\n".join(f"  {line}" for line in lines))


def kernel_error(program: Program, error: Exception) -> KernelError:
    """A KernelError for an exception that a kernel's Python has raised."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_kernel_file(f.filename)]
    where = f" ({basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    return KernelError(f"{program.name}{where}: {type(error).__name__}: {error}", program.rank)
