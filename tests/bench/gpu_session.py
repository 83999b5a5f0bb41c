"""Cases of tests/bench/multi_gpu.py on GPUs: one rank, which keeps one instance at a time. See rank_session.py."""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
import triton
from check_processes import machine_of, start
from checks import wrong_calls, wrong_replays
from local_ranks import Board, LocalMachine, LonePeer
from modules import fused_call, inputs, load, needed_bytes, relative_error, sizes_within
from other_peers import other_of, prepare, reason
from peers import peers_of
from timing import capture, interleaved
from watched import report

SHARE = 0.6  # of the free memory, for one module and its tensors
ROUNDS, GEMM_CALLS, SMALL_CALLS = 9, 4, 100  # rounds of measuring; calls in a graph
CHECKED = (1000, 1, 3, 2048)
TIMEOUT = 20.0  # seconds of a wait inside a kernel
FIRST, QUICK = 25.0, 10.0  # seconds at most for a call that is compiled first, and for one that has run


class GpuSession:
    """`task`: device, world, rows of the largest call by spec."""

    def __init__(self, task: dict, rank: int) -> None:
        self.task, self.rank, self.world = task, rank, task["world"]
        self.key, self.module, self.mesh = None, None, {}
        self.compiles = all(c["kind"] == "compile" for c in task["cases"])
        if self.compiles:
            torch.cuda.set_device(task["gpu"])
        elif self.world == 1:
            torch.cuda.set_device(0)
        else:
            if any(c["kind"] == "beside" for c in task["cases"]):
                prepare(task["peers"])
            start(rank, self.world, int(os.environ["MASTER_PORT"]))
        self.shared = torch.cuda.device_count() < self.world

    def do(self, case: dict) -> dict:
        return getattr(self, case["kind"])(**case["about"])

    # ---- instances

    def machine(self):
        if self.compiles:
            return LonePeer(self.world)
        if self.world == 1:
            return LocalMachine(Board(1), 0, torch.cuda.get_device_properties(0).multi_processor_count)
        return machine_of(dist.group.WORLD)

    def mesh_of(self, cls, shape):
        """What a module of two axes takes beside its machine."""
        if isinstance(shape, int):
            return None
        if self.compiles or self.world == 1:
            return tuple(shape)
        from torch.distributed.device_mesh import init_device_mesh

        key = tuple(shape), cls.AXES
        if key not in self.mesh:
            self.mesh[key] = init_device_mesh("cuda", key[0], mesh_dim_names=cls.AXES)
        return self.mesh[key]

    def instance(self, stem: str, shape):
        """The module of a spec, made for the largest sizes that fit into memory; the one before it is closed."""
        shape = shape if isinstance(shape, int) else tuple(shape)
        if self.key == (stem, shape):
            return self.module
        self.leave()
        cls, machine = load(stem), self.machine()
        free = min(machine.vote(torch.cuda.mem_get_info()[0])) * SHARE / (self.world if self.shared else 1)
        # Compiling takes little memory, but not so few rows that a size of 1 became a constant of the kernels.
        bound = max(CHECKED) if self.compiles else self.task["rows"].get(stem, max(CHECKED))
        bounds = {k: max(low, min(high, bound)) for k, (low, high, _) in cls.RANGES.items()}
        while needed_bytes(cls, bounds, shape) > free:
            smaller = {k: max(low, bounds[k] // 2) for k, (low, _, _) in cls.RANGES.items()}
            if smaller == bounds:
                raise RuntimeError(f"{stem} does not fit into {free / 1e9:.1f} GB")
            bounds = smaller
        self.module = cls(machine=machine, mesh=self.mesh_of(cls, shape), timeout=TIMEOUT, **bounds)
        self.key = stem, shape
        return self.module

    def leave(self) -> None:
        if self.module is not None:
            self.module.close()
        self.key = self.module = None
        gc.collect()
        torch.cuda.empty_cache()

    def close(self) -> None:
        self.leave()
        if dist.is_initialized():
            dist.destroy_process_group()

    # ---- cases

    def compile(self, stem: str, shape) -> dict:
        """Every kernel of a module into Triton's cache, by one process for all ranks."""
        self.instance(stem, shape)
        torch.cuda.synchronize()
        return {}

    def check(self, stem: str, op: str, shape) -> dict:
        """Bits, eagerly and in graph replays."""
        m = self.instance(stem, shape)
        run = getattr(m, op)
        if run.why_not:
            return {"wrong": f"does not run fused: {run.why_not}"}
        calls = sizes_within(run, CHECKED)
        wrong = wrong_calls(run, calls, m.machine)
        dims = fused_call(run, calls)
        replays = wrong_replays(run, dims, m.machine) if dims else None
        every = m.machine.vote((wrong, replays))
        bad = [f"rank {rank}: sizes {w}, replays {r}" for rank, (w, r) in enumerate(every) if w or r]
        graph = "replayed" if replays is not None else "not replayed"
        return {"wrong": "; ".join(bad)[:600], "calls": 2 * len(calls), "graph": graph}

    def measure(self, stem: str, op: str, shape, dim: str, size: int, torchs: bool) -> dict:
        """Times in graphs and eagerly, of the slowest rank, and how far results are apart."""
        why_not = self.untimed(stem, shape, dim, size)
        if why_not:
            return {"untimed": why_not}
        m, calls, x = self.row(stem, op, shape, {dim: size})
        torchs = torchs and size % self.world == 0  # torch wants equal shards
        calls |= peers_of(stem, getattr(m, op), x, {dim: size}, torchs)
        found = timed(calls, calls_of(stem))
        in_place = {"library", *found["eager"]} - {"ours"} if stem == "small_ar" else ()  # time after time
        results = {name: calls[name]() for name in found["eager"] if name not in in_place}
        m.machine.synchronize()
        found["apart"] = {name: relative_error(r, results["ours"]) for name, r in results.items()}
        m.check()
        return found

    def beside(self, stem: str, op: str, shape, dim: str, size: int, peer: str) -> dict:
        """The same of another peer's call and ours. Its eager times are told before it is captured, since graphs of
        some that run eagerly do not end; where it hangs, what it was about to do is known."""
        why_not = self.untimed(stem, shape, dim, size)
        if why_not:
            return {"untimed": why_not}
        m, calls, x = self.row(stem, op, shape, {dim: size})
        call, why = other_of(stem, peer, x)
        if call is None:
            return {"refused": {peer: why}}
        self.tell("its first call", FIRST)
        try:
            result = call()
            m.machine.synchronize()
        except Exception as error:
            return {"refused": {peer: reason(error)}}
        self.tell("ours", FIRST)
        ours = calls["ours"]()
        m.machine.synchronize()
        apart = relative_error(result, ours)
        found = timed(calls | {peer: call}, calls_of(stem), self.tell)
        m.check()
        return found | {"apart": {peer: apart}}

    def untimed(self, stem: str, shape, dim: str, size: int) -> str:
        """Why a row cannot be timed."""
        if self.world == 1 or self.shared:
            return "it takes two ranks or more, with a GPU each"
        if self.instance(stem, shape).bounds[dim] < size:
            return f"{dim} = {size} does not fit into {SHARE:.0%} of the free memory"
        return ""

    def row(self, stem: str, op: str, shape, dims: dict[str, int]) -> tuple:
        """The instance, our call, and its inputs."""
        m = self.instance(stem, shape)
        run = getattr(m, op)
        x = inputs(run, dims, self.rank, 7)
        return m, {"ours": lambda: run(*x, **dims)}, x

    def tell(self, at: str, limit: float, **found) -> None:
        """What was found so far, and what is next, with its limit in seconds."""
        if self.rank == 0:
            report({"so far": found, "at": at, "limit": limit})


def calls_of(stem: str) -> int:
    """In a graph."""
    return SMALL_CALLS if stem == "small_ar" else GEMM_CALLS


def timed(calls: dict[str, Callable], times: int, tell: Callable = lambda *_, **__: None) -> dict:
    """Medians by name, and why what this torch does not have or cannot capture is not timed, or eagerly alone."""
    graphs, loops, refused = {}, {}, {}

    def attempt(name: str, work: Callable) -> None:
        try:
            work()
        except Exception as error:
            if name == "ours":
                raise
            refused[name] = reason(error)
            torch.cuda.synchronize()

    def loop(name: str, call: Callable) -> None:
        call()
        loops[name] = repeated(call, times)

    def graph(name: str, call: Callable) -> None:
        graphs[name] = capture(call, times, dist.barrier)
        getattr(call, "captured", lambda: None)()

    tell("its eager calls", QUICK)
    for name, call in calls.items():
        attempt(name, partial(loop, name, call))
    eager = rounded(interleaved(loops, times, ROUNDS))
    tell("the capture of its graph", QUICK, eager=eager, refused=refused)
    for name in loops:
        attempt(name, partial(graph, name, calls[name]))
    replays = {name: g.replay for name, g in graphs.items()}
    tell("the first replay of its graph", QUICK)
    interleaved(replays, times, 1, together=True)
    tell("later replays of its graph", QUICK)
    graph_us = rounded(interleaved(replays, times, ROUNDS, together=True))
    return {"graph": graph_us, "eager": eager, "refused": refused}


def repeated(call: Callable, times: int) -> Callable:
    def loop():
        for _ in range(times):
            call()

    return loop


def rounded(times: dict[str, float]) -> dict[str, float]:
    return {name: round(us, 2) for name, us in times.items() if math.isfinite(us)}


def probe() -> dict:
    """What the machine is."""
    count = torch.cuda.device_count()
    if not count:
        raise SystemExit("there is no GPU: use --device cpu")
    names = {torch.cuda.get_device_name(i) for i in range(count)}
    return {
        "name": " and ".join(sorted(names)), "gpus": count, "torch": torch.__version__, "triton": triton.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "memory": torch.cuda.get_device_properties(0).total_memory,
    }  # fmt: skip

