"""Several ranks in one process on one GPU: a `Machine` whose peers are threads. Streams of different ranks run side by
side, each rank on its own share of the multiprocessors, so that kernels that wait for each other really meet.

For tests only: it shows that emitted kernels, flags and copies work on hardware, not how fast a link is.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import torch

from chunkdsl.runtime.machine import Machine, Symmetric

LONG_AGO = 1 << 30  # an epoch that every flag has reached


def refuse_multicast() -> None:
    """SystemExit unless NVLink multicast is switched off: it can put a shared host out of service."""
    wanted = {"TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NCCL_NVLS_ENABLE": "0"}
    missing = [f"{k}={v}" for k, v in wanted.items() if os.environ.get(k) != v]
    if missing:
        raise SystemExit(f"set {' and '.join(missing)} before starting this")


def end_after(seconds: float) -> None:
    """Ends this process with 3 when its time is up, whatever hangs."""

    def end():
        print(f"{Path(sys.argv[0]).stem}: not done after {seconds} s", file=sys.stderr, flush=True)
        os._exit(3)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


class Board:
    """Where the ranks of one process meet."""

    def __init__(self, world: int) -> None:
        self.world = world
        self.barrier = threading.Barrier(world, timeout=120)
        self.slots: list = [None] * world
        self.compiling = threading.Lock()

    def meet(self, rank: int, value):
        self.slots[rank] = value
        self.barrier.wait()
        values = list(self.slots)
        self.barrier.wait()
        return values


class LocalMachine(Machine):
    alone = False

    def __init__(self, board: Board, rank: int, sms: int) -> None:
        self.board, self.rank, self.world = board, rank, board.world
        self.device = torch.device("cuda", 0)
        properties = torch.cuda.get_device_properties(self.device)
        self.sms, self.target = sms, f"sm_{properties.major}{properties.minor}"
        self._take_driver()
        self._lanes, self._events, self._keep, self._last, self._made, self.group = {}, {}, [], None, {}, None

    def symmetric(self, name, shape, dtype):
        local = torch.zeros(shape, dtype=dtype, device=self.device)
        torch.cuda.synchronize()
        self._keep.append(local)
        addresses = tuple(self.board.meet(self.rank, local.data_ptr()))
        return Symmetric(local, addresses, torch.tensor(addresses, dtype=torch.int64, device=self.device))

    def peek(self, memory):
        """This rank's word alone: the others are threads that read their own."""
        return [int(memory.local.view(-1)[0])] * self.world

    def roll_call(self):
        """Nobody is named: the ranks are threads of one process."""
        return []

    def among(self, ranks, group):
        """All ranks, or the only one. Subgroups of a mesh of two axes are not made here."""
        if len(ranks) != self.world:
            raise ValueError("ranks of one process have no subgroups: use check_processes.py")
        return self

    def multicast(self, memory):
        """Ranks of one GPU have none."""
        return 0

    def launch(self, *given, **named):
        with self.board.compiling:  # the first rank compiles, the others find the result
            return super().launch(*given, **named)

    def vote(self, value):
        return self.board.meet(self.rank, value)

    def gather(self, tensor, flat=False):
        torch.cuda.current_stream().synchronize()
        every = (torch.cat if flat else torch.stack)(self.board.meet(self.rank, tensor.contiguous()))
        torch.cuda.current_stream().synchronize()
        self.board.meet(self.rank, None)
        return every

    def all_to_all(self, tensor):
        return self.gather(tensor)[:, self.rank]

    def total_shard(self, tensor, rows):
        """This rank's `rows` rows of the sum over ranks."""
        return self.total(tensor)[self.rank * rows : (self.rank + 1) * rows]

    def total(self, tensor, own=False):
        return self.gather(tensor).float().sum(0).to(tensor.dtype)

    def timeout(self):
        return 20.0

    def synchronize(self):
        torch.cuda.current_stream().synchronize()


class LonePeer(LocalMachine):
    """Rank 0 of `world` whose peers are not there: every rank's memory is its own. A module is made on it, so that its
    kernels get compiled for that world size; calls would wait for ever."""

    alone = True

    def __init__(self, world: int) -> None:
        device = torch.device("cuda", torch.cuda.current_device())
        super().__init__(Board(1), 0, torch.cuda.get_device_properties(device).multi_processor_count)
        self.world, self.device = world, device

    def symmetric(self, name, shape, dtype):
        local = torch.zeros(shape, dtype=dtype, device=self.device)
        self._keep.append(local)
        addresses = (local.data_ptr(),) * self.world
        return Symmetric(local, addresses, torch.tensor(addresses, dtype=torch.int64, device=self.device))

    def among(self, ranks, group):
        return LonePeer(len(ranks))

    def vote(self, value):
        return [value] * self.world

    def gather(self, tensor, flat=False):
        return (torch.cat if flat else torch.stack)([tensor] * self.world)


class GonePeer(LonePeer):
    """Rank 0 of two. Rank 1's memory is here too and holds zeros; its flags are those of calls long ahead, so nothing
    is waited for, and what is pushed to it stays here."""

    def __init__(self) -> None:
        super().__init__(2)

    def symmetric(self, name, shape, dtype):
        local, peers = (torch.zeros(shape, dtype=dtype, device=self.device) for _ in range(2))
        if name.endswith(("_arrived", "_closed")):
            local.fill_(LONG_AGO)
        self._keep += [local, peers]
        addresses = (local.data_ptr(), peers.data_ptr())
        return Symmetric(local, addresses, torch.tensor(addresses, dtype=torch.int64, device=self.device))


def run_ranks(world: int, sms: int, body) -> list:
    """`body(machine)` on one thread and stream for each rank; results in rank order. The first exception is raised."""
    board = Board(world)
    results: list = [None] * world
    errors: list = []

    def target(rank: int) -> None:
        try:
            torch.cuda.set_device(0)
            with torch.cuda.stream(torch.cuda.Stream()):
                results[rank] = body(LocalMachine(board, rank, sms))
                torch.cuda.current_stream().synchronize()
        except BaseException as error:
            errors.append(error)
            board.barrier.abort()

    threads = [threading.Thread(target=target, args=(r,)) for r in range(world)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise next((e for e in errors if not isinstance(e, threading.BrokenBarrierError)), errors[0])
    return results
