"""Host side of a small all-reduce in the switch (`via = multimem`). Copied into the module.

A generated class supplies KERNEL and SOURCE beside what `ExchangeOperation` asks for. Payloads are whole vectors of 16
bytes, as their rows are. `exact` adds up in rank order on each rank, so its bits may differ from those of a call.
"""

from __future__ import annotations

import ctypes

import torch

from chunkdsl.runtime.arguments import cdiv
from chunkdsl.runtime.cuda import CudaKernel
from chunkdsl.runtime.exchange import ExchangeOperation


class MultimemOperation(ExchangeOperation):
    KERNEL, SOURCE = "", ""

    def __init__(self, module):
        super().__init__(module)
        if self.why_not is None:
            self.multicast = self.machine.multicast(self._words2)
            self.kernel, reason = CudaKernel(self.KERNEL, self.SOURCE), "there is no NVLink multicast"
            if self.multicast:
                reason = self.machine.load(self.kernel)
            votes = self.machine.vote(reason)
            lacking = [rank for rank, vote in enumerate(votes) if vote]
            if lacking:
                self.why_not = f"ranks {lacking} cannot add in the switch: {votes[lacking[0]]}"

    @classmethod
    def memory(cls, dims, W):
        """(name, kind, shape, dtype): two buffers for this rank's payload alone, and in two rounds for all sums; flags
        of all ranks by block; what `exact` needs."""
        words = cls.words_in(dims)
        if cls.ROWWISE and cls.ROUNDS == 2:  # every row has a piece of one size for each rank
            rows, cols = cls.extent(dims)
            words = rows * cdiv(cols * cls.ITEM, 16 * W) * W * 4
        return (
            ("words2", "symmetric", (2 * cls.ROUNDS, max(4, words)), torch.int32),
            ("epochs2", "local", (cls.PROGRAMS + 4,), torch.int32),
            ("arrived", "symmetric", (W * cls.ROUNDS, cls.flags_in(dims, W)), torch.int32),
            *cls.row_memory(dims),
        )

    def exchange(self, kernel, fused, active, dims, payload, tensors):
        """`tensors`: operands and what the call leaves, as the kernel has them behind the payload."""
        if not fused:
            super().exchange(kernel, fused, active, dims, payload, tensors)
            return
        rows, cols = self.extent(dims)
        count, row = self.words_in(dims) // 4, cols * self.ITEM // 16
        if active and count == 0:
            return
        if active and self.module.check_calls:
            self.open(active, dims)
        threads = 32 * self.FORMS[0][4][0][1]
        blocks = cdiv(cdiv(count, self.world) if self.ROUNDS == 2 else count, threads)
        blocks = rows if self.ROWWISE else blocks
        pointers = (
            payload.data_ptr(), *(t.data_ptr() for t in tensors.values()), self._words2.local.data_ptr(),
            self.multicast, self.arrived.local.data_ptr(), self.arrived.table.data_ptr(),
            self.state.local.data_ptr(), self.state.table.data_ptr(), self.record.data_ptr(),
            self._epochs2.data_ptr(), self.module.limit,
        )  # fmt: skip
        caps = (self._words2.local.shape[1] // 4, self.arrived.local.shape[1])
        numbers = (self.world, self.rank, count, row, *caps, 0, active)
        args = [*map(ctypes.c_uint64, pointers), *map(ctypes.c_int32, numbers)]
        self.machine.launch_cuda(self.kernel, max(1, min(blocks, self.machine.sms, self.PROGRAMS)), threads, args)
