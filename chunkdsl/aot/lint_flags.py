"""Lints over the flags themselves: scope, order and how many threads touch them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from chunkdsl.aot.findings import lint_rule
from chunkdsl.aot.flow import find_definition, slice_back
from chunkdsl.aot.lint_order import is_poll, is_release
from chunkdsl.aot.ptx import read_ptx
from chunkdsl.aot.ttgir import Op, Region, read_ttgir

Found = Iterator[tuple[int, str, str]]
WRITING_ASM = re.compile(r"\b(?:multimem\.)?(?:red|atom|st)\.(?!shared|local)")
WEAK_ASM = re.compile(r"\bld\.(?:[\w.:]*\b(?:relaxed|volatile|weak|mmio)\b|global)(?![\w.:]*acquire)")
ONE_THREAD = re.compile(r"%tid|elect\.sync|%laneid")


@lint_rule("flag-scope", "ptx", nvidia_only=True)
def flag_scopes(text: str) -> Found:
    """Flags between ranks are acquired and released at `.sys` scope.

    At `.gpu` scope a wait for another GPU's flag can spin for ever. A local counter of finished tiles may be an
    acq_rel add at `.gpu`, and a claim on a local word a compare-and-swap: they never leave the GPU, and the last
    arriver releases the flag at `.sys`.
    """
    for body in read_ptx(text):
        for op in body:
            if "sys" in op.parts:
                continue
            if is_poll(op):
                yield op.line, op.text, "a wait below .sys scope"
            elif is_release(op) and not ({"acq_rel", "gpu"} <= set(op.parts) and {"add", "cas"} & set(op.parts)):
                yield op.line, op.text, "a release below .sys scope that is no local acq_rel counter or claim"


@lint_rule("relaxed-poll", "ttgir")
def relaxed_polls(text: str) -> Found:
    """A loop that waits for a word reads it with acquire.

    A relaxed or plain read may see the flag and still let the data be read from before; a plain one may also be moved
    out of the loop, or hit a stale line for ever.
    """
    for loop in read_ttgir(text).named("scf.while"):
        condition = loop.regions[0].terminator
        if condition is None or not condition.operands:
            continue
        inside = set(loop.walk())
        for op in sorted(slice_back(condition.operands[0], loop.regions[0]).operations & inside, key=lambda o: o.line):
            if _reads_without_order(op) and not _moves(op, loop):
                yield op.line, op.text, f"the loop at line {loop.line} polls without acquire"


def _reads_without_order(op: Op) -> bool:
    if op.name == "tt.atomic_rmw":
        return "relaxed" in op.text and _is_zero(op.operands[1], op.region)
    if op.name == "tt.elementwise_inline_asm":
        return op.scalar and bool(WEAK_ASM.search(op.strings))
    return op.name == "tt.load" or (op.name == "tt.atomic_cas" and "relaxed" in op.text)


def _is_zero(value: str, region: Region) -> bool:
    op, _, _ = find_definition(value, region)
    return op is not None and op.name == "arith.constant" and bool(re.search(r"constant (?:0 :|dense<0>)", op.text))


def _moves(op: Op, loop: Op) -> bool:
    """Does the address change from one round to the next? Then the loop walks a table, it does not poll."""
    inside = set(loop.walk())
    carried = {a for region in loop.regions for a in region.arguments}
    return any(v in carried for v in op.operands[:1]) or bool(slice_back(op.operands[0], op.region).operations & inside)


@lint_rule("unused-acquire", "ttgir")
def unused_acquires(text: str) -> Found:
    """The value of an acquire is used.

    `tl.atomic_add(p, 0, sem="acquire")` becomes a plain acquire load, and a load whose result nobody reads is deleted
    on the way to PTX: nothing is ordered at all. Branch on the value, as a poll does.
    """
    module = read_ttgir(text)
    used = {find_definition(v, op.region)[0] for op in module.operations for v in op.operands}
    for op in module.named("tt.atomic_rmw", "tt.atomic_cas"):
        if re.search(r"\bacquire\b", op.text) and op not in used:
            yield op.line, op.text, "an acquire whose value is not used: the compiler deletes it"


@lint_rule("asm-in-every-thread", "ttgir", nvidia_only=True)
def asm_in_every_thread(text: str) -> Found:
    """Scalar inline asm runs in every thread of the program: a `red.add` of 1 there adds 128.

    So does tensor asm where the tensor has fewer elements than the program has threads. Use `tl.atomic_*` for flags
    and counters; asm only for what has no other form, and then predicated to one thread.
    """
    module = read_ttgir(text)
    for op in module.named("tt.elementwise_inline_asm"):
        wrote = WRITING_ASM.search(op.strings)
        if not wrote or ONE_THREAD.search(op.strings):
            continue
        sizes = [math.prod(map(int, re.findall(r"(\d+)x", s))) for s in re.findall(r"tensor<((?:\d+x)+)", op.text)]
        if not sizes or max(sizes) < module.threads:
            yield op.line, op.text, f"`{wrote[0]}` in all {module.threads} threads"
