"""Whole calls of rank 0 of two, whose peer sent all that it will ever send and left long ago: what a call costs beside
its product where nothing is waited for, with one buffer and a closing barrier or with two buffers."""

from __future__ import annotations

import random
import statistics
from functools import partial

import torch
from local_ranks import GonePeer
from modules import inputs, load
from timing import capture, replay_us

ROWS = (128, 512, 2048, 8192)


def calls_table(rounds: int) -> list[str]:
    """Medians in us over rounds of graphs in random order, and whether both ways left the same bits."""
    module, order, lines = load("calls")(machine=GonePeer()), random.Random(0), []
    for kind in ("scatter", "reduce"):
        for M in ROWS:
            ways = {slots: getattr(module, f"{kind}_{slots}") for slots in (1, 2)}
            given = a, w = inputs(ways[1], {"M": M}, 0, 1)
            product = torch.empty(M, w.shape[0], device="cuda", dtype=a.dtype)
            times = max(4, int(4e3 / (30 + M / 5)))
            graphs, outs = {"cuBLAS": capture(partial(torch.mm, a, w.t(), out=product), times)}, []
            for slots, op in ways.items():
                shape = op.local_shape(op.RESULTS["y"][1], {"M": M})
                outs.append(torch.empty(shape, device="cuda", dtype=a.dtype))
                graphs[slots] = capture(partial(op.run, True, 1, {"M": M}, *given, outs[-1]), times)
            seen = {name: [] for name in graphs}
            for _ in range(rounds):
                for name in order.sample(list(graphs), len(graphs)):
                    seen[name].append(replay_us(graphs[name], times))
            held = M * w.shape[0] * a.element_size() * (2 if kind == "reduce" else 1)
            cells = " | ".join(f"{statistics.median(found):.1f}" for found in seen.values())
            equal = "yes" if torch.equal(*outs) else "no"
            lines.append(f"| {kind} | {M} | {held >> 20} | {cells} | {equal} |")
            print(lines[-1], flush=True)
            del graphs
    return lines
