"""What a simulated run can end with. Each message names rank, program, buffer and, where known, the kernel's line."""

from __future__ import annotations


class SimulationFault(RuntimeError):
    """A fault of the simulated program. `rank` is the rank that ran into it, None where several did."""

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


class Deadlock(SimulationFault):
    """Nothing can go on: every program polls and no word changes, or every host and lane waits for another."""


class Race(SimulationFault):
    """Two accesses to the same bytes, at least one a write, that no happens-before path orders."""


class OutOfBounds(SimulationFault):
    """An access outside every buffer that the simulator knows."""


class PrivateMemory(OutOfBounds):
    """An access to memory of another rank that is not symmetric: on hardware it is not mapped here."""


class UnfencedRelease(SimulationFault):
    """A release without a CTA barrier after the accesses it publishes: it covers one thread's accesses only."""


class BulkStoreInFlight(SimulationFault):
    """A release after a descriptor (TMA) store that nobody waited for with `cp.async.bulk.wait_group 0`."""


class MissingProxyFence(SimulationFault):
    """A descriptor (TMA) load of data that was acquired, without `fence.proxy.async` after the acquire."""


class CollectiveMismatch(SimulationFault):
    """Ranks meet in different collectives, or with different shapes."""


class KernelError(SimulationFault):
    """An exception inside a kernel: a failed assert, an unsupported operation, a mistake in the kernel."""


class UnjoinedLane(SimulationFault):
    """A call ended with a copy lane forked and not joined: harmless in a run, but a graph capture of it fails."""
