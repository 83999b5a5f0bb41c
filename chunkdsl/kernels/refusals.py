"""How it is said that data decides what a kernel touches: at the line of the access, naming the line of the load."""

from __future__ import annotations

import sys

from chunkdsl.interp.rewrite import is_kernel_file
from chunkdsl.kernels.fault import KernelFault
from chunkdsl.kernels.taint import Taint

WANTED = "what a program touches must follow from sizes and program ids; only of what is whole on each rank may it pick"


def address_from_data(
    kind: str, names: tuple[str, ...], where: Taint | None, whether: Taint | None, line: int | None
) -> KernelFault:
    """Of an access with a tainted address, or with a mask that is."""
    of = f" of {' or '.join(names)}" if names else ""
    a = "an" if kind == "atomic" else "a"
    if where:
        return KernelFault(f"{a} {kind}{of} at an address that depends on data: {where}", line, WANTED)
    return KernelFault(f"whether {a} {kind}{of} takes place depends on data: {whether}", line, WANTED)


def decision_from_data(what: str, taint: Taint, line: int | None) -> KernelFault:
    """Of an `if`, a loop's bound or anything else by which the kernel runs on."""
    return KernelFault(f"{what} depends on data: {taint}", line, WANTED)


def current_line() -> int | None:
    """Line of the innermost frame of a user's kernel."""
    frame = sys._getframe(1)
    while frame is not None:
        if is_kernel_file(frame.f_code.co_filename):
            return frame.f_lineno
        frame = frame.f_back
    return None
