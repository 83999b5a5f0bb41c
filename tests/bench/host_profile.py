"""Where the host's time for a call below a closed gate goes, beside that of the same call by hand: for
`eager_calls.py --profile` on GPUs, for `fallback_cost.py --profile` without one.

Three tables for each op: a call by its place in a burst (the first ones find cold caches, as behind other work);
pieces that one or the other way is made of; and Python's own profile of both, which counts calls exactly and makes each
dearer than it is. Collective: every rank runs the same calls, one of them prints.
"""

from __future__ import annotations

import cProfile
import pstats
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

PLACES = (1, 2, 3, 4, 8, 16, 64)  # calls of a burst whose times are printed
LINES = 15  # of a profile


def host_us(call: Callable) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e6


def by_place(calls: dict[str, Callable], settle: Callable, rounds: int) -> dict[str, list[float]]:
    """{way: microseconds of the n-th call of a burst}, medians over rounds in which each way has its turn."""
    seen = {way: [[] for _ in range(PLACES[-1])] for way in calls}
    for _ in range(rounds):
        for way, call in calls.items():
            settle()
            for place in seen[way]:
                place.append(host_us(call))
    return {way: [statistics.median(place) for place in places] for way, places in seen.items()}


def burst_us(call: Callable, settle: Callable, rounds: int, calls: int = 32) -> float:
    """Microseconds of a call in the middle of a burst: half of it goes ahead."""
    seen = []
    for _ in range(rounds):
        settle()
        for _ in range(calls // 2):
            call()
        seen.append(host_us(lambda: [call() for _ in range(calls)]) / calls)
    return statistics.median(seen)


def collectives(machine, x: torch.Tensor) -> dict[str, Callable]:
    """The collectives of fallbacks on rows `x`: as the wrapper starts them; in calls that go straight, past the
    dispatcher; as torch.distributed does."""
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    whole, total = x.new_empty((machine.world * x.shape[0], *x.shape[1:])), x.clone()
    part = x.new_empty((x.shape[0] // machine.world, *x.shape[1:]))
    made = {
        "wrapper's gather, with its memory": lambda: machine.gather(x, flat=True),
        "straight gather, with its memory": partial(machine.straight_step("gather", whole.shape), x),
        "torch.distributed's gather, without": lambda: gather(whole, x, group=machine.group),
        "wrapper's sum, in place": lambda: machine.total(total, own=True),
        "straight sum, in place": partial(machine.straight_step("total", None, lambda t, w: t), total),
        "torch.distributed's sum, in place": lambda: dist.all_reduce(total, group=machine.group),
    }
    if part.shape[0] * machine.world == x.shape[0]:
        made["wrapper's scattered sum, with its memory"] = lambda: machine.total_shard(x, part.shape[0])
        made["straight scattered sum, with its memory"] = partial(machine.straight_step("scatter", part.shape), x)
        made["torch.distributed's scattered sum, without"] = lambda: scatter(part, x, group=machine.group)
    return made


def pieces(op, tensors: list[torch.Tensor], dims: dict[str, int]) -> dict[str, Callable]:
    x, *others = tensors
    names = type(op).__call__.__globals__  # of the generated module, or of the runtime
    made = {
        "an empty function": lambda: None,
        "is it like the last call": partial(names["fit_for"](tensors), *tensors),
        "unobserved": lambda: names["unobserved"](tensors),
        "is_compiling": torch.compiler.is_compiling,
        "capturing": op.machine.capturing,
        "key_of": lambda: op.key_of(tensors, dims),
        "torch.empty": lambda: torch.empty(x.shape, dtype=x.dtype, device=x.device),
        "new_empty": lambda: x.new_empty(x.shape),
        "clone": x.clone,
    }
    if others and others[0].dim() == 2 and others[0].shape[1] == x.shape[1]:
        w = others[0]
        made |= {"linear": lambda: torch.nn.functional.linear(x, w), "torch.mm of w.t()": lambda: torch.mm(x, w.t())}
    return made | collectives(op.machine, x)


def profiled(call: Callable, settle: Callable, bursts: int = 40, calls: int = 8) -> list[str]:
    """The functions with the most time of their own, over bursts of calls, as rows: entries, microseconds of its own
    and with what it calls, all of one call."""
    profile = cProfile.Profile()
    for _ in range(bursts):
        settle()
        profile.enable()
        for _ in range(calls):
            call()
        profile.disable()
    found, times = pstats.Stats(profile).stats.items(), bursts * calls
    most = sorted(found, key=lambda entry: -entry[1][2])[:LINES]
    return [
        f"| {name if file == '~' else f'{Path(file).name}:{line} {name}'} | {entries / times:.0f} "
        f"| {own / times * 1e6:.2f} | {whole / times * 1e6:.2f} |"
        for (file, line, name), (_, entries, own, whole, _) in most
    ]


def print_profile(op, tensors, dims, calls: dict[str, Callable], settle: Callable, rounds: int = 15) -> None:
    """All three tables of an op, for `calls` {way: call}. `settle` lets ranks meet and their devices become idle."""
    text = [f"\n## {op.NAME} {dims}: host us of a call by its place in a burst\n"]
    text += [f"| way | {' | '.join(map(str, PLACES))} | mean of 8 |", "| --- |" + " --- |" * (len(PLACES) + 1)]
    for way, found in by_place(calls, settle, rounds).items():
        cells = [f"{found[n - 1]:.1f}" for n in PLACES]
        text.append(f"| {way} | {' | '.join(cells)} | {sum(found[:8]) / 8:.1f} |")
    text.append("\n| piece | us |\n| --- | --- |")
    text += [f"| {name} | {burst_us(call, settle, rounds):.2f} |" for name, call in pieces(op, tensors, dims).items()]
    for way, call in calls.items():
        text += [
            f"\n| {way}, profiled | times | own us | whole us |\n| --- | --- | --- | --- |",
            *profiled(call, settle),
        ]
    if op.machine.rank == 0:
        print("\n".join(text), flush=True)
