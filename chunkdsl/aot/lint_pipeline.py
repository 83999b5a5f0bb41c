"""Lints over TTGIR: is the K loop still pipelined, does it use the tensor cores, do its loads stay behind the wait."""

from __future__ import annotations

import re
from collections.abc import Iterator

from chunkdsl.aot.findings import lint_rule
from chunkdsl.aot.flow import find_definition, slice_back
from chunkdsl.aot.ttgir import Module, Op, read_ttgir

DOTS = ("ttng.warp_group_dot", "ttng.tc_gen5_mma", "tt.dot", "tt.dot_scaled", "ttng.tc_gen5_mma_scaled")
COPIES = (
    "ttg.async_copy_global_to_local", "ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather",
    "amdg.async_tdm_copy_global_to_local", "amdg.buffer_load_to_local",
)  # fmt: skip
LOADS = ("tt.load", "amdg.buffer_load")
ACQUIRING_ASM = re.compile(r"\b(?:ld|atom|fence)\.[\w.:]*acquire")


def is_wait(op: Op) -> bool:
    """An acquire that other ranks' data hangs on. An acq_rel counter is not: it publishes."""
    if op.name in ("tt.atomic_rmw", "tt.atomic_cas"):
        return bool(re.search(r"\bacquire\b", op.text))
    return op.name == "tt.elementwise_inline_asm" and bool(ACQUIRING_ASM.search(op.strings))


def dot_loops(module: Module) -> list[Op]:
    """The K loops, once each: innermost loops whose dot adds to what the round before left.

    A dot peeled off its K loop, or one whose K loop has a single round, lies in the loop over tiles; that is no K loop.
    """
    loops: dict[Op, list[Op]] = {}
    for dot in module.named(*DOTS):
        if dot.loop is not None:
            loops.setdefault(dot.loop, []).append(dot)
    loops = {loop: dots for loop, dots in loops.items() if _accumulates(dots)}
    return [loop for loop, dots in loops.items() if not all(_is_peeled(module, dot, loop, loops) for dot in dots)]


def _accumulates(dots: list[Op]) -> bool:
    if dots[0].name.startswith("ttng.tc_gen5_mma"):  # accumulates in tensor memory unless told to overwrite it
        return not any(_is_false(value, dot) for dot in dots for value in dot.operands[3:5])
    return any(dot in slice_back(dot.operands[2], dot.region).operations for dot in dots)


def _is_peeled(module: Module, dot: Op, loop: Op, loops: dict[Op, list[Op]]) -> bool:
    """A copy of a dot of a loop further in: the compiler takes the first or last round out and keeps its place."""
    inner = [d for other, dots in loops.items() if other is not loop and loop in other.ancestors() for d in dots]
    return any(module.place(d) == module.place(dot) for d in inner)


def _is_false(value: str, op: Op) -> bool:
    made, _, _ = find_definition(value, op.region)
    return made is not None and made.name == "arith.constant" and "constant false" in made.text


def fills(module: Module) -> Iterator[tuple[str, Op, Op]]:
    """(shared buffer, operation that reads global memory, operation that fills the buffer) for each fill."""
    for op in module.operations:
        if op.name in COPIES:
            for buffer in _buffers(op):
                yield buffer, op, op
        elif op.name == "ttg.local_store":
            loads = [o for o in slice_back(op.operands[0], op.region, _is_load).operations if _is_load(o)]
            for buffer in _buffers(op):
                for load in loads:
                    yield buffer, load, op


def _is_load(op: Op) -> bool:
    return op.name in LOADS and not op.scalar


def _buffers(op: Op) -> list[str]:
    found = []
    for value in op.operands:
        behind = slice_back(value, op.region, lambda o: o.name == "ttg.local_alloc").operations
        found += [o.results[0] for o in behind if o.name == "ttg.local_alloc" and "i64" not in o.text.split("->")[-1]]
    return list(dict.fromkeys(found))


