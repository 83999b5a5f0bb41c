"""Why a kernel cannot be used, and where in its own file."""

from __future__ import annotations


class KernelFault(Exception):
    """`reason` completes "kernels/matmul.py:12: ...". `line` is 1-based in the kernel's file, None for the whole file;
    `mend` says what to do."""

    def __init__(self, reason: str, line: int | None = None, mend: str = "") -> None:
        super().__init__(reason)
        self.reason, self.line, self.mend = reason, line, mend
