"""The one seam between a generated wrapper and the machine: memory, lanes, launches, copies, the process group.

A generated module reaches hardware through `Machine` and nothing else; the CPU simulator and the ahead-of-time
compiler pass objects with the same methods. Copied into every generated module, so: stdlib, torch, triton only.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.distributed as dist
import triton

from chunkdsl.runtime.collectives import Collectives
from chunkdsl.runtime.lanes import Lanes
from chunkdsl.runtime.prepared import PreparedLaunches
from chunkdsl.runtime.repeats import RecordedLaunches


@dataclass(frozen=True)
class Symmetric:
    """Symmetric memory: this rank's tensor, each rank's address of it, and those addresses in device memory."""

    local: torch.Tensor
    addresses: tuple[int, ...]
    table: torch.Tensor  # int64 [world]


def want_success(machine, what, error):
    """Collective: `error` (an exception or None) is raised again on its rank; RuntimeError names it on the others."""
    said = machine.vote(None if error is None else f"{type(error).__name__}: {error}")
    if error is not None:
        raise error
    failed = {rank: why for rank, why in enumerate(said) if why is not None}
    if failed:
        raise RuntimeError(f"{what} failed on ranks {list(failed)}: {failed}")


def residency(registers, shared, warps, limits):
    """Programs that a multiprocessor holds of a kernel (registers of a thread, bytes of shared memory), as PER_SM, and
    the registers that another kernel may have so that it holds as many of it, but 96 at least, which waits need.
    `limits`: threads, registers and bytes of shared memory of a multiprocessor."""
    threads = 32 * warps
    many = min(limits[0] // threads, limits[1] // (threads * max(96, -(-registers // 8) * 8)))
    many = max(1, min(many, limits[2] // (shared + 1024)))
    return {"PER_SM": many, "maxnreg": min(255, limits[1] // (threads * many) // 8 * 8)}


class Machine(Lanes, PreparedLaunches, RecordedLaunches, Collectives):
    """One rank's device. `lane` is "main" (the caller's current stream) or the name of a copy lane. `failure` says why
    the process group is of no more use."""

    ROLL_CALLS: ClassVar = {}
    PATIENCE = 5.0  # seconds of a roll call
    failure = ""
    alone = True  # no other rank computes on this device

    def __init__(self, group, device):
        self.group = dist.group.WORLD if group is None else group
        self.rank = dist.get_rank(self.group)
        self.world = dist.get_world_size(self.group)
        self.device = torch.device(device)
        self.sms = 0
        self.target = "cpu"
        self._lanes, self._events = {}, {}
        self._keep = []
        self._last = None
        self._made = {}  # kernel: what its first launch compiled it to, warps
        if self.device.type == "cuda":
            if self.device.index not in (None, torch.cuda.current_device()):
                raise ValueError(f"make {self.device} the current device before: torch.cuda.set_device")
            properties = torch.cuda.get_device_properties(self.device)
            self.sms = properties.multi_processor_count
            if torch.version.hip:
                self.target = properties.gcnArchName.split(":")[0]
                self._take_amd_driver()
            else:
                self.target = f"sm_{properties.major}{properties.minor}"
                self._take_driver()

    def among(self, ranks, group):
        """The same device among some of its ranks (ascending, as it counts), whose process group is `group`."""
        return Machine(group, self.device)

    # ---- memory, at construction (only `empty` is called per call)

    def symmetric(self, name, shape, dtype):
        """Zeroed memory of `shape` on every rank of the group, mapped into each. Collective: RuntimeError on every rank
        if some rank has no room."""
        import torch.distributed._symmetric_memory as symm

        tensor, error = None, None
        try:
            tensor = symm.empty(*shape, dtype=dtype, device=self.device)
        except RuntimeError as why:
            error = why
        want_success(self, f"symmetric memory for {name}", error)
        handle = symm.rendezvous(tensor, self.group.group_name)
        remote = getattr(handle, "get_remote_tensor", None) or handle.get_buffer
        views = [remote(r, tuple(shape), dtype) for r in range(self.world)]
        self._keep.append((tensor, handle, views))
        tensor.zero_()
        addresses = tuple(tensor.data_ptr() if r == self.rank else v.data_ptr() for r, v in enumerate(views))
        return Symmetric(tensor, addresses, torch.tensor(addresses, dtype=torch.int64, device=self.device))

    def peek(self, memory):
        """The first word of every rank's part of symmetric memory, as it is at the moment: for messages."""
        views = next(views for tensor, _, views in self._keep if tensor is memory.local)
        return [int(view.view(-1)[0]) for view in views]

    def zeros(self, name, shape, dtype):
        """Zeroed device memory of this rank alone."""
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def pinned(self, name, shape, dtype):
        """Zeroed host memory that kernels and copy engines of this rank can reach."""
        return torch.zeros(shape, dtype=dtype, pin_memory=self.device.type == "cuda")

    def empty(self, shape, dtype):
        """Device memory for a result, new for each call."""
        return torch.empty(*shape, dtype=dtype, device=self.device)  # a tuple takes torch longer to read

    # ---- work

    def launch(self, kernel, programs, args, constants, warps, stages, early=False, lane="main"):
        """Start `programs` programs (or a grid of three sizes) of a jitted kernel on a lane. `args` and `constants` are
        by name. `early`: it may start while the kernel ahead of it still runs, which it waits for."""
        if self.device.type == "cpu":
            name = getattr(kernel, "__name__", "kernel")
            raise RuntimeError(f"{name} is a Triton kernel: ops around users' kernels run on GPUs, or simulated ranks")
        # Descriptors of peers' memory are made in the kernel, which needs some scratch memory for them.
        triton.set_allocator(self._scratch)
        grid = programs if isinstance(programs, tuple) else (programs,)
        options = {"launch_pdl": True} if early else {}
        with torch.cuda.stream(self._stream(lane)) if lane != "main" else nullcontext():
            made = kernel[grid](**args, **constants, num_warps=warps, num_stages=stages, **options)
        self._made.setdefault(kernel, (made, warps))
        return made

    def fit(self, kernel, around=None):
        """Options for a launch of `around`, a kernel with `kernel` inside, which has been launched before: as many
        programs of it on a multiprocessor (PER_SM) as of the kernel alone. `around` is kept to the registers that this
        takes (maxnreg) only if it took more when it was first launched, without: a bound alone makes other code."""
        made, warps = self._made.get(kernel, (None, 0))
        if made is None or not self.target.startswith("sm_"):
            return {"PER_SM": 1}
        p = torch.cuda.get_device_properties(self.device)
        limits = p.max_threads_per_multi_processor, p.regs_per_multiprocessor, p.shared_memory_per_multiprocessor
        found = residency(made.n_regs, made.metadata.shared, warps, limits)
        first, _ = self._made.get(around, (None, 0))
        if around is not None and (first is None or first.n_regs <= found["maxnreg"]):
            del found["maxnreg"]
        return found

    def starts_early(self):
        """Do kernels here know how to wait for those ahead of them (programmatic dependent launch)?"""
        return self.target.startswith("sm_") and int(self.target[3:]) >= 90

    def starts_beside(self):
        """May a kernel start while the one ahead of it runs, and wait for what that makes? Not where ranks share a
        device: its programs could take the place of those of another rank that it waits for."""
        return self.alone and self.starts_early()

    def crowd(self, programs):
        """So many programs of a multiprocessor, or one where other ranks want some of it."""
        return programs if self.alone else 1

    def _scratch(self, size, align, stream):
        return torch.empty(size, dtype=torch.int8, device=self.device)

    def multicast(self, memory):
        """Address at which the switch adds up this symmetric memory of all ranks; 0 where it cannot."""
        for tensor, handle, _ in self._keep:
            if tensor is memory.local and handle.buffer_ptrs[self.rank] == tensor.data_ptr():
                return handle.multicast_ptr  # a tensor inside a segment would need its place there
        return 0

    def load(self, kernel):
        """Compile and load a kernel in CUDA C++. None, or why it cannot be."""
        if not self.target.startswith("sm_") or int(self.target[3:]) < 90:
            return f"{self.target} has no multimem instructions"
        try:
            kernel.load(self.target)
        except (OSError, RuntimeError) as error:
            return str(error)
        return None

    def launch_cuda(self, kernel, programs, threads, args):
        """Start a loaded kernel on the main lane; `args` are ctypes values."""
        kernel.launch(programs, threads, args, self._stream("main").cuda_stream)

    def multiply(self, label, out, left, right, transposed):
        """out = left @ right, or left @ right.T, by the library on the main lane. `label` names it to a profiler."""
        if self.device.type == "cuda":
            torch.cuda.nvtx.mark(label)
        with torch.no_grad():
            torch.mm(left, right.t() if transposed else right, out=out)

    def release(self):
        """Forget all symmetric memory, lanes and the process group. The device is idle."""
        self._keep.clear()
        self.end_lanes()
        self._leave_group()

    def synchronize(self):
        """Block the host until the device is idle."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def timeout(self):
        """Seconds after which the process group gives up."""
        try:
            return self.group._get_backend(self.device).options._timeout.total_seconds()
        except (AttributeError, RuntimeError):  # a backend that does not say
            return 600.0

    # ---- the process group (construction, `exact`, `fallback`)

    def vote(self, value):
        """Every rank's value, in rank order. Collective."""
        values = [None] * self.world
        try:
            dist.all_gather_object(values, value, group=self.group)
        except RuntimeError as error:
            raise self._failed("a meeting of all ranks", error) from error
        return values

    def _failed(self, what, error):
        """The error of a collective of the process group as one that names this rank and who does not answer."""
        absent = self.roll_call()
        said = f"ranks {absent} do not answer" if absent else "none answers" if absent is None else "all answer"
        self.failure = f"{what} failed and {said}: {str(error).splitlines()[0]}"
        return RuntimeError(f"rank {self.rank}: {self.failure}")

    def roll_call(self):
        """Ranks that have not come to this roll call within PATIENCE, each by itself through the store of the process
        group; None where there is no store (any more). Ranks come when a collective or wait of theirs fails."""
        try:
            name = self.group.group_name
            number = self.ROLL_CALLS[name] = self.ROLL_CALLS.get(name, 0) + 1
            store, key = dist.distributed_c10d._get_default_store(), f"chunkdsl/{name}/{number}/"
            store.set(f"{key}{self.rank}", "here")
            end = time.monotonic() + self.PATIENCE
            while True:
                absent = [rank for rank in range(self.world) if not store.check([f"{key}{rank}"])]
                if not absent or time.monotonic() > end:
                    return absent
                time.sleep(0.02)
        except (AttributeError, RuntimeError, ValueError):  # closed, or a store that ended with its rank
            return None

    def barrier(self):
        """Every rank has come here and its device is idle. Collective."""
        self.synchronize()
        self.vote(None)