@lint_rule("load-before-wait", "ttgir")
def loads_before_wait(text: str) -> Iterator[tuple[int, str, str]]:
    """Loads of a dot must not run before the wait that guards them.

    The software pipeliner moves loads of later iterations up, past an acquire that it does not understand: into the
    prologue before the loop, or above the wait in the body. The tile is then computed from data that has not
    arrived, seldom enough to pass tests. Wait before the K loop, or loop over chunks outside and over k inside.
    """
    module = read_ttgir(text)
    waits = [op for op in module.operations if is_wait(op)]
    uses: dict[str, list[tuple[Op, Op]]] = {}
    for buffer, load, fill in fills(module):
        uses.setdefault(buffer, []).append((load, fill))
    for group in uses.values():
        loops = [loop for loop in dot_loops(module) if any(loop in fill.ancestors() for _, fill in group)]
        for loop in loops:
            inside = set(loop.walk())
            for load, _ in group:
                if load not in inside and load.region is not loop.region:
                    continue
                late = [w for w in waits if load.line < w.line and (w in inside or w.line < loop.line)]
                if late:
                    yield load.line, load.text, f"reads ahead of the wait at line {late[0].line}"


@lint_rule("wait-in-dot-loop", "ttgir")
def waits_in_dot_loop(text: str) -> Iterator[tuple[int, str, str]]:
    """No wait in the innermost loop that holds a dot.

    Under an `if`, or as one poll, the pipeliner hoists loads above it; as a `while` it turns pipelining off; in a
    flattened loop its order hangs on a data dependence that the next compiler need not keep.
    """
    module = read_ttgir(text)
    for loop in dot_loops(module):
        for op in loop.walk():
            if is_wait(op):
                yield (
                    op.line,
                    op.text,
                    f"a wait inside the dot loop at line {loop.line}: wait before it, or loop by chunk",
                )


@lint_rule("dot-loop-not-pipelined", "ttgir", nvidia_only=True)
def dot_loops_pipelined(text: str) -> Iterator[tuple[int, str, str]]:
    """A K loop must copy asynchronously, and its first copies must be under way before it starts.

    Pipelining is lost without a word: by a `while` as K loop, a barrier in it, two-byte loads (a run-time stride
    whose divisibility was not stated), or a flattened loop with `tl.debug_barrier`. Results stay right, at a third
    of the speed. Warp-specialised kernels are left alone: there a producer warp does the copies.
    """
    module = read_ttgir(text)
    if module.named("ttg.warp_specialize"):
        return
    for loop in dot_loops(module):
        inside = list(loop.walk())
        reads = [o for o in inside if _is_load(o)]
        copies = [o for o in inside if o.name in COPIES]
        if not copies:
            what = (
                f"reads with plain loads (line {min(o.line for o in reads)})" if reads else "has no asynchronous copies"
            )
            yield loop.line, loop.text, f"the dot loop {what}"
            continue
        filled = {b for o in copies for b in _buffers(o)}
        ahead = [o for b, _, o in fills(module) if b in filled and o.line < loop.line and o not in inside]
        if not ahead:
            yield (
                loop.line,
                loop.text,
                f"the copies of the dot loop (line {min(o.line for o in copies)}) have no prologue",
            )


@lint_rule("old-tensor-core-path", "ttgir", nvidia_only=True)
def tensor_core_path(text: str) -> Iterator[tuple[int, str, str]]:
    """bf16 and f16 dots of 64 rows or more use wgmma on sm_90 and tcgen05 on sm_100, never mma.sync.

    The older instruction runs at a fraction of the rate. Tiles of fewer than 64 rows, fewer than four warps, or an
    operand in registers where shared memory is wanted make the compiler fall back to it.
    """
    module = read_ttgir(text)
    wanted = {"cuda:90": "wgmma", "cuda:100": "tcgen05"}.get(module.target)
    if wanted is None:
        return
    for op in module.named("tt.dot"):
        shape = re.findall(r"tensor<(\d+)x(\d+)x(bf16|f16|f32)", op.text)
        if len(shape) >= 3 and shape[0][2] in ("bf16", "f16") and int(shape[-1][0]) >= 64 and int(shape[-1][1]) >= 8:
            yield op.line, op.text, f"a dot of {shape[-1][0]}x{shape[-1][1]} that is not {wanted}"
