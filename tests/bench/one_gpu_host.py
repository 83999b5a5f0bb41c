"""Transfers over the host link hidden behind a product: gathers by copy engine, and results that tiles push.

hidden = (one after the other - fused) / min(transfer, cuBLAS). Of a reduction the sum of both addends is in both.
"""

from __future__ import annotations

import statistics
from functools import partial

import torch
from local_ranks import LONG_AGO, LonePeer
from modules import load
from timing import capture, replay_us

from chunkdsl.runtime.machine import Symmetric

M = 8192


class HostPeer(LonePeer):
    """Rank 0 of two; rank 1 is host memory that has already staged its shard and closed every call."""

    def __init__(self) -> None:
        super().__init__(2)
        self.host: dict[str, torch.Tensor] = {}

    def symmetric(self, name, shape, dtype):
        local = torch.zeros(shape, dtype=dtype, device=self.device)
        if name.endswith(("_gathered", "_stage")):
            peer = torch.empty(shape, dtype=dtype, pin_memory=True)
        else:
            peer = torch.zeros(shape, dtype=dtype, device=self.device)
            if name.endswith(("_ready", "_closed")):
                local[1] = LONG_AGO
            if name.endswith("_y_arrived"):  # of a reduction: what rank 1 adds, zeros
                local[local.numel() // 2 :] = LONG_AGO
        self.host[name] = peer
        self._keep += [local, peer]
        addresses = (local.data_ptr(), peer.data_ptr())
        return Symmetric(local, addresses, torch.tensor(addresses, dtype=torch.int64, device=self.device))

    def launch(self, kernel, programs, args, *rest, **named):
        """Warm-ups are left out: what is used is compiled by the first call."""
        return super().launch(kernel, programs, args, *rest, **named) if args.get("active", 1) else None


def gathered(op, machine):
    """(arguments, transfer, product, result of the product, fused call, its result)."""
    (x_type, w_type) = (op.PARAMETERS[p] for p in ("x", "w"))
    (_, H), (N, _) = op.local_shape(x_type[1], {"M": M}), op.local_shape(w_type[1], {})
    x, w = torch.randn(M // 2, H, device="cuda").bfloat16(), torch.randn(N, H, device="cuda").bfloat16()
    peer = torch.randn(M // 2, H).bfloat16().pin_memory()
    machine.host[f"{op.NAME}_x_gathered"][M // 2 : M, :H] = peer
    full, out = torch.cat([x, peer.cuda()]), torch.empty(M, N, device="cuda", dtype=x.dtype)
    product, scratch = torch.empty_like(out), torch.empty_like(x)

    def transfer():
        scratch.copy_(peer, non_blocking=True)

    def multiply():
        torch.mm(full, w.t(), out=product)

    return transfer, multiply, lambda: None, partial(op, x, w, out=out, M=M), out, product


def reduced(op, machine):
    (a_type, b_type) = (op.PARAMETERS[p] for p in ("a", "b"))
    a, b = (torch.randn(op.local_shape(t[1], {"M": M}), device="cuda").bfloat16() for t in (a_type, b_type))
    product = torch.empty(M, b.shape[0], device="cuda", dtype=a.dtype)
    peer = torch.empty(M // 2, b.shape[0], dtype=a.dtype).pin_memory()
    out, zeros = torch.empty_like(product[: M // 2]), torch.zeros_like(product[: M // 2])

    def transfer():
        peer.copy_(product[M // 2 :], non_blocking=True)

    def multiply():
        torch.mm(a, b.t(), out=product)

    def add():
        torch.add(product[: M // 2], zeros, out=zeros)

    return transfer, multiply, add, partial(op, a, b, out=out, M=M), out, product[: M // 2]


def overlap_table(rounds: int) -> list[str]:
    machine = HostPeer()
    m = load("host_overlap")(machine=machine)
    lines = []
    for name in m.OPS:
        op = getattr(m, name)
        is_gather = "x" in op.PARAMETERS
        transfer, multiply, add, fused, out, product = (gathered if is_gather else reduced)(op, machine)

        def one_after_the_other(parts=(transfer, multiply, add) if is_gather else (multiply, transfer, add)):
            for part in parts:
                part()

        multiply()
        fused()
        torch.cuda.synchronize()
        m.check()
        gap = ((out.float() - product.float()).norm() / product.float().norm()).item()
        pushed = machine.host.get(f"{name}_y_stage")
        if pushed is not None:  # rank 1's half lies in its stage, where rank 0's addends belong
            whole = torch.mm(*fused.args[:1], fused.args[1].t())[M // 2 :].cpu()
            gap = max(gap, ((pushed[: M // 2].float() - whole.float()).norm() / whole.float().norm()).item())
        timed = dict(comm=transfer, gemm=multiply, seq=one_after_the_other, fused=fused)
        graphs = {k: capture(f, 2) for k, f in timed.items()}
        seen = {k: [] for k in graphs}
        for _ in range(rounds):
            for k, g in graphs.items():
                seen[k].append(replay_us(g, 2))
        t = {k: statistics.median(v) for k, v in seen.items()}
        hidden = (t["seq"] - t["fused"]) / min(t["comm"], t["gemm"])
        m.check()
        lines.append(
            f"| {name} | {t['comm']:.0f} | {t['gemm']:.0f} | {t['seq']:.0f} | {t['fused']:.0f} | "
            f"{t['seq'] / t['fused']:.2f} | {hidden:.2f} | {gap:.1e} |"
        )
        print(lines[-1], flush=True)
    return lines
