"""Run a generated wrapper without a device and write down which kernels it would have compiled.

`RecordingMachine` has the methods of `runtime.machine.Machine`. Memory is mapped but not touched, so the bounds may
be those of production; a launch becomes a `KernelUse`. Nothing is computed: results are zeros of the right shape.
The signature of a use is made by Triton's own binder, so it is the one that a real launch would have asked for.
"""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from triton.compiler.compiler import make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature

from chunkdsl.aot.targets import compile_kernel, find_target
from chunkdsl.runtime.machine import Machine, Symmetric, residency

# Python names it from 3.13 on; without it a host that does not overcommit refuses production bounds
NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
PEER_STRIDE = 1 << 40  # bytes between the made-up addresses of two ranks: no offset into a buffer reaches a neighbour


@dataclass(frozen=True)
class KernelUse:
    """One variant of a kernel. `signature` maps parameter to Triton type ("*bf16", "i32", "constexpr",
    "tensordesc<bf16[128, 64]>"), `constants` and `attrs` are keyed by parameter path as `ASTSource` wants them,
    `args` says what was passed."""

    kernel: JITFunction = field(repr=False)
    signature: Mapping[str, object]
    constants: Mapping[tuple[int, ...], object]
    attrs: Mapping[tuple[int, ...], list]
    warps: int
    stages: int
    args: Mapping[str, str] = field(compare=False)
    registers: int = 0  # most of a thread; 0: the compiler's choice

    @property
    def name(self) -> str:
        return self.kernel.fn.__name__

    @property
    def key(self) -> tuple:
        """Equal for two uses that compile to the same binary."""
        parts = [sorted((k, repr(v)) for k, v in m.items()) for m in (self.signature, self.constants, self.attrs)]
        where = self.kernel.fn.__code__.co_filename
        return (where, self.kernel.fn.__qualname__, *(tuple(p) for p in parts), self.warps, self.stages, self.registers)

    def __hash__(self) -> int:
        return hash(self.key)


def blank(shape, dtype) -> torch.Tensor:
    """A zeroed CPU tensor of `shape` whose pages are mapped only when touched; page-aligned, like device memory."""
    numel = math.prod(shape)
    if numel == 0:
        return torch.empty(shape, dtype=dtype)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
    memory = mmap.mmap(-1, numel * dtype.itemsize, flags=flags)
    return torch.frombuffer(memory, dtype=dtype, count=numel).view(tuple(shape))


def record_use(kernel, args, constants, warps, stages, target="sm_90") -> KernelUse:
    """The variant that `kernel[grid](**args, **constants, num_warps=warps, num_stages=stages)` would compile.

    Follows the kernel's `do_not_specialize` and default values. TypeError for a kernel that was decorated under
    TRITON_INTERPRET=1 (it has no compiler) and for arguments that do not fit its parameters.
    """
    if not isinstance(kernel, JITFunction):
        raise TypeError(f"{kernel!r} was decorated for the interpreter: import its module without TRITON_INTERPRET")
    backend = make_backend(find_target(target).gpu)
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, special, options = bind(**args, **constants, num_warps=warps, num_stages=stages)
    _, signature, constexprs, attrs = kernel._pack_args(backend, options, bound, special, options)
    said = {name: _describe(value) for name, value in args.items()}
    return KernelUse(kernel, signature, constexprs, attrs, warps, stages, said, constants.get("maxnreg", 0))


