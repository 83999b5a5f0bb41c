"""How long calls take on a GPU, in microseconds of one call: inside CUDA graphs and eagerly. With a process group the
slowest rank counts, and ranks meet before each measurement. Decides nothing about what is compared with what.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from itertools import pairwise

import torch
import torch.distributed as dist

WARM_UPS = 3
PAUSE = 1 << 19  # clocks of a GPU, some 300 us


def capture(call: Callable, times: int, meet: Callable = lambda: None) -> torch.cuda.CUDAGraph:
    """A graph of `times` calls, after a few eager ones; `meet` is called just before the capture."""
    for _ in range(WARM_UPS):
        call()
    torch.cuda.synchronize()
    meet()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            call()
    return graph


def between_events(work: Callable, times: int) -> float:
    """Work of `times` calls, between two events of the current stream."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3 / times


def replay_us(graph: torch.cuda.CUDAGraph, times: int) -> float:
    return between_events(graph.replay, times)


def interleaved(works: dict[str, Callable], times: int, rounds: int, together: bool = False) -> dict[str, float]:
    """Medians over rounds in which each work (of `times` calls) has its turn; the slowest rank's. `together`: what is
    enqueued at once, such as a graph, begins on all GPUs at the same time, and not when each host comes to it.
    Collective."""
    seen: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            dist.barrier()
            torch.cuda.synchronize()
            if together:
                begin_together()
            seen[name].append(between_events(work, times))
    medians = slowest([statistics.median(found) for found in seen.values()])
    return dict(zip(seen, medians, strict=True))


def begin_together() -> None:
    """What is enqueued next begins within a few microseconds on all ranks. Hosts are up to 100 us apart, which would
    count as time of calls that wait for each other: they all enqueue during a pause, and a collective ends it."""
    if dist.get_backend() == "nccl":
        torch.cuda._sleep(PAUSE)
        dist.all_reduce(torch.zeros(1, device="cuda"))


def slowest(values: list[float]) -> list[float]:
    """The largest of every rank's values. Collective."""
    found = torch.tensor(values, device="cuda")
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return found.tolist()


def latency(call: Callable, times: int) -> tuple[float, float]:
    """(p50, p99) of a call in a graph of `times` calls, over 200 replays back to back, of the slowest rank."""
    graph = capture(call, times, dist.barrier)
    torch.cuda.synchronize()
    dist.barrier()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(206)]
    for event in events:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    found = sorted(a.elapsed_time(b) * 1e3 / times for a, b in pairwise(events[5:]))
    return tuple(round(v, 2) for v in slowest([found[len(found) // 2], found[int(len(found) * 0.99)]]))
