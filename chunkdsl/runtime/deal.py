"""all_to_all: the kernel that stages a rank's own block, and the host side of `exact` and `fallback`. Copied into every
module that deals shards out anew, so: torch and triton only.

`rows` x `total` elements are sharded by rows (S = ceil(rows / W) each) or by columns (C = ceil(total / W) each).
"""

from __future__ import annotations

import triton
import triton.language as tl

from chunkdsl.runtime.device import arrive, set_flag, slot_of, wait_flag, words_of
from chunkdsl.runtime.operation import cdiv, padded, pitch_of, shard_rows


@triton.jit
def tile_number(block, column, blocks, columns, GROUP: tl.constexpr):
    """The tile that `tile_place` puts there."""
    first = block // GROUP * GROUP
    height = tl.minimum(blocks - first, GROUP)
    return first * columns + column * height + block - first


@triton.jit
def copy_box(source, target, height, n, source_pitch, target_pitch, BR: tl.constexpr, BC: tl.constexpr):
    """Copy [height, n], the programs of the launch taking turns. Pitches in elements."""
    for row in range(tl.program_id(0) * BR, height, tl.num_programs(0) * BR):
        down = tl.arange(0, BR)
        for col in range(0, n, BC):
            cols = col + tl.arange(0, BC)
            mask = (down < height - row)[:, None] & (cols[None, :] < n)
            value = tl.load(
                source + row.to(tl.int64) * source_pitch + (down[:, None] * source_pitch + cols[None, :]), mask=mask
            )
            tl.store(
                target + row.to(tl.int64) * target_pitch + (down[:, None] * target_pitch + cols[None, :]),
                value,
                mask=mask,
            )


@triton.jit(do_not_specialize=[
    "source_pitch", "pitch", "sent_pitch", "from_row", "from_col", "to_row", "to_col", "height", "n", "all_height",
    "all_n", "cap", "sent_cap", "rank", "site", "limit", "active",
])  # fmt: skip
def deal_block(
    source, buffer, sent, ready, ready_peers, tickets, state, state_peers, record, source_pitch, pitch, sent_pitch,
    from_row, from_col, to_row, to_col, height, n, all_height, all_n, cap, sent_cap, rank, site, limit, active,
    W: tl.constexpr, SLOTS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr, EVEN: tl.constexpr,
    SENT: tl.constexpr, ENTRY: tl.constexpr, NVIDIA: tl.constexpr,
):  # fmt: skip
    """Copy the block that this rank keeps, [height, n], to its place. SENT: also all that it has, [all_height, all_n],
    for the others to read, and say so to them; ENTRY: wait for all of them (what follows are copy engines, which cannot
    wait). `pitch` and `sent_pitch` count 16 bytes, `source_pitch` elements; EVEN: all columns are multiples of 8."""
    if active != 0:
        epoch = tl.load(state)
        slot = slot_of(epoch, SLOTS)
        VEC: tl.constexpr = 128 // source.dtype.element_ty.primitive_bitwidth
        down = source_pitch // VEC * VEC if EVEN else source_pitch
        left = from_col // VEC * VEC if EVEN else from_col
        right = to_col // VEC * VEC if EVEN else to_col
        width = n // VEC * VEC if EVEN else n
        here = source + from_row.to(tl.int64) * down + left
        there = buffer + (slot * cap + to_row) * (pitch * VEC) + right
        copy_box(here, there, height, width, down, pitch * VEC, BR, BC)
        if SENT:
            width = all_n // VEC * VEC if EVEN else all_n
            copy_box(source, sent + slot * sent_cap * (sent_pitch * VEC), all_height, width, down, sent_pitch * VEC,
                     BR, BC)  # fmt: skip
            if arrive(tickets, tl.num_programs(0)):
                for peer in range(W):
                    set_flag(words_of(ready_peers, peer) + rank, epoch, state)
                if ENTRY:
                    for peer in range(W):
                        wait_flag(ready + peer, epoch, site, peer, state, state_peers, record, limit, W, NVIDIA)


def deal(op, source, buffer, sent, ready, box, whole, caps, even, entry, site, active, slots):
    """Launch `deal_block` for the operation `op`. `box`: (from row, from column, to row, to column, height, width) of
    the block that stays; `whole`: rows and columns of `source`; `caps`: rows of a slot of `buffer` and of `sent`."""
    m = op.machine
    names = ("from_row", "from_col", "to_row", "to_col", "height", "n")
    args = dict(
        source=source, buffer=buffer, sent=sent and sent.local, ready=ready and ready.local,
        ready_peers=ready and ready.table, tickets=op.opening, state=op.state.local, state_peers=op.state.table,
        record=op.record, source_pitch=source.shape[-1], pitch=pitch_of(buffer),
        sent_pitch=pitch_of(sent.local) if sent else 0, **dict(zip(names, box, strict=True)), all_height=whole[0],
        all_n=whole[1], cap=caps[0], sent_cap=caps[1], rank=op.rank, site=site, limit=op.module.limit, active=active,
    )  # fmt: skip
    rows, cols = op.STAGE_BLOCK
    flags = dict(EVEN=even, SENT=sent is not None, ENTRY=entry, NVIDIA=not m.target.startswith("gfx"))
    programs = max(1, min(m.sms, cdiv(max(box[4], whole[0] if sent else 0), rows)))
    m.launch(deal_block, programs, args, dict(W=op.world, SLOTS=slots, BR=rows, BC=cols, **flags), 4, 1)


def join_columns(every, total):
    """[W, rows, C or more], the column shards of the same rows -> [rows, total], rows padded to 16 bytes."""
    world, rows, _ = every.shape
    each = cdiv(total, world)
    whole = every.new_zeros((rows, padded(total, 16 // every.element_size())))
    for rank in range(world):
        width = shard_rows(total, world, rank)
        whole[:, rank * each : rank * each + width] = every[rank, :, :width]
    return whole


def cut_columns(every, total, rank):
    """[W, rows, total or more], row shards -> [W * rows, C]: a rank's columns of them, rows padded to 16 bytes."""
    world, rows, _ = every.shape
    each, width = cdiv(total, world), shard_rows(total, world, rank)
    part = every.new_zeros((world, rows, padded(each, 16 // every.element_size())))
    part[:, :, :width] = every[:, :, rank * each : rank * each + width]
    return part.flatten(0, 1)


def deal_shards(m, local, rows, total, onto_rows):
    """The whole all_to_all by the process group: this rank's column shard [rows, c] -> its row shard [s, total], or
    (not `onto_rows`) the other way."""
    shard, each = max(1, cdiv(rows, m.world)), max(1, cdiv(total, m.world))
    height, width = shard_rows(rows, m.world, m.rank), shard_rows(total, m.world, m.rank)
    shape = (m.world * shard, each) if onto_rows else (shard, m.world * each)
    blocks = local.new_zeros(shape)
    blocks[: local.shape[0], : local.shape[1]] = local
    if onto_rows:
        came = m.all_to_all(blocks.view(m.world, shard, each))
        return came.permute(1, 0, 2).reshape(shard, -1)[:height, :total].contiguous()
    came = m.all_to_all(blocks.view(shard, m.world, each).permute(1, 0, 2))
    return came.reshape(-1, each)[:rows, :width].contiguous()
