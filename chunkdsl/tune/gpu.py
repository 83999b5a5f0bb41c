"""The clock that measures: ranks that torchrun started, a GPU each. Rank 0 sends modules and sizes, all measure them
together, and the slowest rank's times count.

A setting is proven for these ranks first. Its bits are held against `exact` at the smallest size, then its calls and
the library's are captured in CUDA graphs (the library's run eagerly where its process group cannot be captured) and
replayed in turns. What fails on any rank fails on all, and is a result too: it is not tried again.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from chunkdsl.check.worlds import prove_worlds
from chunkdsl.ir.meshes import World, sizes
from chunkdsl.plan.schedule import Schedule
from chunkdsl.render.module import render_module
from chunkdsl.tune.evidence import Result
from chunkdsl.tune.search import Job
from chunkdsl.tune.space import schedule_of

ROUNDS = 9  # times that are kept
ENOUGH, FEWEST, MOST = 2000.0, 4, 100  # microseconds that the calls of a graph shall take; of these so few and many
TIMEOUT = 20.0  # seconds of a wait inside a kernel
NEEDED = {"TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NCCL_NVLS_ENABLE": "0"}
TORCHRUN = "start it as `torchrun --nproc-per-node 2 -m chunkdsl tune ...`, or rehearse without GPUs: `--rehearse`"


class CannotTune(Exception):
    """`what` stands in the way, `help` says how to go on."""

    def __init__(self, what: str, help: str) -> None:
        super().__init__(what)
        self.what, self.help = what, help


class Failed(Exception):
    """Some rank could not do its part."""


@contextmanager
def ranks(share_gpu: bool) -> Iterator[Ranks]:
    """This process among the ranks that torchrun started. CannotTune where there are none or too few GPUs."""
    if "RANK" not in os.environ:
        raise CannotTune("there is one process alone", TORCHRUN)
    try:
        import torch
    except ImportError:
        raise CannotTune("torch is not installed", "install the extra `run`, or rehearse: `--rehearse`") from None
    if not torch.cuda.is_available():
        raise CannotTune("there is no GPU", "rehearse without one: `--rehearse`")
    missing = [f"{name}={value}" for name, value in NEEDED.items() if os.environ.get(name) != value]
    if missing:
        raise CannotTune(f"{' and '.join(missing)} is not set", "NVLink multicast stays off: set it for all ranks")
    world, gpus = int(os.environ["WORLD_SIZE"]), torch.cuda.device_count()
    if gpus < world and not share_gpu:
        few = "`--share-gpu` lets ranks share them, which shows that tuning works and measures nothing of use"
        raise CannotTune(f"{world} ranks have {gpus} GPU{'s' * (gpus > 1)}", few)
    here = Ranks(world, share_gpu and gpus < world)
    try:
        yield here
    finally:
        here.leave()


class Ranks:
    """All ranks as one of them sees them. `meet` is the one collective of the host: whoever fails comes to it with an
    error where the others come with something else, so that no rank waits for one that has given up."""

    def __init__(self, world: int, shared: bool) -> None:
        import torch
        import torch.distributed as dist

        if shared:
            os.environ["TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES"] = "1"
        self.device = torch.device("cuda", 0 if shared else int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(self.device)
        dist.init_process_group("cpu:gloo,cuda:gloo" if shared else "nccl")
        self.rank, self.world, self.shared = dist.get_rank(), world, shared
        self.host = dist.new_group(backend="gloo")
        self.token = torch.zeros(1, device=self.device)
        self.folder = tempfile.mkdtemp(prefix="chunkdsl-tune-")
        self.names = self.meet(torch.cuda.get_device_name(self.device))

    def meet(self, value, error: str = "") -> list:
        """Every rank's value; Failed if one has an error."""
        import torch.distributed as dist

        values = [None] * self.world
        dist.all_gather_object(values, (value, error), group=self.host)
        wrong = {rank: said for rank, (_, said) in enumerate(values) if said}
        if wrong:
            rank, said = next(iter(wrong.items()))
            raise Failed(f"rank {rank}: {said}")
        return [v for v, _ in values]

    def clock(self, made: Schedule, world: World, gpu: str) -> Measured:
        return Measured(self, made, world)

    def serve(self) -> None:
        """What ranks but the first do: measure what it sends, until it sends None."""
        while (task := self.meet(None)[0]) is not None:
            self.measure(*task)

    def leave(self) -> None:
        import torch.distributed as dist

        if self.rank == 0:
            self.meet(None)
        shutil.rmtree(self.folder, ignore_errors=True)
        dist.destroy_process_group()

    def measure(self, text: str, op: str, shape: tuple[int, ...], calls: list[dict[str, int]]) -> dict | str:
        """(times, the library's) by place of the call, or why there are none. The same on every rank."""
        found: dict[int, tuple] | str = {}
        instance = None
        try:
            instance = self._attempt(lambda: self._instance(text, shape, calls))
            found = {i: self._times(getattr(instance, op), dims, i == 0) for i, dims in enumerate(calls)}
        except Failed as why:
            found = str(why)
        if instance is not None:
            try:
                self._attempt(instance.close)
            except Failed as why:
                found = found if isinstance(found, str) else str(why)
        return found

    def _attempt(self, act: Callable):
        """What `act` returns, on every rank, or Failed on all."""
        made, error = None, ""
        try:
            made = act()
        except Exception as why:
            error = f"{type(why).__name__}: {str(why)[:300]}"
        self.meet(None, error)
        return made

    def _instance(self, text: str, shape: tuple[int, ...], calls: list[dict[str, int]]):
        """The module's class, made for the largest of the calls. Gates are open: what is timed is the fused code."""
        import hashlib

        path = os.path.join(self.folder, f"m{hashlib.sha256(text.encode()).hexdigest()[:16]}.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        own = [v for v in vars(module).values() if isinstance(v, type) and v.__module__ == module.__name__]
        for operation in (v for v in own if hasattr(v, "GATES")):
            operation.GATES = ((1, "", 0),)
        cls = next(v for v in own if getattr(v, "OPS", None))
        mesh = None
        if len(shape) > 1:
            from torch.distributed.device_mesh import init_device_mesh

            mesh = init_device_mesh("cuda", shape, mesh_dim_names=cls.AXES)
        bounds = {name: max(dims[name] for dims in calls) for name in cls.RANGES}
        machine = module.Machine(None, self.device)
        if self.shared:  # kernels of all ranks must find room at once
            machine.sms = max(1, machine.sms // self.world - 8)
        return cls(machine=machine, mesh=mesh, timeout=TIMEOUT, **bounds)

    def _times(self, op, dims: dict[str, int], check: bool) -> tuple[list[float], list[float]]:
        dims = {name: dims[name] for name in op.RANGES}
        x = self._attempt(lambda: self._inputs(op, dims))
        if check:
            self._attempt(lambda: self._check_bits(op, x, dims))
        for _ in range(2):  # the first one may still load what the second one is timed with
            once = max(self.meet(self._attempt(lambda: self._between_events(lambda: op(*x, **dims)))))
        count = max(FEWEST, min(MOST, int(ENOUGH / once)))
        works = {}
        for name, call in (("ours", op), ("library", op.fallback)):
            eager = name == "library" and self.shared
            works[name] = self._captured(lambda call=call: call(*x, **dims), count, eager)
        seen: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(ROUNDS):
            for name, work in works.items():
                seen[name].append(self._attempt(lambda work=work: self._between_events(work)) / count)
        self._attempt(op.module.check)
        every = self.meet(seen)
        return tuple([round(max(t), 3) for t in zip(*(e[name] for e in every), strict=True)] for name in seen)

    def _inputs(self, op, dims: dict[str, int]) -> list:
        """Normal numbers, other ones on every rank: only times come of them, and bits against `exact`."""
        import torch

        made = []
        for i, (dtype, shape) in enumerate(op.PARAMETERS.values()):
            generator = torch.Generator(device=self.device).manual_seed(100 * self.rank + i)
            local = op.local_shape(shape, dims)
            scale = max(1, local[-1]) ** -0.25 if len(local) > 1 else 1.0
            made.append((torch.randn(local, generator=generator, device=self.device) * scale).to(dtype))
        return made

    def _check_bits(self, op, x: list, dims: dict[str, int]) -> None:
        """RuntimeError where a call has other bits than `exact`."""
        import torch

        if op.why_not:
            raise RuntimeError(f"it does not run fused: {op.why_not}")
        again = [t.clone() for t in x]
        ours, exact = op(*[t.clone() for t in x], **dims), op.exact(*again, **dims)
        torch.cuda.synchronize(self.device)
        op.module.check()
        pairs = zip(*(r if isinstance(r, tuple) else (r,) for r in (ours, exact)), strict=True)
        if not all(torch.equal(a, b) for a, b in pairs):
            raise RuntimeError("a call has other bits than `exact`")

    def _between_events(self, work: Callable) -> float:
        """Microseconds of work that begins when all ranks have come here."""
        import torch
        import torch.distributed as dist

        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(self.device)
        dist.all_reduce(self.token)
        start.record()
        work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3

    def _captured(self, call: Callable, count: int, eager: bool) -> Callable:
        """`count` calls as work for the GPU."""
        import torch

        def repeated() -> None:
            for _ in range(count):
                call()

        def capture():
            for _ in range(2):
                call()
            torch.cuda.synchronize(self.device)

        self._attempt(capture)
        if eager:
            return repeated
        graph = torch.cuda.CUDAGraph()

        def record() -> None:
            with torch.cuda.graph(graph):
                repeated()

        self._attempt(record)
        return graph.replay


class Measured:
    """Rank 0's clock."""

    def __init__(self, here: Ranks, made: Schedule, world: World) -> None:
        import torch
        import triton

        self.here, self.made, self.world, self.rehearsal = here, made, world, here.shared
        names = " and ".join(sorted(set(here.names)))
        self.gpu = f"{names}, shared by {here.world} ranks" if here.shared else names
        self.versions = {"torch": torch.__version__, "triton": triton.__version__, "cuda": str(torch.version.cuda)}

    def measure(self, job: Job) -> list[Result]:
        name, op = job.space.op.name, schedule_of(job.space, job.setting)
        alone = replace(self.made, ops=(op,), gradients=())
        found: dict | str = self._unproven(alone)
        if not found:
            text = render_module(alone, (self.world,))
            task = (text, name, sizes(self.world), [dict(c) for c in job.sizes])
            self.here.meet(task)
            found = self.here.measure(*task)
        results = []
        for i, bound in enumerate(job.sizes):
            made = Result(name, self.world, bound, job.setting)
            if isinstance(found, str):
                results.append(replace(made, failed=found))
            else:
                us, library = found[i]
                results.append(replace(made, us=tuple(us), library=tuple(library)))
        return results

    def _unproven(self, alone: Schedule) -> str:
        """Why the plan is not proven for these ranks."""
        refuted = [r.message for v in prove_worlds(alone, [self.world]) for r in v.refutations]
        return f"not proven: {refuted[0]}" if refuted else ""
