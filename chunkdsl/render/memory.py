"""What construction allocates for an op, as Python: buffers, flags, counters and tickets, shapes at the bounds."""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.ir.policy import ChunkCount
from chunkdsl.plan.schedule import Buffer, Flags, OpSchedule
from chunkdsl.render.layout import stride_text
from chunkdsl.render.sizes import dim_text
from chunkdsl.render.units import vector_of
from chunkdsl.render.view import extent_cap_text


def words_text(flags: Flags) -> str:
    """Words of a flag buffer at the bounds."""
    if flags.per == "rank":
        return "W"
    if flags.per == "pair":
        return f"W * {words_text(replace(flags, per='chunk'))}"
    if isinstance(flags.chunk, ChunkCount):
        return f"W * {flags.chunk.count}"
    each = stride_text(dim_text(flags.rows, "dims"), "1" if flags.whole else "W", flags.layout, "1")
    return f"W * cdiv({each}, {flags.chunk.count})"


def shape_text(buffer: Buffer) -> str:
    """Shape of a buffer at the bounds: rows of all slots and groups, columns padded to 16 bytes."""
    rows, vec = dim_text(buffer.rows, "dims"), vector_of(buffer.dtype)
    width = f"padded({extent_cap_text(buffer.cols)}, {vec})"
    if buffer.kind == "local" and buffer.groups == "whole":
        return f"max(1, {rows}), {width}"
    ranks = "W" if buffer.groups in ("world", "shard") else "1"
    slots = "" if buffer.slots == 1 else f"{buffer.slots} * "
    many = "" if buffer.groups in ("whole", "shard") else "W * "
    return f"{slots}{many}{stride_text(rows, ranks, buffer.layout, 'cls.PAD')}, {width}"


def memory_entries(op: OpSchedule, torch_dtype) -> list[str]:
    """The tuples of a module's `memory` table."""
    entries = [f'("{b.name}", "{b.kind}", ({shape_text(b)}), {torch_dtype[b.dtype]})' for b in op.buffers]
    words = [*op.flags, *op.counters]
    entries += [f'("{f.name}", "{f.kind}", ({words_text(f)},), torch.int32)' for f in words]
    return entries + [f'("{n.name}_tickets", "local", (8,), torch.int32)' for n in op.launches]
