"""A machine whose peers are not there: every rank's memory is its own. A module is made on it so that its kernels get
compiled, by one process and beside others; a call would wait for ever."""

from __future__ import annotations

import math
from types import ModuleType


def lone_machine(module: ModuleType, shape: tuple[int, ...]):
    """Rank 0 of so many ranks (on each axis) on the current GPU, for a generated module."""
    import torch

    class Lone(module.Machine):
        """Sets what the inherited methods read, without a process group."""

        def __init__(self, world: int) -> None:
            self.device = torch.device("cuda", torch.cuda.current_device())
            properties = torch.cuda.get_device_properties(self.device)
            self.sms, self.target = properties.multi_processor_count, f"sm_{properties.major}{properties.minor}"
            self.rank, self.world, self.group = 0, world, None
            self._lanes, self._events, self._keep, self._last, self._made = {}, {}, [], None, {}
            self._take_driver()

        def symmetric(self, name, shape, dtype):
            local = torch.zeros(shape, dtype=dtype, device=self.device)
            self._keep.append(local)
            addresses = (local.data_ptr(),) * self.world
            return module.Symmetric(local, addresses, torch.tensor(addresses, dtype=torch.int64, device=self.device))

        def among(self, ranks, group):
            return Lone(len(ranks))

        def multicast(self, memory):
            return 0

        def roll_call(self):
            return []

        def vote(self, value):
            return [value] * self.world

        def gather(self, tensor, flat=False):
            return (torch.cat if flat else torch.stack)([tensor] * self.world)

        def timeout(self):
            return 20.0

        def synchronize(self):
            torch.cuda.current_stream().synchronize()

    return Lone(math.prod(shape))
