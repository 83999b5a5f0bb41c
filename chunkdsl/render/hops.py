"""Arguments of the kernel that carries chunks along a plan: (name, in the fused call, in `exact`, is it an integer).
And the lines of the wrapper that enqueue those steps of a plan that copy engines carry."""

from __future__ import annotations

from collections.abc import Iterator

from chunkdsl.ir.policy import ChunkCount
from chunkdsl.plan.schedule import Moves
from chunkdsl.plan.tables import hops_name
from chunkdsl.render.route_sums import Found, mover_arguments


def rows_of(m: Moves, chunk, size: str) -> Iterator[Found]:
    """The table of a plan, how many rows it has, and chunks of one. `size`: rows of a chunk, as Python."""
    x, table = m.name, hops_name(m.name)
    count, parts = "W - 1", "1"
    if m.routing.tabled:
        count, parts = f"self._{table}_count", f"self._{table}_parts"
        yield table, f"self._{table}", "None"
    chunks = f"{chunk.count} // {parts}" if isinstance(chunk, ChunkCount) else f"cdiv(shard, {size})"
    yield f"{x}_count", count, "0", True
    yield f"{x}_chunks", chunks, "1", True


def host_hops(m: Moves, chunk) -> Iterator[str]:
    """The head of the wrapper's loop over the steps that copy engines carry: each sends the own shard."""
    form = m.routing.form
    if m.routing.tabled:
        if isinstance(chunk, ChunkCount):
            yield f"each = {chunk.count} // self._{hops_name(m.name)}_parts"
        yield f"for peer, content, part, _ in self._{hops_name(m.name)}_rows:"
        yield "    reader, holder = peer, rank"
    else:
        yield "for step in range(W - 1):"
        yield f"    peer, content = {form.peer.text()}, {form.shard.text()}"
        yield "    reader, holder = peer, rank"


def host_chunks(m: Moves, chunk) -> str:
    """The chunks of such a step, as arguments of `range`. `chunk`: of the launch."""
    if not isinstance(chunk, ChunkCount):
        return "cdiv(shard, chunk)"
    return "part * each, (part + 1) * each" if m.routing.tabled else str(chunk.count)


def hops(m: Moves, chunk, size: str) -> Iterator[Found]:
    """These, and what a gather or a sum along a plan reads and writes."""
    x = m.name
    yield from rows_of(m, chunk, size)
    yield f"{x}_arrived_peers", f"self._{m.arrived}.table", "None"
    if m.ready:
        yield f"{x}_ready", f"self._{m.ready}.local", "None"
    if m.kind == "scatter":
        yield from mover_arguments(m)
    yield f"{x}_counters", f"self._{m.counters}", "None"
