"""Lints over PTX: what must stand between a store and the release that publishes it, an acquire and the load it guards.

Each is a may-analysis over all paths; a predicated barrier or fence counts as absent. Stores and releases under one
predicate are one thread's, so program order covers them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from chunkdsl.aot.findings import lint_rule
from chunkdsl.aot.ptx import Facts, Instruction, flow_forward, read_ptx

Found = Iterator[tuple[int, str, str]]


def is_release(op: Instruction) -> bool:
    return op.parts[0] in ("atom", "red", "st", "multimem") and ("release" in op.parts or "acq_rel" in op.parts)


def is_poll(op: Instruction) -> bool:
    """An acquire that waits (Triton's atomic_add(p, 0) becomes a load); acq_rel counters publish instead."""
    return op.parts[0] in ("ld", "atom") and "acquire" in op.parts


def is_barrier(op: Instruction) -> bool:
    return op.parts[0] in ("bar", "barrier") and not op.predicate and "arrive" not in op.parts


def writes_global(op: Instruction) -> bool:
    parts = op.parts
    if parts[0] == "multimem":
        return parts[1] in ("st", "red")
    if parts[0] in ("atom", "red", "st"):
        return not any(p.startswith(("shared", "local", "param")) for p in parts) and not is_release(op)
    return False


def reads_global(op: Instruction) -> bool:
    """Loads of data, not acquires and not single words of the synchronisation itself."""
    if op.parts[0] in ("ld", "ldu"):
        return "global" in op.parts and not {"acquire", "relaxed"} & set(op.parts)
    return (op.opcode.startswith("cp.async.c") and "shared" in op.opcode) or is_tma_load(op)


def is_tma_load(op: Instruction) -> bool:
    return (
        op.opcode.startswith("cp.async.bulk") and ".shared" in op.opcode.split(".global")[0] and ".global" in op.opcode
    )


def is_bulk_store(op: Instruction) -> bool:
    return op.opcode.startswith(("cp.async.bulk", "cp.reduce.async.bulk")) and ".global.shared" in op.opcode


def _flow(text: str, transfer: Callable[[Instruction, Facts], Facts]) -> Iterator[tuple[Instruction, Facts]]:
    for body in read_ptx(text):
        before = flow_forward(body, transfer)
        yield from ((op, before[op]) for op in body)


def _stores_in_flight(op: Instruction, facts: Facts) -> Facts:
    if is_barrier(op):
        return Facts(f for f in facts if f[0] == "bulk")
    if is_bulk_store(op):
        return facts | {("bulk", op.line, "")}
    if op.opcode == "cp.async.bulk.wait_group" and op.operands.strip() == "0" and not op.predicate:
        return Facts(("store", line, "") if kind == "bulk" else (kind, line, p) for kind, line, p in facts)
    if writes_global(op):
        return facts | {("store", op.line, op.predicate)}
    return facts


@lint_rule("release-without-barrier", "ptx", nvidia_only=True)
def releases_without_barrier(text: str) -> Found:
    """A CTA barrier must stand between the stores of a tile and the release that publishes them.

    Triton puts none before a scalar release: one thread signals while other warps are still storing, and the reader
    takes old data. Emit `tl.debug_barrier()` before every release.
    """
    for op, facts in _flow(text, _stores_in_flight):
        if is_release(op):
            for kind, line, predicate in sorted(facts):
                if kind == "store" and (not predicate or predicate != op.predicate):
                    yield op.line, op.text, f"releases the store at line {line} without a barrier in between"
                    break


@lint_rule("release-over-bulk-store", "ptx", nvidia_only=True)
def releases_over_bulk_store(text: str) -> Found:
    """A TMA store is still in flight after `wait_group.read`: only the shared memory is free again.

    Emit `cp.async.bulk.wait_group 0` (not `.read`), then the barrier, then the release, or store signalled tiles with
    `tl.store`.
    """
    for op, facts in _flow(text, _stores_in_flight):
        if is_release(op):
            for _, line, _ in sorted(f for f in facts if f[0] == "bulk"):
                yield op.line, op.text, f"releases the bulk store at line {line} before it is complete"
                break


def _touches_memory(op: Instruction) -> bool:
    """Any access to global memory, by whatever order or width."""
    parts = set(op.parts)
    kinds = ("ld", "ldu", "st", "atom", "red", "multimem", "prefetch")
    if op.parts[0] in kinds:
        return not parts & {"param", "local"} and not any(p.startswith("shared") for p in parts)
    copies = ("cp.async.c", "cp.async.bulk.", "cp.reduce.async", "tensormap.cp")
    return op.opcode.startswith(copies) and not parts & {"commit_group", "wait_group"}


def _waited(op: Instruction, facts: Facts) -> Facts:
    return Facts() if op.opcode == "griddepcontrol.wait" and not op.predicate else facts


def _goes_by_flags(body: list[Instruction]) -> bool:
    """A kernel that lets another start beside it and waits for none ahead (`admit_next`), or that starts so itself and
    polls for what it reads until it waits at its end (`await_ahead`). `start_early` waits first, and so does every
    partition of specialised warps."""
    said = [op.opcode for op in body if op.opcode.startswith("griddepcontrol")]
    wait, admit = "griddepcontrol.wait", "griddepcontrol.launch_dependents"
    if wait not in said or said == [wait, admit]:
        return wait not in said
    before = flow_forward(body, _waited, Facts({"beside"}))
    return any(is_poll(op) and before[op] for op in body)


@lint_rule("end-before-kernel-ahead", "ptx", nvidia_only=True)
def ends_before_kernel_ahead(text: str) -> Found:
    """A program of a kernel that started beside the one ahead may end before it, and then what comes behind starts.

    Every way to the end has to pass `griddepcontrol.wait`. Call `await_ahead` last.
    """
    for body in read_ptx(text):
        if any(op.opcode == "griddepcontrol.wait" for op in body) and _goes_by_flags(body):
            before = flow_forward(body, _waited, Facts({"beside"}))
            for op in body:
                if before[op] and op.parts[0] in ("ret", "exit"):
                    yield op.line, op.text, "ends while the kernel ahead may still run"
                    break


@lint_rule("access-before-early-start", "ptx", nvidia_only=True)
def accesses_before_early_start(text: str) -> Found:
    """A kernel of a programmatic dependent launch starts while those ahead of it still run.

    What it reads before `griddepcontrol.wait` may be old, and what it writes may be in use. Call `start_early` first.
    Not meant are kernels that go by flags, which poll for what they read and wait at their end.
    """
    for body in read_ptx(text):
        if any(op.opcode.startswith("griddepcontrol") for op in body) and not _goes_by_flags(body):
            before = flow_forward(body, _waited, Facts({"early"}))
            for op in body:
                if before[op] and (_touches_memory(op) or op.opcode == "griddepcontrol.launch_dependents"):
                    yield op.line, op.text, "comes before the kernels ahead have ended"
                    break


def _unfenced(op: Instruction, facts: Facts) -> Facts:
    if op.opcode in ("fence.proxy.async", "fence.proxy.async.global") and not op.predicate:
        return Facts()
    return facts | {op.line} if is_poll(op) else facts


@lint_rule("tma-load-without-proxy-fence", "ptx", nvidia_only=True)
def tma_loads_without_fence(text: str) -> Found:
    """After a wait, a proxy fence must precede TMA loads of what was waited for.

    TMA reads through the async proxy; an acquire orders only the generic one. Data written by ordinary stores or a
    copy engine may be missed. Emit `fence.proxy.async.global` after the wait.
    """
    for op, facts in _flow(text, _unfenced):
        if is_tma_load(op) and facts:
            yield op.line, op.text, f"no fence.proxy.async.global since the acquire at line {min(facts)}"


def _unspread(op: Instruction, facts: Facts) -> Facts:
    if is_barrier(op):
        return Facts()
    return facts | {(op.line, op.predicate)} if is_poll(op) and op.predicate else facts


@lint_rule("acquire-by-one-thread", "ptx", nvidia_only=True)
def acquires_by_one_thread(text: str) -> Found:
    """A CTA barrier must stand between one thread's acquire and the loads of the others.

    Triton spreads the value of a scalar atomic through shared memory, which brings the barrier, but only if the
    value is used: an acquire whose result is dropped orders nothing but its own thread. Branch on the polled value.
    """
    for op, facts in _flow(text, _unspread):
        if reads_global(op):
            for line, predicate in sorted(facts):
                if predicate != op.predicate:
                    yield op.line, op.text, f"loads without a barrier since one thread's acquire at line {line}"
                    break


def _acquired(op: Instruction, facts: Facts) -> Facts:
    return facts | {op.line} if is_poll(op) else facts


@lint_rule("cached-load-after-wait", "ptx", nvidia_only=True)
def cached_loads_after_wait(text: str) -> Found:
    """Data that a wait guards is never read with `.nc`.

    A line of the non-coherent cache may be older than the acquire, and stays so for as long as the kernel runs. `.ca`,
    which authors of kernels write as a hint, is how a load without a modifier is cached: since sm_70 such operators do
    not change what a program may read (PTX ISA, "Cache Operators"), and an acquire covers it.
    """
    for op, facts in _flow(text, _acquired):
        cached = op.parts[0] == "ldu" or (op.parts[0] == "ld" and "global" in op.parts and "nc" in op.parts)
        if cached and facts:
            yield op.line, op.text, f"a cached load after the acquire at line {min(facts)}"
