"""The generated module's class: construction, the vote, check and close. Copied into the module."""

from __future__ import annotations

import os
import warnings
import weakref

import torch

from chunkdsl.runtime.arguments import whole_sizes
from chunkdsl.runtime.live import Live, OfProcess
from chunkdsl.runtime.machine import Machine, want_success
from chunkdsl.runtime.ranks import Ranks


class Instance(OfProcess):
    """All ops of one spec on one process group. Construction is collective, in the same order on every rank."""

    NAME, OPS, RANGES, PROVEN, DIGEST, TUNED, COMMAND, GENERATOR = "", {}, {}, (), "", "", "", ""
    AXES, RANKS = (), Ranks
    warps = None  # version of Gluon's interface for kernels of specialised warps; 0: none, None: not asked for so far

    def __init__(self, group=None, *, mesh=None, device=None, timeout=None, check_calls=False, machine=None, **bounds):
        ours = machine is None
        if ours:
            if device is None:
                device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"
            machine = Machine(self.RANKS.group_of(self.NAME, self.AXES, group, mesh), device)
        unknown = set(bounds) - set(self.RANGES)
        if unknown:
            known = ", ".join(self.RANGES)
            raise TypeError(f"{self.NAME} has no run-time size {', '.join(sorted(unknown))}; it has {known}")
        bounds = whole_sizes(self.NAME, bounds)
        for name, value in bounds.items():
            low, high, _ = self.RANGES[name]
            if not low <= value <= high:
                raise ValueError(f"{self.NAME}: the bound {name} = {value} is outside the declared {low}..{high}")
        timeout = machine.timeout() if timeout is None else timeout
        self._mesh = mesh if hasattr(mesh, "get_group") else None
        self.ranks = ranks = self.RANKS(self.NAME, self.AXES, machine, mesh)
        self.pid = os.getpid()
        self._ending = weakref.finalize(self, end_unclosed, self.NAME, ranks.machines if ours else [], self.pid)
        self.machine, self.limit, self.check_calls = machine, int(timeout * 1e9), check_calls
        self.bounds = {name: high for name, (_, high, _) in self.RANGES.items()} | bounds | ranks.first
        if ranks.shape not in self.PROVEN:
            raise ValueError(
                f"{self.NAME} is proven for {', '.join(map(ranks.said, self.PROVEN))} ranks, not for "
                f"{ranks.said(ranks.shape)}; rebuild it: {self.COMMAND} --world {ranks.said(ranks.shape)}"
            )
        mine = (self.GENERATOR, self.DIGEST, self.TUNED, sorted(self.bounds.items()), ranks.shape, machine.target)
        mine += (machine.sms, self.limit, check_calls)
        votes = machine.vote(mine)
        odd = [rank for rank, vote in enumerate(votes) if vote != votes[0]]
        if odd:
            what = "module, bounds, options or hardware"
            raise RuntimeError(f"{self.NAME}: ranks {odd} differ from rank 0 in {what}: {votes}")
        self.why_not = None if machine.target != "cpu" else "there is no GPU"
        self.tma = machine.target in ("sm_90", "sm_100", "sim")
        for name, operation in self.OPS.items():
            setattr(self, name, operation(self))
        error = None
        try:
            for name in self.OPS:
                if getattr(self, name).why_not is None:
                    getattr(self, name).warm_up()
            machine.synchronize()
        except Exception as why:
            error = why
        want_success(machine, f"{self.NAME}: compiling and loading", error)

    @property
    def mesh(self):
        """The DeviceMesh of DTensors that ops take and layers hold; None without a process group."""
        machine = self.machine
        if self._mesh is None and machine is not None and machine.group is not None:
            from torch.distributed.device_mesh import DeviceMesh

            self._mesh = DeviceMesh.from_group(machine.group, machine.device.type)
        return self._mesh

    @classmethod
    def symmetric_bytes(cls, bounds=None, world=1):
        """Bytes of symmetric memory that each of `world` ranks gives for these bounds (default: the declared ones); on
        a mesh of two axes `world` is (outer, inner)."""
        dims = {name: high for name, (_, high, _) in cls.RANGES.items()} | whole_sizes(cls.NAME, bounds or {})
        dims |= cls.RANKS.bound(cls.AXES, world)
        operations = cls.OPS.values()
        return sum(o.symmetric_bytes(dims, cls.RANKS.count(cls.AXES, world, o.OVER)) for o in operations)

    def check(self):
        """RuntimeError if any op of this instance has died, or it is closed. After graph replays call this."""
        self._usable()
        self.machine.synchronize()
        for name in self.OPS:
            getattr(self, name).check(look=True)

    def close(self):
        """Collective: wait for all ranks, then give the memory back. Raises as `check` does, without waiting for ranks
        that may be gone; the memory is given back in any case. Once is enough."""
        if self.machine is None:
            return
        self._usable()
        machine = self.machine
        try:
            self.check()
            machine.barrier()
        finally:
            self.machine = None
            self._ending.detach()
            for name in self.OPS:
                getattr(self, name).forget(f"{self.NAME} is closed")
            for each in self.ranks.machines:
                each.release()

    def _usable(self):
        if self.pid != os.getpid():
            raise RuntimeError(f"{self.NAME}: {Live.FORKED}")
        if self.machine is None:
            raise RuntimeError(f"{self.NAME} is closed")


def end_unclosed(name, machines, maker):
    """An instance was collected, or the interpreter ends, without `close`: what its `machines` hold (none where they
    are the caller's) goes once the device is idle. Peers are not waited for. During a capture nothing may be freed."""
    if not machines or os.getpid() != maker or machines[0].capturing():
        return
    warnings.warn(f"an instance of {name} was not closed", ResourceWarning, stacklevel=2)
    machines[0].synchronize()
    for machine in machines:
        machine.release()