class RecordingMachine:
    """Rank `rank` of `world` on a device that does not exist. `uses` holds each distinct variant once, in order of
    first launch; `log` every launch and copy as (kind, what, lane), for tests of the wrapper's own order."""

    failure = ""

    def __init__(self, rank: int = 0, world: int = 2, target: str = "sm_90") -> None:
        self.group = None
        self.rank = rank
        self.world = world
        self.device = torch.device("cpu")
        self.target = target
        self.sms = find_target(target).sms
        self.log: list[tuple[str, str, str]] = []
        self._uses: dict[tuple, KernelUse] = {}

    def among(self, ranks, group):
        """The same device among some of its ranks, which notes its kernels here."""
        found = RecordingMachine(ranks.index(self.rank), len(ranks), self.target)
        found._uses, found.log = self._uses, self.log
        return found

    @property
    def uses(self) -> tuple[KernelUse, ...]:
        return tuple(self._uses.values())

    # ---- memory

    def symmetric(self, name, shape, dtype):
        local = blank(shape, dtype)
        own = local.data_ptr()
        addresses = tuple(own + (r - self.rank) % self.world * PEER_STRIDE for r in range(self.world))
        return Symmetric(local, addresses, torch.tensor(addresses, dtype=torch.int64))

    def zeros(self, name, shape, dtype):
        return blank(shape, dtype)

    def pinned(self, name, shape, dtype):
        return blank(shape, dtype)

    def empty(self, shape, dtype):
        return blank(shape, dtype)

    # ---- work

    def launch(self, kernel, programs, args, constants, warps, stages, early=False, lane="main"):
        use = record_use(kernel, args, constants, warps, stages, self.target)
        self._uses.setdefault(use.key, use)
        self.log.append(("launch", use.name, lane))

    def fit(self, kernel, around=None):
        """As `Machine.fit` would find it on a device: the kernel is compiled for the target. What is `around` it is
        always kept to its registers, which is the harder case."""
        use, target = next((u for u in self.uses if u.kernel is kernel), None), find_target(self.target)
        if use is None or not target.nvidia:
            return {"PER_SM": 1}
        made = compile_kernel(use, self.target)
        return residency(made.registers, made.shared, use.warps, (2048, 65536, target.shared + 1024))

    alone, starts_early, starts_beside, crowd = True, Machine.starts_early, Machine.starts_beside, Machine.crowd

    def prepared(self, made, kernel, programs, args, constants, changing):
        return None

    def multicast(self, memory):
        return memory.local.data_ptr() if self.target in ("sm_90", "sm_100") else 0

    def load(self, kernel):
        """Nothing is loaded; `verify` compiles it."""

    def launch_cuda(self, kernel, programs, threads, args):
        self.log.append(("launch", kernel.name, "main"))

    def copy(self, destination, source, nbytes, lane, label=""):
        self.log.append(("copy", str(nbytes), lane))

    def copy_rows(self, destination, pitch, source, source_pitch, width, height, lane, label=""):
        self.log.append(("copy", f"{height} x {width}", lane))

    def multiply(self, label, out, left, right, transposed):
        self.log.append(("multiply", label, "main"))

    def fork(self, lane):
        self.log.append(("fork", "", lane))

    def join(self, lane):
        self.log.append(("join", "", lane))

    def begin_call(self, name, fused=True):
        self.log.append(("begin", name, "main"))

    def end_call(self):
        self.log.append(("end", "", "main"))

    def release(self):
        pass

    def timeout(self):
        """Seconds after which the process group gives up."""
        return 600.0

    def capturing(self):
        """There are no graphs here."""
        return False

    def open_lane(self, lane):
        """Lanes need no preparation here."""

    def synchronize(self):
        pass

    # ---- the process group

    def vote(self, value):
        return [value] * self.world

    def peek(self, memory):
        return [0] * self.world

    def roll_call(self):
        return []

    def barrier(self):
        pass

    def gather(self, tensor, flat=False):
        every = tensor.unsqueeze(0).expand(self.world, *tensor.shape)
        return every.flatten(0, 1) if flat else every

    def all_to_all(self, tensor):
        return tensor

    def total_shard(self, tensor, rows):
        """This rank's `rows` rows of the sum over ranks."""
        return self.total(tensor)[self.rank * rows : (self.rank + 1) * rows]

    def total(self, tensor, own=False):
        return blank(tensor.shape, tensor.dtype)


def _describe(value) -> str:
    base = getattr(value, "base", value)
    if isinstance(base, torch.Tensor):
        kind = "descriptor" if base is not value else "tensor"
        return f"{kind} {str(base.dtype).removeprefix('torch.')}{list(getattr(value, 'shape', base.shape))}"
    return repr(value)
