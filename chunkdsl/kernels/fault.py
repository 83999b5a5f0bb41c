"""Why a kernel cannot be used, and where in its own file."""

from __future__ import annotations


class KernelFault(Exception):
    """`reason` completes "kernels/matmul.py:12: ...". `line` is 1-based in the kernel's file, None for the whole file;
    `mend` says what to do. `edge`: a chunk that is sent would end inside a tile."""

    def __init__(self, reason: str, line: int | None = None, mend: str = "", *, edge: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.line, self.mend, self.edge = reason, line, mend, edge

    def again(self) -> KernelFault:
        """The same fault for another call: a raised one keeps the traceback of the first."""
        return KernelFault(self.reason, self.line, self.mend, edge=self.edge)
