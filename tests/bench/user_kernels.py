"""One GPU: a user's kernel as the tiles of a fused launch, all flags preset, against the same kernel untouched.

    chunkdsl build specs/user_gemm.chunk -o build/gpu
    CHUNKDSL_GPU_BUILD=build/gpu python tests/bench/user_kernels.py [--rounds 15]

Rank 0 of two, whose peer has sent everything: the launch takes tickets, looks at every flag, counts its chunks, and
never waits. Both kernels are timed alone, in CUDA graphs, ours between two runs of the untouched one; the ratio is the
median over rounds. Inside a shard both go through their tiles in the same order (groups of 8 row blocks); the launch
begins with its own shard, which is the first one of rank 0, as the untouched kernel does. "a multiprocessor": programs
that it holds, and the registers of ours. "equal": the bits of the op against those of `exact`,
with the peer's data in place: its shard of what is gathered, and its addends, which are ours here as in `exact`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "gpu"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
import triton
from local_ranks import LonePeer, refuse_multicast
from modules import load
from one_gpu import heading
from timing import capture, replay_us

from chunkdsl.runtime.machine import Symmetric

ROWS = (8192, 4096, 2048, 8192 - 40)


class PresetPeer(LonePeer):
    """Rank 0 of two. Every flag stands far ahead of any epoch; the peer's memory is this GPU's too. Launches of the
    main lane are kept by the kernel's name."""

    PREPARES = False  # every launch comes by here

    def __init__(self) -> None:
        super().__init__(2)
        self.started: dict[str, partial] = {}
        self.held: dict[str, torch.Tensor] = {}
        self.of_peer: dict[str, torch.Tensor] = {}

    def symmetric(self, name, shape, dtype):
        flags = name.endswith(("_arrived", "_ready", "_closed"))
        local, peer = (torch.full(shape, (1 << 30) * flags, dtype=dtype, device=self.device) for _ in range(2))
        self._keep += [local, peer]
        self.held[name], self.of_peer[name] = local, peer
        addresses = (local.data_ptr(), peer.data_ptr())
        return Symmetric(local, addresses, torch.tensor(addresses, dtype=torch.int64, device=self.device))

    def launch(self, kernel, *given, **named):
        start = partial(super().launch, kernel, *given, **named)
        self.started[kernel.fn.__name__] = start
        return start()

    def copy(self, destination, source, nbytes, lane, label=""):
        """The peer's data is here already; `gather` finds our own rows in its place."""


def measure(m, machine: PresetPeer, name: str, rows: int, rounds: int) -> str:
    op, dims = getattr(m, name), {"M": rows}
    tensors = [torch.randn(op.local_shape(s, dims), device="cuda").mul(0.1).to(d) for d, s in op.PARAMETERS.values()]
    for key, value in machine.held.items():  # the peer's shard of a gathered buffer
        if key.startswith(f"{name}_") and key.endswith("_gathered"):
            value[rows // 2 : rows, : tensors[0].shape[1]] = tensors[0][: rows - rows // 2]
    machine.started.clear()
    op(*tensors, M=rows)
    torch.cuda.synchronize()
    for key, value in machine.of_peer.items():  # the peer's addends
        if key.startswith(f"{name}_") and key.endswith("_stage"):
            value.copy_(machine.held[key])
    fused = op(*tensors, M=rows)
    mine = next(start for k, start in machine.started.items() if k in (f"{name}_h", f"{name}_y_partial"))
    exact = op.exact(*tensors, M=rows)
    untouched = machine.started["matmul_kernel"]
    torch.cuda.synchronize()
    m.check()
    equal = "yes" if torch.equal(fused, exact) else "NO"
    graphs = [capture(start, 4) for start in (untouched, mine)]
    ratios, base = [], []
    for _ in range(rounds):
        before, ours, after = (replay_us(graphs[i], 4) for i in (0, 1, 0))
        ratios.append((before + after) / 2 / ours)
        base.append((before + after) / 2)
    m.check()
    kernel = next(k for k in machine._made if k.fn.__name__ == "matmul_kernel")
    around = next(k for k in machine._made if k.fn.__name__ in (f"{name}_h", f"{name}_y_partial"))
    fit, (ours, theirs) = machine.fit(kernel, around), (machine._made[k][0].n_regs for k in (around, kernel))
    fit = f"{fit['PER_SM']}, {fit.get('maxnreg', ours)} ({theirs} untouched)"
    times = f"{statistics.median(base):.0f} us | {statistics.median(ratios):.3f}"
    return f"| {name}, M = {rows} | {times} | {fit} | {equal} |"


def main() -> None:
    refuse_multicast()
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}", flush=True)
    print(heading("op", "untouched", "untouched / fused", "a multiprocessor", "equal"), flush=True)
    machine = PresetPeer()
    m = load("user_gemm")(machine=machine)
    for name in ("up", "down"):
        for rows in ROWS:
            print(measure(m, machine, name, rows, args.rounds), flush=True)


if __name__ == "__main__":
    main()
