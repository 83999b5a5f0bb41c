"""Sums whose programs take several tiles at a time: one wait and one signal, each a way to memory and back, for all."""

from __future__ import annotations

from chunkdsl.plan.schedule import Launch
from chunkdsl.render.chunks import chunk_text


def suits_slices(launch: Launch, tiles: str) -> str:
    """Emitted condition: a call has so many tiles that programs take four each, which have to be of one chunk, as the
    plan lets each tile wait for its own chunks only."""
    chunks = dict.fromkeys(chunk_text(c) for c in (launch.chunk, launch.out_chunk) if c)
    return " and ".join([f"{tiles} >= 8 * m.sms", *(f'({c}) % (4 * constants["BM"]) == 0' for c in chunks)])
