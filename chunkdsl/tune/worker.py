"""One process of those that measure: `python -m chunkdsl.tune.worker`, a rank with a GPU, started by group.py. Rank 0
takes a task from its standard input, sends it to all ranks, all measure it together, and rank 0 answers; tasks and
answers are JSON, a line each. It needs torch and Triton, and of chunkdsl only what is in this folder.

    {"module": "a.py", "op": "mlp", "world": [2], "calls": [{"M": 4096}, ...]}
    {"found": [[us, library, eager us, eager library], ...]} or {"failed": "rank 1: ...", "broken": false}

With COMPILE in its environment it makes instances that have no peers, so that their kernels are compiled, and answers
`{}` or the failure. `broken`: the process is of no more use.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable

COMPILE, SHARED = "CHUNKDSL_TUNE_COMPILE", "CHUNKDSL_TUNE_SHARED"  # "1" for yes
NEEDED = {"TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NCCL_NVLS_ENABLE": "0"}
ROUNDS = 9  # times that are kept
ENOUGH, FEWEST, MOST = 2000.0, 4, 100  # microseconds that calls in a row shall take; of these so few and many
TIMEOUT = 20.0  # seconds of a wait inside a kernel


class Failed(Exception):
    """Some rank could not do its part."""


class Ranks:
    """All ranks as one of them sees them. `meet` is the one collective of the host: whoever fails comes to it with an
    error where the others come with something else, so that no rank waits for one that has given up."""

    def __init__(self, shared: bool) -> None:
        import torch
        import torch.distributed as dist

        if shared:
            os.environ["TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES"] = "1"
        self.device = torch.device("cuda", 0 if shared else int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(self.device)
        if shared:
            dist.init_process_group("cpu:gloo,cuda:gloo")
        else:
            dist.init_process_group("nccl", device_id=self.device)
        self.rank, self.world, self.shared = dist.get_rank(), dist.get_world_size(), shared
        self.host = dist.new_group(backend="gloo")
        self.token = torch.zeros(1, device=self.device)
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

    def measure(self, task: dict) -> dict:
        """The answer to a task, the same on every rank."""
        instance = None
        try:
            module, cls = self._attempt(lambda: load(task["module"]))
            instance = self._attempt(lambda: self._instance(module, cls, task))
            op = getattr(instance, task["op"])
            answer = {"found": [self._times(op, dims, i == 0) for i, dims in enumerate(task["calls"])]}
        except Failed as why:
            answer = {"failed": str(why)}
        if instance is not None:
            try:
                self._attempt(instance.close)
            except Failed as why:
                answer = answer if "failed" in answer else {"failed": str(why)}
        if "failed" in answer:
            answer["broken"] = any(self.meet(self._lost()))
        return answer

    def _lost(self) -> bool:
        """Whether this process's GPU does nothing more: a fault in a kernel ends its context."""
        import torch

        try:
            torch.cuda.synchronize(self.device)
            return bool(torch.zeros(1, device=self.device).item())
        except RuntimeError:
            return True

    def _attempt(self, act: Callable):
        """What `act` returns, on every rank, or Failed on all."""
        made, error = None, ""
        try:
            made = act()
        except Exception as why:
            error = f"{type(why).__name__}: {str(why)[:300]}"
        self.meet(None, error)
        return made

    def _instance(self, module, cls, task: dict):
        """The module's class, made for the largest of the calls. What fails in it fails on all ranks."""
        mesh, shape = None, tuple(task["world"])
        if len(shape) > 1:
            from torch.distributed.device_mesh import init_device_mesh

            mesh = init_device_mesh("cuda", shape, mesh_dim_names=cls.AXES)
        machine = module.Machine(None, self.device)
        if self.shared:  # kernels of all ranks must find room at once
            machine.sms = max(1, machine.sms // self.world - 8)
        return cls(machine=machine, mesh=mesh, timeout=TIMEOUT, **bounds_of(cls, task["calls"]))

    def _times(self, op, dims: dict[str, int], check: bool) -> list[list[float]]:
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
            works[name, count] = self._work(lambda call=call: call(*x, **dims), count, eager)
        # As many calls one by one: behind an idle device few of them would show how long the host takes to begin.
        for name, call in (("ours", op), ("library", op.fallback)):
            works[f"eager {name}", count] = _repeated(lambda call=call: call(*x, **dims), count)
        seen: list[list[float]] = [[] for _ in works]
        for work in works.values():  # what is called often may be called another way from then on
            self._attempt(lambda work=work: self._between_events(work))
        for _ in range(ROUNDS):
            for times, ((_, calls), work) in zip(seen, works.items(), strict=True):
                times.append(self._attempt(lambda work=work: self._between_events(work)) / calls)
        self._attempt(op.module.check)
        every = self.meet(seen)
        return [[round(max(t), 3) for t in zip(*one, strict=True)] for one in zip(*every, strict=True)]

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
        dist.all_reduce(self.token)
        torch.cuda.synchronize(self.device)
        start.record()
        work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3

    def _work(self, call: Callable, count: int, eager: bool) -> Callable:
        """`count` calls as work for the GPU, captured unless `eager`."""
        import torch

        def warm_up() -> None:
            for _ in range(2):
                call()
            torch.cuda.synchronize(self.device)

        self._attempt(warm_up)
        if eager:
            return _repeated(call, count)
        graph = torch.cuda.CUDAGraph()

        def record() -> None:
            with torch.cuda.graph(graph):
                _repeated(call, count)()

        self._attempt(record)
        return graph.replay


def _repeated(call: Callable, count: int) -> Callable:
    def work() -> None:
        for _ in range(count):
            call()

    return work


def load(path: str) -> tuple:
    """(module, its class) of a generated file, with all gates open: what is timed is the fused code."""
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    own = [v for v in vars(module).values() if isinstance(v, type) and v.__module__ == module.__name__]
    for operation in (v for v in own if hasattr(v, "GATES")):
        operation.GATES = operation.EAGER_GATES = ((1, "", 0),)
    return module, next(v for v in own if getattr(v, "OPS", None))


def bounds_of(cls, calls: list[dict[str, int]]) -> dict[str, int]:
    """For an instance that serves all these calls."""
    return {name: max(dims[name] for dims in calls) for name in cls.RANGES}


def compile_alone(task: dict) -> dict:
    """{}, or why the kernels of a module do not compile."""
    from chunkdsl.tune.lone import lone_machine

    module, cls = load(task["module"])
    shape = tuple(task["world"])
    machine = lone_machine(module, shape)
    cls(machine=machine, mesh=shape if len(shape) > 1 else None, **bounds_of(cls, task["calls"]))
    machine.synchronize()
    return {}


def serve(answer: Callable[[dict | None], dict], lines, out) -> None:
    """Answers every line until they end."""
    for line in lines:
        out.write(json.dumps(answer(json.loads(line))) + "\n")
        out.flush()


def main() -> int:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    if os.environ.get(COMPILE) == "1":
        import torch

        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        serve(_attempted, sys.stdin, out)
        return 0
    here = Ranks(os.environ.get(SHARED) == "1")
    if here.rank:
        while (task := here.meet(None)[0]) is not None:
            here.measure(task)
    else:
        out.write(json.dumps({"names": here.names, "versions": _versions()}) + "\n")
        out.flush()
        serve(lambda task: here.measure(here.meet(task)[0]), sys.stdin, out)
        here.meet(None)
    out.flush()
    os._exit(0)  # what symmetric memory and NCCL do at exit may wait for peers that are gone


def _attempted(task: dict) -> dict:
    try:
        return compile_alone(task)
    except Exception as why:
        return {"failed": f"{type(why).__name__}: {str(why)[:300]}"}


def _versions() -> dict[str, str]:
    import torch
    import triton

    return {"torch": torch.__version__, "triton": triton.__version__, "cuda": str(torch.version.cuda)}


if __name__ == "__main__":
    sys.exit(main())
