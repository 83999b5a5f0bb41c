"""Bits of an op of a built module against its own `exact`: eagerly, and in replays of a graph. The same on GPUs and on
simulated ranks, but for graphs, which need a GPU.
"""

from __future__ import annotations

import torch
from modules import inputs, results, same
from timing import capture

CALLS, REPLAYS = 2, 5  # calls in a graph; replays of it, each with new data


def updated(op, tensors: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Of an op's arguments those that it updates in place."""
    return tuple(t for name, t in zip(op.PARAMETERS, tensors, strict=True) if name in op.INOUT)


def wrong_calls(op, calls: list[dict[str, int]], machine, times: int = 2) -> list[dict[str, int]]:
    """Sizes at which a call did not give the bits of `exact`, results and what is updated in place; every size `times`
    times. Below the gate the library runs, whose bits are its own. Collective."""
    bad = []
    for rep in range(times):
        for i, dims in enumerate(calls):
            x = inputs(op, dims, machine.rank, 100 * rep + i)
            again = [t.clone() for t in x]
            fused = op(*x, **dims)
            machine.synchronize()
            op.module.check()
            if op.unfused(dims) is None:
                exact = op.exact(*again, **dims)
                machine.synchronize()
                if not same((*results(fused), *updated(op, x)), (*results(exact), *updated(op, again))):
                    bad.append(dims)
    return bad


def wrong_replays(op, dims: dict[str, int], machine, times: int = CALLS, captured=None) -> int:
    """How many replays of a graph of `times` calls, with changing data, did not give the bits of `exact`. `captured`:
    makes the graph, as `timing.capture` does. Collective."""
    x, held = inputs(op, dims, machine.rank, 7), []

    def call():
        held[:] = results(op(*x, **dims))

    graph = (captured or capture)(call, times, machine.barrier)
    wrong = 0
    for i in range(REPLAYS):
        for t, fresh in zip(x, inputs(op, dims, machine.rank, 50 + i), strict=True):
            t.copy_(fresh)
        again = [t.clone() for t in x]
        machine.barrier()
        graph.replay()
        machine.synchronize()
        for _ in range(times if op.INOUT else 1):  # what is updated in place goes from call to call
            exact = op.exact(*again, **dims)
        machine.synchronize()
        wrong += not same((*held, *updated(op, x)), (*results(exact), *updated(op, again)))
    op.module.check()
    return wrong


def wrong_repeats(op, dims: dict[str, int], machine, times: int = 12, into: bool = False) -> int:
    """How many of several calls of the same tensors, whose data change, did not give the bits of `exact`: such calls
    are started by graphs that the instance captures itself. In turns on two streams. `into`: results are written into
    the same tensors too, so that all calls are in one place. Collective."""
    x, wrong = inputs(op, dims, machine.rank, 7), 0
    kept = {"out": results(op.exact(*[t.clone() for t in x], **dims))} if into else {}
    here = torch.cuda.current_stream()
    streams = (here, torch.cuda.Stream())
    for i in range(times):
        for t, fresh in zip(x, inputs(op, dims, machine.rank, 50 + i), strict=True):
            t.copy_(fresh)
        again = [t.clone() for t in x]
        stream = streams[i // 2 % 2]
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            made = results(op(*x, **dims, **kept))
        here.wait_stream(stream)
        exact = op.exact(*again, **dims)
        machine.synchronize()
        wrong += not same((*made, *updated(op, x)), (*results(exact), *updated(op, again)))
    op.module.check()
    return wrong
