"""What construction allocates for an op, as Python: buffers, flags, counters and tickets, shapes at the bounds."""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.ir.policy import ChunkCount
from chunkdsl.plan.schedule import Buffer, Flags, OpSchedule
from chunkdsl.plan.tile_kernels import tickets_of
from chunkdsl.render.layout import stride_text
from chunkdsl.render.route_sums import places_of
from chunkdsl.render.sizes import dim_text
from chunkdsl.render.units import vector_of
from chunkdsl.render.view import extent_cap_text


def words_text(flags: Flags, op: OpSchedule) -> str:
    """Words of a flag buffer at the bounds."""
    if flags.per == "rank":
        return "W"
    if flags.per == "pair":
        return f"W * {words_text(replace(flags, per='chunk'), op)}"
    groups = places_of(op, flags.routing, "cls") if flags.routing else "W"
    if isinstance(flags.chunk, ChunkCount):
        return f"{groups} * {flags.chunk.count}"
    each = stride_text(dim_text(flags.rows, "dims"), "1" if flags.whole else "W", flags.layout, "1")
    return f"{groups} * cdiv({each}, {flags.chunk.count})"


def shape_text(buffer: Buffer, op: OpSchedule) -> str:
    """Shape of a buffer at the bounds: rows of all slots and groups, columns padded to 16 bytes."""
    rows, vec = dim_text(buffer.rows, "dims"), vector_of(buffer.dtype)
    width = f"padded({extent_cap_text(buffer.cols)}, {vec})"
    if buffer.kind == "local" and buffer.groups == "whole":
        return f"max(1, {rows}), {width}"
    ranks = "W" if buffer.groups in ("world", "shard", "places") else "1"
    slots = "" if buffer.slots == 1 else f"{buffer.slots} * "
    many = "" if buffer.groups in ("whole", "shard") else "W * "
    many = f"{places_of(op, buffer.routing, 'cls')} * " if buffer.routing else many
    return f"{slots}{many}{stride_text(rows, ranks, buffer.layout, 'cls.PAD')}, {width}"


def memory_entries(op: OpSchedule, torch_dtype) -> list[str]:
    """The tuples of a module's `memory` table."""
    entries = [f'("{b.name}", "{b.kind}", ({shape_text(b, op)}), {torch_dtype[b.dtype]})' for b in op.buffers]
    words = [*op.flags, *op.counters]
    entries += [f'("{f.name}", "{f.kind}", ({words_text(f, op)},), torch.int32)' for f in words]
    return entries + [f'("{name}", "local", (8,), torch.int32)' for name in tickets_of(op)]
