"""Lints over what a kernel takes and how wide it reaches: registers, shared memory, vector width, 32-bit offsets."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from chunkdsl.aot.findings import lint_rule
from chunkdsl.aot.flow import slice_back, step_back
from chunkdsl.aot.ptx import access_bytes, read_ptx
from chunkdsl.aot.targets import Compiled, find_target
from chunkdsl.aot.ttgir import Op, Region, read_ttgir

Found = Iterator[tuple[int, str, str]]
VECTOR = 16  # bytes
BITS = {"bf16": 16, "f16": 16, "f32": 32, "f64": 64, "f8E4M3FN": 8, "f8E5M2": 8}
DATA = ("tt.load", "tt.store", "ttg.async_copy_global_to_local", "amdg.buffer_load", "amdg.buffer_store")
BOUNDING = ("arith.muli", "arith.divsi", "arith.divui", "arith.remsi", "arith.remui", "arith.minsi")
SCALING = ("arith.muli", "arith.divsi", "arith.divui")
SHAPING = ("tt.splat", "tt.broadcast", "tt.expand_dims", "ttg.convert_layout", "arith.extsi")


@lint_rule("spills", "compiled")
def spills(compiled: Compiled) -> Found:
    """The tile fits the registers. A spill in the K loop costs more than any overlap wins; use a smaller tile.

    ptxas also parks a predicate or a scalar (4 to 16 bytes) in kernels that use 40 of 255 registers; that is its
    choice, not pressure, and is let pass. So it is in kernels whose warps are given their registers (`setmaxnreg`), of
    which it counts an average: there it parks what partitions have in common, once, before the first of them begins.
    """
    few = (compiled.registers or 0) < 128 or "setmaxnreg" in compiled.ptx
    parked = compiled.ptx and compiled.spills and compiled.spills <= 16 and few
    if compiled.spills and not parked:
        unit = "bytes a thread" if compiled.ptx else "registers"
        yield 0, "", f"{compiled.spills} {unit} spilled, {compiled.registers} registers used"


@lint_rule("too-much-shared-memory", "compiled")
def shared_memory(compiled: Compiled) -> Found:
    """Shared memory (and tensor memory) must fit the target. The compiler does not check; the first launch fails."""
    target = find_target(compiled.target)
    if compiled.shared > target.shared:
        yield 0, "", f"{compiled.shared} bytes of shared memory, {target.name} has {target.shared}"
    if compiled.tensor_memory > target.tensor_memory:
        yield 0, "", f"{compiled.tensor_memory} columns of tensor memory, {target.name} has {target.tensor_memory}"


@lint_rule("narrow-access", "compiled", nvidia_only=True)
def narrow_accesses(compiled: Compiled) -> Found:
    """Tiles are read and written 16 bytes a thread at a time.

    Alignment is lost without a word: a run-time stride in `do_not_specialize`, a mask against a run-time column count,
    a pointer cast from an int64 table. The access then shrinks to 2 or 4 bytes, and loads that narrow are not
    pipelined either. State it: `tl.multiple_of(stride.to(tl.int64), 8)`, `tl.multiple_of(pointer, 16)`.
    Tensors with less than 16 bytes for each thread are left alone.
    """
    module = read_ttgir(compiled.ttgir)
    large = {module.place(op) for op in module.named(*DATA) if _bytes(op) >= VECTOR * module.threads}
    large.discard(None)
    seen = set()
    for body in read_ptx(compiled.ptx):
        for op in body:
            moves = (op.parts[0] in ("ld", "st") and "global" in op.parts) or op.opcode.startswith("cp.async.c")
            if moves and op.place in large and op.place not in seen and 0 < access_bytes(op) < VECTOR:
                seen.add(op.place)
                file, line, _ = op.place
                name = file.rsplit("/", 1)[-1]
                yield op.line, op.text, f"{access_bytes(op)} bytes at a time for the tile access at {name}:{line}"


def _bytes(op: Op) -> int:
    """Bytes of the tensor of pointers that `op` uses; 0 for a scalar access."""
    found = re.search(r"tensor<((?:\d+x)+)!tt\.ptr<(\w+)>", op.text)
    if not found:
        return 0
    bits = BITS.get(found[2]) or int(re.search(r"\d+$", found[2])[0] if re.search(r"\d+$", found[2]) else 8)
    return math.prod(int(n) for n in found[1].split("x") if n) * bits // 8


@lint_rule("offset-in-32-bits", "ttgir")
def offsets_in_32_bits(text: str) -> Found:
    """row * stride with a run-time stride is computed in 64 bits.

    An i32 product wraps past 2^31 elements (16384 x 131072 is enough), and only at the shapes nobody tested. Convert
    the row index first: `rows.to(tl.int64)[:, None] * stride`.
    """
    module = read_ttgir(text)
    for op in module.named(*DATA):
        if op.scalar:
            continue
        for product in sorted(_offset_products(op), key=lambda o: o.line):
            yield product.line, product.text, f"a 32-bit product of two run-time values in an offset at line {op.line}"


def _offset_products(op: Op) -> set[Op]:
    """The last products on the way to the address: what they multiply are row numbers and tile counts, which fit."""
    pointers = slice_back(op.operands[0], op.region, lambda o: o.name == "tt.load").operations
    found = set()
    for add in (o for o in pointers if o.name == "tt.addptr"):
        behind = slice_back(add.operands[1], add.region, lambda o: o.name in BOUNDING)
        found |= {p for p in behind.operations if p.name == "arith.muli" and _is_32_bit(p) and _row_by_stride(p)}
    return found


def _is_32_bit(op: Op) -> bool:
    return bool(re.search(r": (?:tensor<(?:\d+x)*)?i32", op.text))


def _row_by_stride(product: Op) -> bool:
    one, two = product.operands[:2]
    where = product.region
    return any(_is_stride(s, where) and _is_unbounded(r, where) for r, s in ((one, two), (two, one)))


def _is_stride(value: str, region: Region) -> bool:
    """A function argument, shaped or scaled by constants but not divided or bounded by another: a stride, not a count
    of tiles. (`n // 8 * 8` and `pitch * 8` are how a stride says that it is aligned.)"""
    op, behind, argument = step_back(value, region)
    if argument:
        return True
    if op is not None and op.name in SCALING:
        rest = [(v, r) for v, r in behind if not _is_constant(v, r)]
        return len(rest) == 1 and _is_stride(*rest[0])
    return op is not None and op.name in SHAPING and all(_is_stride(v, r) for v, r in behind)


def _is_constant(value: str, region: Region) -> bool:
    op, behind, _ = step_back(value, region)
    if op is None:
        return False
    return op.name == "arith.constant" or (op.name in SHAPING and all(_is_constant(v, r) for v, r in behind))


def _is_unbounded(value: str, region: Region) -> bool:
    """Depends on an argument, a program id, a ticket or a loop: anything but constants and ranges."""
    behind = slice_back(value, region)
    bounded = ("arith.constant", "tt.make_range")
    roots = {o for o in behind.operations if not o.operands and o.name not in bounded}
    return bool(behind.arguments or roots)
