"""One simulated rank's machine: the interface of `chunkdsl.runtime.machine.Machine`, in host memory.

Everything a wrapper asks for is queued or carried out by the `World`; this class holds no scheduling.
Host code sees what ordinary code would see: results are there after `synchronize`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from chunkdsl.runtime.machine import Symmetric
from chunkdsl.sim.buffers import allocate
from chunkdsl.sim.faults import CollectiveMismatch, UnjoinedLane

if TYPE_CHECKING:
    from chunkdsl.sim.world import World


class SimMachine:
    """See `Machine`. Beyond it: `adopt` names memory that is not an argument of a launch, `next_call` marks calls
    in the log. Methods work inside `World.run` only, on the rank's own host function."""

    failure = ""

    def __init__(self, world: World, rank: int, members: tuple[int, ...] = ()) -> None:
        """Rank `rank` of the simulated world, on its own or among `members` (ranks of the world, ascending)."""
        self._world = world
        self.group = None
        self.members = members or tuple(range(world.size))
        self.place = rank  # in the world; `rank` counts among the members
        self.rank = self.members.index(rank)
        self.world = len(self.members)
        self.device = torch.device("cpu")
        self.sms = world.sms
        self.target = "sim"
        self.call = self._fused_call = 0
        self._forked: set[str] = set()

    def among(self, ranks, group):
        """The same rank among some of the members, by their ranks here."""
        found = SimMachine(self._world, self.place, tuple(self.members[r] for r in ranks))
        found.target = self.target
        return found

    def next_call(self) -> int:
        """Launches and copies from now on belong to the next call, in the log. Returns its number, from 1."""
        self.call, self._fused_call = max(self.call, self._fused_call) + 1, 0
        return self.call

    def adopt(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Make `tensor` known as memory of this rank (the source of a copy, say). Arguments of launches are adopted
        by themselves. Returns it."""
        self._world.accesses.space.adopt(name, self.place, tensor)
        return tensor

    # ---- memory

    def symmetric(self, name, shape, dtype):
        """Zeroed memory on every member, reachable from each. Raises CollectiveMismatch if ranks disagree."""
        local = allocate(shape, dtype, 0)
        made = self._meet(f"symmetric {name}", (tuple(shape), dtype, local.data_ptr()))
        if len({m[:2] for m in made}) > 1:
            raise CollectiveMismatch(f"symmetric {name}: ranks ask for {[m[:2] for m in made]}", self.rank)
        self._add(name, "symmetric", local, set(self.members))
        addresses = tuple(m[2] for m in made)
        table = allocate((self.world,), torch.int64, 0).copy_(torch.tensor(addresses))
        self._add(f"{name} addresses", "device", table, {self.place})
        # A rank that goes on must find the memory of all others known.
        self._meet(f"symmetric {name}", None)
        return Symmetric(local, addresses, table)

    def peek(self, memory):
        """The first word of every member's part of symmetric memory, read as a debugger would."""
        return [ctypes.c_int32.from_address(address).value for address in memory.addresses]

    def zeros(self, name, shape, dtype):
        """Zeroed memory of this rank alone."""
        return self._add(name, "device", allocate(shape, dtype, 0), {self.place})

    def pinned(self, name, shape, dtype):
        """Zeroed host memory; the host reads it plainly, without a switch to other actors."""
        return self._add(name, "pinned", allocate(shape, dtype, 0), {self.place})

    def empty(self, shape, dtype):
        """Memory for a result, every byte 0xFF: NaN in float formats, -1 in integers."""
        self._world.results += 1
        return self._add(f"result {self._world.results}", "result", allocate(shape, dtype, 0xFF), {self.place})

    def _add(self, name, kind, tensor, ranks):
        self._world.accesses.space.add(name, self.place, kind, tensor, ranks)
        return tensor

    # ---- work

    def launch(self, kernel, programs, args, constants, warps, stages, early=False):
        """Queue a kernel on the main lane and return; `early`: beside the one ahead of it. `warps` and `stages` mean
        nothing here."""
        self._world.launch(self, kernel, programs, {**args, **constants}, early)

    def fit(self, kernel, around=None):
        """There is no multiprocessor to fill."""
        return {"PER_SM": 1}

    def starts_early(self):
        """No: here a kernel that waits for all ahead of it starts when they have ended."""
        return False

    def starts_beside(self):
        """Yes: once all programs of the kernel ahead have started, as on a device of its own."""
        return True

    def crowd(self, programs):
        """1: there are no multiprocessors that a program would leave idle."""
        return 1

    def prepared(self, made, kernel, programs, args, constants, changing):
        """None: a launch that is made again is queued as the first was."""

    def multicast(self, memory):
        """0: there is no switch here, and nothing that runs CUDA."""
        return 0

    def copy(self, destination, source, nbytes, lane, label=""):
        """Queue a copy between two addresses on a lane and return."""
        self._world.copy(self, destination, source, nbytes, lane)

    def copy_rows(self, destination, pitch, source, source_pitch, width, height, lane, label=""):
        """Queue a copy of rows of `width` bytes, row by row, on a lane and return."""
        for row in range(height):
            self._world.copy(self, destination + row * pitch, source + row * source_pitch, width, lane, data=True)

    def multiply(self, label, out, left, right, transposed):
        """Queue a product of the library on the main lane and return."""
        self._world.multiply(self, label, out, left, right, transposed)

    def fork(self, lane):
        """Work given to `lane` from now on starts after everything given to the main lane so far."""
        self._forked.add(lane)
        self._world.order(self, "main", lane)

    def join(self, lane):
        """Work given to the main lane from now on starts after everything given to `lane` so far."""
        self._forked.discard(lane)
        self._world.order(self, lane, "main")

    def begin_call(self, name, fused=True):
        """The next call of an op begins; what it queues belongs to it in the log. One not fused has number 0."""
        if fused:
            self.next_call()
        else:
            self._fused_call, self.call = self.call, 0

    def end_call(self):
        """The call's work is queued. Raises UnjoinedLane for a lane that the main lane does not wait for again."""
        self.call, self._fused_call = self._fused_call or self.call, 0
        if self._forked:
            lanes, self._forked = sorted(self._forked), set()
            raise UnjoinedLane(f"the call ends and lane {lanes[0]} is not joined to the main lane", self.rank)

    def release(self):
        """Nothing to give back: the memory goes with the world."""

    def timeout(self):
        """Seconds after which the process group gives up."""
        return 600.0

    def capturing(self):
        """There are no graphs here."""
        return False

    def open_lane(self, lane):
        """Lanes need no preparation here."""

    def synchronize(self):
        """Block the host function until all lanes of the rank are empty."""
        self._world.drain(self.place, "synchronize", None)

    # ---- the process group

    def vote(self, value):
        """Every rank's value, in rank order."""
        return self._meet("vote", value)

    def roll_call(self):
        """Hosts that are not here have returned; a deadlock lists them, so nobody is named."""
        return []

    def barrier(self):
        """Every rank has come here and its lanes are empty."""
        self.synchronize()
        self._meet("barrier", None)

    def gather(self, tensor, flat=False):
        """[world, *tensor.shape]: every rank's tensor, bits unchanged; `flat`: their rows behind each other. Waits for
        the main lane first."""
        return (torch.cat if flat else torch.stack)(self._tensors("gather", tensor))

    def all_to_all(self, tensor):
        """[world, ...]: of every rank's tensor the entry that is for this rank."""
        return torch.stack(self._tensors("all_to_all", tensor))[:, self.rank]

    def total_shard(self, tensor, rows):
        """This rank's `rows` rows of the sum over ranks."""
        return self.total(tensor)[self.rank * rows : (self.rank + 1) * rows]

    def total(self, tensor, own=False):
        """The sum over ranks, in rank order, in float32 (float64, int64), rounded once."""
        wide = {torch.float64: torch.float64}.get(tensor.dtype, torch.float32)
        if not tensor.dtype.is_floating_point:
            wide = torch.int64
        parts = self._tensors("total", tensor)
        return functools.reduce(torch.add, (p.to(wide) for p in parts)).to(tensor.dtype)

    def _tensors(self, what: str, tensor: torch.Tensor) -> list[torch.Tensor]:
        self._world.drain(self.place, what, "main")
        parts = self._meet(what, tensor.detach().clone(memory_format=torch.contiguous_format))
        kinds: Mapping = {(tuple(p.shape), p.dtype): None for p in parts}
        if len(kinds) > 1:
            raise CollectiveMismatch(f"{what}: ranks bring {list(kinds)}", self.rank)
        return parts

    def _meet(self, what: str, value) -> list:
        return self._world.meet(self.place, what, value, self.members)
