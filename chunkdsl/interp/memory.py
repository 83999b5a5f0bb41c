"""What the interpreter tells about memory, and asks before it touches it. The default lets everything pass.

A `Memory` sees addresses and values only, never what a template calls them. It is called on the thread (and the
greenlet) of the program, immediately before the access, so an implementation may switch to another program there.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np


class Memory:
    """Subclass and pass to `interpreting`. Addresses are uint64 arrays of any shape, masks bool arrays of the same
    shape, `itemsize` the bytes of one element. `bulk` says that a tensor descriptor (TMA) makes the access."""

    def load(self, addresses: np.ndarray, mask: np.ndarray, itemsize: int, volatile: bool, bulk: bool) -> None:
        """Elements whose mask is set are about to be read."""

    def store(self, addresses: np.ndarray, mask: np.ndarray, itemsize: int, bulk: bool) -> None:
        """Elements whose mask is set are about to be written."""

    def keep(self, addresses: np.ndarray, mask: np.ndarray, data: np.ndarray) -> bool:
        """Take a store over, to make it later; `data` are the values. False: it is made now."""
        return False

    def atomic(
        self,
        operation: str,
        addresses: np.ndarray,
        mask: np.ndarray,
        itemsize: int,
        sem: str,
        scope: str,
        perform: Callable[[], np.ndarray],
    ) -> np.ndarray:
        """Carry out one atomic by calling `perform` once; return what it returned (the old values).

        `operation` is load, store, cas, add, fadd, xchg, and, or, xor, min, max, umin or umax; `sem` relaxed,
        acquire, release or acq_rel; `scope` cta, gpu or sys. An `add` of zero arrives as `load`.
        """
        return perform()

    def barrier(self) -> None:
        """All threads of the program meet (`tl.debug_barrier`, `bar.sync`)."""

    def fence(self, scope: str) -> None:
        """A memory fence with acquire and release semantics."""

    def proxy_fence(self) -> None:
        """`fence.proxy.async`: orders generic accesses before later descriptor accesses."""

    def bulk_wait(self, complete: bool) -> None:
        """Wait for descriptor stores; `complete` False is the `.read` form, which frees only their source."""

    def clock(self) -> int:
        """Nanoseconds, for `%globaltimer`."""
        return time.monotonic_ns()

    def pause(self, nanoseconds: int) -> None:
        """The program sleeps."""
