"""Ranks on the CPU: a generated module's own wrapper and kernels, unmodified, on several simulated ranks.

`World(4, seed=1).run(host)` runs `host(machine)` for each rank, one actor at a time, in one process.
Faults that a GPU would answer with wrong numbers or a hang are exceptions with rank, program, buffer and source line.
"""

from chunkdsl.sim.faults import (
    BulkStoreInFlight,
    CollectiveMismatch,
    Deadlock,
    KernelError,
    MissingProxyFence,
    OutOfBounds,
    PrivateMemory,
    Race,
    SimulationFault,
    UnfencedRelease,
)
from chunkdsl.sim.machine import SimMachine
from chunkdsl.sim.world import World

__all__ = [
    "BulkStoreInFlight",
    "CollectiveMismatch",
    "Deadlock",
    "KernelError",
    "MissingProxyFence",
    "OutOfBounds",
    "PrivateMemory",
    "Race",
    "SimMachine",
    "SimulationFault",
    "UnfencedRelease",
    "World",
]
