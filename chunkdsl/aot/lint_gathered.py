"""A lint over TTGIR of users' kernels: loads of the gathered argument stay behind the waits for its rows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from chunkdsl.aot.findings import lint_rule
from chunkdsl.aot.flow import slice_back
from chunkdsl.aot.lint_pipeline import COPIES, LOADS, is_wait
from chunkdsl.aot.ttgir import Op, read_ttgir

LOOPS = ("scf.for", "scf.while")


@lint_rule("gathered-load-before-wait", "ttgir")
def gathered_loads_before_wait(text: str) -> Iterator[tuple[int, str, str]]:
    """No load of a user's gathered argument stands in front of the wait for its rows.

    A launch takes such an argument as `k_NAME`, with the rows of its buffer as `k_NAME_cap`. Of the loops around one,
    the innermost one that waits must do so before the load: loads of the first round that were moved up would read
    what has not arrived. Where a loop inside does the loading, none may follow it either: that would be a load for the
    next turn. Loads through tensor descriptors are not seen here; "tma-load-without-proxy-fence" orders those.
    """
    gathered = {f"%{name}" for name in re.findall(r"%(k_\w+)_cap: i32", text)}
    if not gathered:
        return
    module = read_ttgir(text)
    waits = [op for op in module.operations if is_wait(op)]
    loads = [op for op in module.named(*COPIES, *LOADS) if not op.scalar and gathered & arguments_of(op)]
    for load in loads:
        loop = next((a for a in load.ancestors() if a.name in LOOPS and any(w in a.walk() for w in waits)), None)
        inside = set(loop.walk()) if loop else set(module.operations)
        if not any(w.line < load.line for w in waits if w in inside):
            yield load.line, load.text, "reads a gathered argument before any wait for its rows"
        elif loop is not None and load.loop is loop:
            inner = [other for other in loads if other.loop is not loop and other in inside and other.line < load.line]
            if inner:
                yield load.line, load.text, f"reads ahead of the next wait, behind the loop of line {inner[0].line}"


def arguments_of(load: Op) -> set[str]:
    """Arguments of the kernel that the address may come from; what was loaded on the way is no address."""
    return slice_back(load.operands[0], load.region, lambda op: op.name in LOADS).arguments
