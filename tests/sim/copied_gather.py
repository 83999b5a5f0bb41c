"""A small generated-like module: all-gather by copy engines with flags from a pinned word, consumed by a kernel."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["epoch"])
def begin(x, own, epoch_word, ready_table, rank, epoch, n, W: tl.constexpr, BLOCK: tl.constexpr):
    """Stage the shard, set the pinned epoch and tell the peers that this rank's buffer may be overwritten."""
    i = tl.arange(0, BLOCK)
    tl.store(own + i, tl.load(x + i, mask=i < n, other=0.0), mask=i < n)
    tl.store(epoch_word, epoch)
    tl.debug_barrier()
    for peer in range(W):
        flag = tl.load(ready_table + peer).to(tl.pointer_type(tl.int32)) + rank
        tl.atomic_xchg(flag, epoch, sem="release", scope="sys")


@triton.jit(do_not_specialize=["epoch"])
def entry_barrier(ready, epoch, W: tl.constexpr):
    for source in range(W):
        seen = tl.atomic_add(ready + source, 0, sem="acquire", scope="sys")
        while seen - epoch < 0:
            seen = tl.atomic_add(ready + source, 0, sem="acquire", scope="sys")


@triton.jit(do_not_specialize=["rank", "epoch"])
def double(gathered, flags, y, rank, epoch, n, W: tl.constexpr, BLOCK: tl.constexpr):
    """One program for each shard: wait for it, write twice its values."""
    shard = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    if shard != rank:
        seen = tl.atomic_add(flags + shard, 0, sem="acquire", scope="sys")
        while seen - epoch < 0:
            seen = tl.atomic_add(flags + shard, 0, sem="acquire", scope="sys")
    value = tl.load(gathered + shard * n + i, mask=i < n, other=0.0)
    tl.store(y + shard * n + i, value * 2.0, mask=i < n)


class DoubledGather:
    """y = 2 * all_gather(x). `chunk` mutations are chosen by the flags of the constructor."""

    def __init__(self, machine, n, *, flag_first=False, fork=True, join=True, signal=True):
        self.m, self.n = machine, n
        self.flag_first, self.fork, self.join, self.signal = flag_first, fork, join, signal
        W = machine.world
        self.gathered = machine.symmetric("gathered", (W, n), torch.float32)
        self.flags = machine.symmetric("flags", (W,), torch.int32)
        self.ready = machine.symmetric("ready", (W,), torch.int32)
        self.word = machine.pinned("epoch", (1,), torch.int32)
        self.epoch = 0
        machine.barrier()

    def __call__(self, x):
        m, n, W = self.m, self.n, self.m.world
        self.epoch += 1
        own = self.gathered.local[m.rank]
        y = m.empty((W, n), torch.float32)
        block = dict(W=W, BLOCK=64)
        m.launch(
            begin, 1,
            dict(x=x, own=own, epoch_word=self.word, ready_table=self.ready.table, rank=m.rank, epoch=self.epoch, n=n),
            block, 1, 1,
        )  # fmt: skip
        m.launch(entry_barrier, 1, dict(ready=self.ready.local, epoch=self.epoch), dict(W=W), 1, 1)
        for step in range(1, W):
            peer = (m.rank + step) % W
            lane = f"to {step}"
            if self.fork:
                m.fork(lane)
            data = (self.gathered.addresses[peer] + 4 * n * m.rank, own.data_ptr(), 4 * n)
            flag = (self.flags.addresses[peer] + 4 * m.rank, self.word.data_ptr(), 4)
            for copy in (flag, data) if self.flag_first else (data, flag) if self.signal else (data,):
                m.copy(*copy, lane)
        m.launch(
            double, W,
            dict(gathered=self.gathered.local, flags=self.flags.local, y=y, rank=m.rank, epoch=self.epoch, n=n),
            block, 1, 1,
        )  # fmt: skip
        for step in range(1, W):
            if self.join:
                m.join(f"to {step}")
        return y
