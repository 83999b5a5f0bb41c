"""What `compile` returns for a kernel and a schedule: called like the kernel, `fused[grid](A, B, C, M, N, K)`, on this
rank's tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from chunkdsl.api.call import bind_call
from chunkdsl.api.errors import findings, refuse
from chunkdsl.api.modules import Built, Compiler
from chunkdsl.api.spec_text import OP
from chunkdsl.check.api import compile_arguments, kernel_call_argument

if TYPE_CHECKING:
    import torch


class Fused:
    """`fused[grid]` is a launch, with the grid that the kernel has on its own: numbers, or a function of the arguments
    by name."""

    def __init__(self, compiler: Compiler) -> None:
        self.compiler = compiler
        self.instances: dict[int, object] = {}

    def __getitem__(self, grid) -> Launch:
        return Launch(self, grid)

    @property
    def modules(self) -> tuple[Built, ...]:
        """What was built so far: one for each kind of call."""
        return tuple(self.compiler.built)

    def close(self) -> None:
        """Give back what calls have allocated. Collective, like the first call."""
        for instance in self.instances.values():
            instance.close()
        self.instances = {}


class Launch:
    def __init__(self, fused: Fused, grid: int | Sequence[int] | Callable) -> None:
        self.fused, self.grid = fused, grid

    def __call__(self, *args, **named) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The fused launch over the process group, into the results among the arguments, which are returned.

        The first call of a kind builds the module and allocates; it is collective. ChunkError where something does not
        fit; what the module raises goes through."""
        rank, world = group()
        if any(getattr(getattr(a, "base", a), "is_cpu", False) for a in (*args, *named.values())):
            raise refuse(kernel_call_argument("a fused call with tensors in host memory",
                                              "move them to the GPU, or `fused[grid].simulate(...)`"))  # fmt: skip
        if world != self.fused.compiler.schedule.world_size:
            said = self.fused.compiler.schedule.world_size
            what = f"ChunkSchedule says world_size = {said}, the process group has {world} ranks"
            raise refuse(compile_arguments(what, "make them equal"))
        built, tensors, rows = self.prepare(rank, args, named)
        instance = self.fused.instances.get(id(built))
        if instance is None:
            instance = self.fused.instances[id(built)] = getattr(built.module, built.title)()
        return run(built, instance, tensors, rows)

    def build(self, *args, **named) -> Built:
        """The module of such a call, without a process group and without a call. Arguments are rank 0's, or this
        rank's in a process group; they may be on any device, also "meta"."""
        return self.prepare(group(0)[0], args, named)[0]

    def simulate(self, calls: Sequence[Sequence], *, seed: int = 0, **named) -> list[torch.Tensor]:
        """One call on simulated ranks, on the CPU: `calls[rank]` are the positional arguments of that rank. The module
        is the one that runs on GPUs. Results by rank, which are also in the tensors that were passed.

        Raises `chunkdsl.sim.SimulationFault` for races, accesses out of bounds and deadlocks."""
        from chunkdsl.sim import World

        world = self.fused.compiler.schedule.world_size
        if len(calls) != world:
            raise refuse(kernel_call_argument(f"arguments of {len(calls)} ranks", f"ChunkSchedule has {world}"))
        ready = [self.prepare(rank, args, named) for rank, args in enumerate(calls)]
        built = ready[0][0]
        if any(r[0] is not built for r in ready):
            raise refuse(kernel_call_argument("ranks call with different sizes", "pass the same numbers on every rank"))

        def host(machine):
            instance = getattr(built.module, built.title)(machine=machine)
            operation = getattr(instance, OP)
            operation.gate = operation.eager_gate = ("", 0)  # what is looked for is in the fused code
            _, tensors, rows = ready[machine.rank]
            result = run(built, instance, tensors, rows)
            instance.check()
            instance.close()
            return result

        return World(world, seed=seed).run(host)

    def prepare(self, rank: int, args, named) -> tuple[Built, dict[str, torch.Tensor], int]:
        compiler = self.fused.compiler
        with findings():
            call, tensors = bind_call(compiler.source, self.grid, args, named)
            built, roles = compiler.module_for(call, rank)
            for name in roles.results:
                apart(name, tensors)
        return built, tensors, roles.rows


def apart(result: str, tensors: dict[str, torch.Tensor]) -> None:
    """ChunkError (CD662) where a result shares memory with another argument: a peer, or a program that runs later,
    would read what was stored over it."""
    mine = tensors[result]
    for name, t in tensors.items():
        same = t.device == mine.device and t.device.type != "meta" and t.numel() and mine.numel()
        first, last = max(t.data_ptr(), mine.data_ptr()) if same else 0, min(end_of(t), end_of(mine)) if same else 0
        if name != result and first < last:
            what = f"the result `{result}` and the argument `{name}` share memory"
            raise refuse(kernel_call_argument(what, "pass memory of its own for a result"), "call")


def end_of(t: torch.Tensor) -> int:
    return t.data_ptr() + t.numel() * t.element_size()


def run(built: Built, instance, tensors: dict[str, torch.Tensor], rows: int):
    operation = getattr(instance, OP)
    given = [tensors[n] for n in built.roles.results]
    out = [t if t.dim() > 1 else t.view(-1, 1) for t in given]
    sizes = {built.reading.rows: rows}
    operation(*(tensors[n] for n in built.inputs), out=out[0] if len(out) == 1 else tuple(out), **sizes)
    return given[0] if len(given) == 1 else tuple(given)


def group(otherwise: int | None = None) -> tuple[int, int]:
    """(rank, ranks) of the process group. ChunkError (CD660) without one, unless told what the rank is then."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    if otherwise is None:
        what = "a fused call without a process group"
        mend = "torch.distributed.init_process_group first, or `fused[grid].simulate(...)`"
        raise refuse(compile_arguments(what, mend))
    return otherwise, 1
