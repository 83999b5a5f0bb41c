"""One GPU: the emitted GEMM against cuBLAS, and how much of a copy over the host link it hides.

    chunkdsl build tests/bench/specs/local_gemm.chunk && chunkdsl build tests/bench/specs/host_overlap.chunk
    python tests/bench/one_gpu.py [--rounds 15]

Method: CUDA graphs, cuBLAS before and after each block of ours, ratio to the mean of the two, median over rounds,
random normal data. Times drift with the power cap; ratios are from one run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "gpu"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import torch
import triton
from local_ranks import Board, LocalMachine, LonePeer, refuse_multicast
from modules import load
from timing import capture, replay_us

from chunkdsl.runtime.machine import Symmetric

SHAPES = [
    (8192, 8192, 3584), (4096, 4096, 7168), (4096, 4096, 1792), (8192, 7168, 8192), (8192, 14336, 4096),
    (2048, 8192, 3584), (1024, 8192, 3584), (512, 8192, 8192),
]  # fmt: skip


class HostPeer(LonePeer):
    """Rank 0 of two; rank 1 is host memory that has already staged its shard and closed every call."""

    def __init__(self) -> None:
        super().__init__(2)
        self.host: dict[str, torch.Tensor] = {}

    def symmetric(self, name, shape, dtype):
        local = torch.zeros(shape, dtype=dtype, device=self.device)
        if name.endswith("_gathered"):
            peer = torch.empty(shape, dtype=dtype, pin_memory=True)
        else:
            peer = torch.zeros(shape, dtype=dtype, device=self.device)
            if name.endswith(("_ready", "_closed")):
                local[1] = 1 << 30
        self.host[name] = peer
        self._keep += [local, peer]
        addresses = (local.data_ptr(), peer.data_ptr())
        return Symmetric(local, addresses, torch.tensor(addresses, dtype=torch.int64, device=self.device))


def gemm_table(rounds: int) -> list[str]:
    machine = LocalMachine(Board(1), 0, torch.cuda.get_device_properties(0).multi_processor_count)
    m = load("local_gemm")(machine=machine)
    lines = []
    for M, N, K in SHAPES:
        a = torch.randn(M, K, device="cuda").bfloat16()
        for layout in ("nt", "nn"):
            b = torch.randn(*((N, K) if layout == "nt" else (K, N)), device="cuda").bfloat16()
            op = getattr(m, layout)
            mine, theirs = (torch.empty(M, N, device="cuda", dtype=a.dtype) for _ in range(2))
            right = b.t() if layout == "nt" else b
            op(a, b, out=mine)
            torch.mm(a, right, out=theirs)
            torch.cuda.synchronize()
            equal = torch.equal(mine, theirs)
            gap = ((mine.float() - theirs.float()).norm() / theirs.float().norm()).item()
            times = max(2, int(2.5e3 / (2 * M * N * K / 7e8)))
            ours = capture(partial(op, a, b, out=mine), times)
            cublas = capture(partial(torch.mm, a, right, out=theirs), times)
            ratios, base = [], []
            for _ in range(rounds):
                before = replay_us(cublas, times)
                t = replay_us(ours, times)
                after = replay_us(cublas, times)
                ratios.append((before + after) / 2 / t)
                base.append((before + after) / 2)
            lines.append(
                f"| {M}x{N}x{K} | {layout} | {statistics.median(base):.0f} us | {statistics.median(ratios):.3f} | "
                f"{'yes' if equal else f'no ({gap:.1e})'} |"
            )
            print(lines[-1], flush=True)
    return lines


def overlap_table(rounds: int) -> list[str]:
    machine = HostPeer()
    m = load("host_overlap")(machine=machine)
    lines = []
    for name in m.OPS:
        op = getattr(m, name)
        M, (x_type, w_type) = 8192, (op.PARAMETERS[p] for p in ("x", "w"))
        (_, H), (N, _) = op.local_shape(x_type[1], {"M": M}), op.local_shape(w_type[1], {})
        x, w = torch.randn(M // 2, H, device="cuda").bfloat16(), torch.randn(N, H, device="cuda").bfloat16()
        peer = torch.randn(M // 2, H).bfloat16().pin_memory()
        buffer = next(v for k, v in machine.host.items() if k.startswith(f"{name}_") and k.endswith("_gathered"))
        buffer[M // 2 : M, :H] = peer
        full = torch.cat([x, peer.cuda()])
        out = torch.empty(M, N, device="cuda", dtype=x.dtype)
        reference = full @ w.t()
        op(x, w, out=out, M=M)
        torch.cuda.synchronize()
        m.check()
        gap = ((out.float() - reference.float()).norm() / reference.float().norm()).item()
        scratch = torch.empty_like(full)

        def copy(scratch=scratch[M // 2 :], peer=peer):
            scratch.copy_(peer, non_blocking=True)

        def product(full=full, w=w, reference=reference):
            torch.mm(full, w.t(), out=reference)

        def both(copy=copy, product=product):
            copy()
            product()

        timed = dict(comm=copy, gemm=product, seq=both, fused=partial(op, x, w, out=out, M=M))
        graphs = {k: capture(f, 2) for k, f in timed.items()}
        seen = {k: [] for k in graphs}
        for _ in range(rounds):
            for k, g in graphs.items():
                seen[k].append(replay_us(g, 2))
        t = {k: statistics.median(v) for k, v in seen.items()}
        hidden = (t["seq"] - t["fused"]) / min(t["comm"], t["gemm"])
        m.check()
        lines.append(
            f"| {name} {M}x{N}x{H} | {t['comm']:.0f} | {t['gemm']:.0f} | {t['seq']:.0f} | {t['fused']:.0f} | "
            f"{t['seq'] / t['fused']:.2f} | {hidden:.2f} | {gap:.1e} |"
        )
        print(lines[-1], flush=True)
    return lines


def heading(*columns: str) -> str:
    return f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}"


def main() -> None:
    refuse_multicast()
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}", flush=True)
    print(heading("M x N x K", "weight", "cuBLAS", "cuBLAS time / ours", "bit-equal"), flush=True)
    gemm_table(args.rounds)
    columns = ("op", "copy us", "cuBLAS us", "one after the other", "fused", "speedup", "hidden", "error")
    print(heading(*columns), flush=True)
    overlap_table(args.rounds)


if __name__ == "__main__":
    main()
