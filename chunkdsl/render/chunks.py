"""Emitted expressions of chunks: their rows at a call's sizes, and their flag words."""

from __future__ import annotations

from chunkdsl.ir.policy import ChunkCount


def chunk_text(chunk) -> str:
    """Rows of a chunk at the call's sizes."""
    if isinstance(chunk, ChunkCount):
        return f"cdiv(shard, {chunk.count})"
    return f"min({chunk.count}, shard)"


def chunk_cap_text(chunk) -> str:
    """Flag words for each shard."""
    if isinstance(chunk, ChunkCount):
        return str(chunk.count)
    return f"cdiv(shard_cap, {chunk.count})"
