"""A small generated-like module: GEMM fused with an all-reduce, by pushes into symmetric slots and flags.

Its marked lines are what the mutation tests change; keep each marker on its own line.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def wait_for(flag, epoch):
    seen = tl.atomic_add(flag, 0, sem="acquire", scope="sys")
    while seen - epoch < 0:
        seen = tl.atomic_add(flag, 0, sem="acquire", scope="sys")


@triton.jit(do_not_specialize=["rank", "epoch"])
def gemm_all_reduce(
    a, b, y, ticket, stage_table, flag_table, rank, epoch, M, N, K,
    W: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    cols = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * cols
    tile = tl.atomic_add(ticket, 1, sem="relaxed", scope="gpu") % tiles
    rm = (tile // cols) * BM + tl.arange(0, BM)
    rn = (tile % cols) * BN + tl.arange(0, BN)
    inside = (rm[:, None] < M) & (rn[None, :] < N)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        rk = k * BK + tl.arange(0, BK)
        left = tl.load(a + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        right = tl.load(b + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(left, right, acc)
    where = rm[:, None] * N + rn[None, :]
    parity = epoch % 2
    for step in range(W):
        peer = (rank + step) % W
        stage = tl.load(stage_table + peer).to(tl.pointer_type(tl.float32))
        slot = parity * W + rank  # slot
        tl.store(stage + slot * M * N + where, acc, mask=inside)  # push
        tl.debug_barrier()  # barrier
        flag = tl.load(flag_table + peer).to(tl.pointer_type(tl.int32)) + rank * tiles + tile
        tl.atomic_xchg(flag, epoch, sem="release", scope="sys")  # signal
    total = tl.zeros((BM, BN), tl.float32)
    mine = tl.load(stage_table + rank).to(tl.pointer_type(tl.float32))
    flags = tl.load(flag_table + rank).to(tl.pointer_type(tl.int32))
    for source in range(W):
        wait_for(flags + source * tiles + tile, epoch)  # wait
        total += tl.load(mine + (parity * W + source) * M * N + where, mask=inside, other=0.0)
    tl.store(y + where, total.to(y.dtype.element_ty), mask=inside)


class GemmAllReduce:
    """The host side, written against the Machine interface only."""

    def __init__(self, machine, M, N, tile=16):
        self.m, self.M, self.N, self.tile = machine, M, N, tile
        self.tiles = -(-M // tile) * -(-N // tile)
        W = machine.world
        self.stage = machine.symmetric("stage", (2 * W, M, N), torch.float32)
        self.flags = machine.symmetric("flags", (W, self.tiles), torch.int32)
        self.ticket = machine.zeros("ticket", (1,), torch.int32)
        self.epoch = 0
        machine.barrier()

    def __call__(self, a, b):
        self.epoch += 1
        y = self.m.empty((self.M, self.N), a.dtype)
        self.m.launch(
            gemm_all_reduce,
            self.tiles,
            dict(
                a=a, b=b, y=y, ticket=self.ticket, stage_table=self.stage.table, flag_table=self.flags.table,
                rank=self.m.rank, epoch=self.epoch, M=self.M, N=self.N, K=a.shape[1],
            ),
            dict(W=self.m.world, BM=self.tile, BN=self.tile, BK=16),
            4,
            2,
        )  # fmt: skip
        return y
