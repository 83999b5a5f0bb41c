"""A kernel in the shape that generated ones have, and a wrapper that launches it: every lint must be silent on it."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def read_clock():
    return tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def fence_proxy():
    tl.inline_asm_elementwise(
        "fence.proxy.async.global; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def wait_for(flag, epoch, dead, limit, CLOCK: tl.constexpr):
    """True once the flag has reached the epoch; False if the instance died or the time ran out first."""
    seen = tl.atomic_add(flag, 0, sem="acquire", scope="sys")
    if seen - epoch < 0:
        stop = tl.atomic_add(dead, 0, sem="acquire", scope="sys")
        if CLOCK:
            start = read_clock()
        while (seen - epoch < 0) & (stop == 0):
            seen = tl.atomic_add(flag, 0, sem="acquire", scope="sys")
            stop = tl.atomic_add(dead, 0, sem="acquire", scope="sys")
            if CLOCK:
                if read_clock() - start > limit:
                    tl.atomic_xchg(dead, 1, sem="release", scope="sys")
                    stop = 1
    return seen - epoch >= 0


@triton.jit(do_not_specialize=["M", "N", "K", "rank", "chunk_rows", "limit"])
def gemm(
    x, w, y, flags, counters, table, tickets, epoch_word, dead, M, N, K, rank, chunk_rows, limit,
    WORLD: tl.constexpr, TMA: tl.constexpr, CLOCK: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y[M, N] = x[M, K] @ w[N, K].T; waits for each chunk of rows of x, signals each chunk of y to every rank."""
    epoch = tl.load(epoch_word)
    columns = tl.multiple_of(N.to(tl.int64), 8)
    depth = tl.multiple_of(K.to(tl.int64), 8)
    across = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * across
    tile = tl.atomic_add(tickets, 1, sem="relaxed", scope="gpu")
    while tile < tiles:
        row = tile // across
        column = tile % across
        chunk = row * BM // chunk_rows
        alive = wait_for(flags + chunk, epoch, dead, limit, CLOCK)
        rows = row * BM + tl.arange(0, BM)
        cols = column * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        if TMA:
            fence_proxy()
            for k in range(0, K, BK):
                a = x.load([row * BM, k])
                b = w.load([column * BN, k])
                acc = tl.dot(a, b.T, acc)
        else:
            inner = tl.arange(0, BK)
            a_at = x + tl.minimum(rows, M - 1).to(tl.int64)[:, None] * depth + inner[None, :]
            b_at = w + tl.minimum(cols, N - 1).to(tl.int64)[None, :] * depth + inner[:, None]
            for k in range(0, K, BK):
                left = depth - k
                a = tl.load(a_at, mask=inner[None, :] < left, other=0.0)
                b = tl.load(b_at, mask=inner[:, None] < left, other=0.0)
                acc = tl.dot(a, b, acc)
                a_at += BK
                b_at += BK
        inside = (rows[:, None] < M) & (cols[None, :] < columns)
        tl.store(y + rows.to(tl.int64)[:, None] * columns + cols[None, :], acc.to(tl.bfloat16), mask=inside)
        tl.debug_barrier()
        done = tl.atomic_add(counters + chunk, 1, sem="acq_rel", scope="gpu")
        if (done == chunk_rows // BM * across - 1) & alive:
            tl.atomic_xchg(counters + chunk, 0, sem="relaxed", scope="gpu")
            for peer in range(0, WORLD):
                slot = tl.load(table + peer).to(tl.pointer_type(tl.int32)) + rank
                tl.atomic_xchg(slot, epoch, sem="release", scope="sys")
        tile = tl.atomic_add(tickets, 1, sem="relaxed", scope="gpu")


class Layer:
    """The wrapper: allocates through the machine at construction, launches in the call."""

    def __init__(self, machine, M, N, K, chunks=4):
        self.machine, self.M, self.N, self.K = machine, M, N, K
        self.chunks = chunks
        self.tma = machine.target in ("sm_90", "sm_100")
        self.gathered = machine.symmetric("gathered", (M, K), torch.bfloat16)
        self.flags = machine.symmetric("flags", (chunks,), torch.int32)
        self.words = machine.zeros("words", (chunks + 3,), torch.int32)
        machine.barrier()

    def __call__(self, x, w):
        m = self.machine
        y = m.empty((self.M, self.N), torch.bfloat16)
        a, b = self.gathered.local, w
        if self.tma:
            a, b = TensorDescriptor.from_tensor(a, [64, 64]), TensorDescriptor.from_tensor(b, [64, 64])
        words = self.words
        args = {
            "x": a, "w": b, "y": y, "flags": self.flags.local, "counters": words[3:], "table": self.flags.table,
            "tickets": words[0:], "epoch_word": words[1:], "dead": words[2:], "M": self.M, "N": self.N, "K": self.K,
            "rank": m.rank, "chunk_rows": self.M // self.chunks, "limit": 10**10,
        }  # fmt: skip
        constants = {
            "WORLD": m.world,
            "TMA": self.tma,
            "CLOCK": m.target.startswith("sm_"),
            "BM": 64,
            "BN": 64,
            "BK": 64,
        }
        m.launch(gemm, m.sms, args, constants, warps=4, stages=3)
        m.fork("lane")
        m.copy(self.gathered.addresses[m.rank], x.data_ptr(), x.nbytes, "lane")
        m.join("lane")
        return y
