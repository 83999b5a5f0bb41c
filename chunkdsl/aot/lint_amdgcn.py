"""Lints over AMD's assembly of gfx942: the same rules of synchronisation as over PTX, in what they become there.

A release at system scope is `buffer_wbl2 sc0 sc1`, a wait for it, then the store or atomic; an acquire is a load or
atomic with `sc0 sc1`, a wait, then `buffer_inv sc0 sc1`. With `sc1` alone the scope is one GPU (LLVM's user guide of
the AMDGPU backend, memory model of gfx942). Each lint is a may-analysis over all paths. Nothing of this was run on AMD.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from chunkdsl.aot.findings import lint_rule
from chunkdsl.aot.gcn import read_gcn, waves_of
from chunkdsl.aot.ptx import Facts, Instruction, flow_forward

Found = Iterator[tuple[int, str, str]]
MEMORY = re.compile(r"(global|buffer|flat)_(load|store|atomic)")


def kind_of(op: Instruction) -> str:
    """`load`, `store` or `atomic` of memory that others may see, else ""."""
    found = MEMORY.match(op.opcode)
    return found[2] if found else ""


def bits_of(op: Instruction) -> set[str]:
    return set(op.operands.split()) & {"sc0", "sc1", "nt"}


def is_data(op: Instruction) -> bool:
    """A load or store of no synchronisation."""
    return kind_of(op) in ("load", "store") and not {"sc0", "sc1"} & bits_of(op)


def is_poll(op: Instruction) -> bool:
    """A load for a flag, of whatever scope."""
    return kind_of(op) == "load" and "sc1" in bits_of(op)


def waits_for_all(op: Instruction) -> bool:
    return op.opcode == "s_waitcnt" and (op.operands == "0" or "vmcnt(0)" in op.operands)


def _flow(text: str, transfer: Callable[[Instruction, Facts], Facts]) -> Iterator[tuple[Instruction, Facts]]:
    for body in read_gcn(text):
        before = flow_forward(body, transfer)
        yield from ((op, before[op]) for op in body)


def _writes_back(op: Instruction, facts: Facts) -> Facts:
    """("store", line) since the last barrier, and how far a release is: "back" (not waited for), "out"."""
    if op.opcode == "s_barrier":
        return Facts(f for f in facts if f[0] != "store")
    if op.opcode == "buffer_wbl2":
        return facts | {("back", op.line)}
    if waits_for_all(op):
        return Facts(("out", line) if kind == "back" else (kind, line) for kind, line in facts)
    if kind_of(op) in ("store", "atomic"):
        kept = Facts(f for f in facts if f[0] == "store")
        return kept | {("store", op.line)} if is_data(op) else kept
    return facts


@lint_rule("release-without-barrier-amd", "amdgcn")
def releases_without_barrier(text: str) -> Found:
    """A barrier must stand between the stores of a tile and the release that publishes them.

    `buffer_wbl2` and its wait are for the stores of one wave; those of the others may still be on their way. Programs
    of one wave need none, and the compiler leaves it out. Emit `tl.debug_barrier()` before every release.
    """
    if waves_of(text) < 2:
        return
    for op, facts in _flow(text, _writes_back):
        stores = sorted(line for kind, line in facts if kind == "store")
        if stores and kind_of(op) in ("store", "atomic") and any(kind in ("back", "out") for kind, _ in facts):
            yield op.line, op.text, f"releases the store at line {stores[0]} without a barrier in between"


@lint_rule("release-before-write-back-amd", "amdgcn")
def releases_before_write_back(text: str) -> Found:
    """A release waits until the caches are written back.

    `buffer_wbl2` only begins it: without `s_waitcnt vmcnt(0)` behind it the flag may be seen before the data. The
    compiler of Triton 3.6 leaves the wait out where it counts no store of the same wave, so that this finds every
    kernel that signals; whether the hardware needs it there is not known to us.
    """
    for op, facts in _flow(text, _writes_back):
        if kind_of(op) in ("store", "atomic"):
            for line in sorted(line for kind, line in facts if kind == "back"):
                yield op.line, op.text, f"releases without waiting for the write-back at line {line}"


def _stale(op: Instruction, facts: Facts) -> Facts:
    if op.opcode == "buffer_inv" and bits_of(op) >= {"sc0", "sc1"}:
        return Facts()
    return facts | {op.line} if is_poll(op) else facts


@lint_rule("load-without-invalidate-amd", "amdgcn")
def loads_without_invalidate(text: str) -> Found:
    """After a wait, `buffer_inv sc0 sc1` must precede the loads of what was waited for.

    A line of the vector cache, or of an L2 that other GPUs do not write to, may be older than the flag. A relaxed poll
    brings none, and one at the scope of a GPU leaves the L2 as it is: poll with `sem="acquire", scope="sys"`.
    """
    for op, facts in _flow(text, _stale):
        if kind_of(op) == "load" and is_data(op) and facts:
            yield op.line, op.text, f"loads what a cache may still hold from before the poll at line {min(facts)}"


def _unspread(op: Instruction, facts: Facts) -> Facts:
    if op.opcode == "s_barrier":
        return Facts()
    return facts | {op.line} if is_poll(op) else facts


@lint_rule("acquire-by-one-wave-amd", "amdgcn")
def acquires_by_one_wave(text: str) -> Found:
    """A barrier must stand between one thread's acquire and the loads of the other waves.

    Triton polls in one thread and hands the value on through shared memory, which brings the barrier, but only if the
    value is used. Branch on the polled value.
    """
    if waves_of(text) < 2:
        return
    for op, facts in _flow(text, _unspread):
        if kind_of(op) == "load" and is_data(op) and facts:
            yield op.line, op.text, f"loads without a barrier since one thread's acquire at line {min(facts)}"


@lint_rule("flag-at-narrow-scope-amd", "amdgcn")
def flags_at_narrow_scope(text: str) -> Found:
    """Flags of other ranks are written and polled at system scope: `sc0 sc1`, or `sc1` of an atomic without result.

    At the scope of one GPU (a release with `buffer_wbl2 sc1`, a poll with `sc1` alone) nobody else need ever see them.
    Counters within a GPU add (`acq_rel`), which this lets pass.
    """
    for op, facts in _flow(text, _writes_back):
        released = any(kind in ("back", "out") for kind, _ in facts)
        if op.opcode.endswith("_atomic_swap") and released and "sc1" not in bits_of(op):
            yield op.line, op.text, "a flag is set at the scope of one GPU"
        if is_poll(op) and "sc0" not in bits_of(op):
            yield op.line, op.text, "a flag is polled at the scope of one GPU"
