"""Sums along the route of a plan, in the wrapper: arguments of the kernels that carry and finish them, as (name, in the
fused call, in `exact`, is it an integer), and what `exact` adds up in torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from chunkdsl.ir.meshes import World, ranks_of
from chunkdsl.ir.policy import ChunkCount
from chunkdsl.plan.routing import Routing
from chunkdsl.plan.schedule import Launch, Moves, OpSchedule
from chunkdsl.plan.tables import final_name, rounded_name, sums_name
from chunkdsl.render.units import slot_rows

Found = tuple[str, str, str] | tuple[str, str, str, bool]


def places_of(op: OpSchedule, routing: Routing, owner: str = "self") -> str:
    """Shards that may arrive at a rank along a route, by the table of the moves along it."""
    name = next(m.name for n in op.launches for m in n.moves if m.routing is routing)
    return f'{owner}.PLACES["{name}"].get(W, W)'


def places_by_ranks(op: OpSchedule, worlds: Iterable[World]) -> list[tuple[str, list[tuple[int, int]]]]:
    """(moves, [(ranks, places)]) of each sum along a route: the table that `places_of` reads."""
    moves = [m for n in op.launches for m in n.moves if m.kind == "scatter" and m.routing]
    return [(m.name, sorted({ranks_of(w): m.routing.places(w) for w in worlds}.items())) for m in moves]


def mover_arguments(m: Moves) -> Iterator[Found]:
    """What a sum is read from, memory of this rank or, where steps fetch, of any; where it rounds; places of a rank."""
    x = m.name
    if m.routing.fetches:
        yield f"{x}_source_table", f"self._{m.source}.table", "None"
        yield f"{x}_source_cap", slot_rows(), slot_rows(), True
        yield f"{x}_done_peers", f"self._{m.done}.table", "None"
    else:
        yield f"{x}_buffer", f"self._{m.buffer}.local", "None"
        yield f"{x}_source", f"self._{m.source}", "None"
        yield f"{x}_arrived", f"self._{m.arrived}.local", "None"
        yield f"{x}_done", f"self._{m.done}", "None"
    yield f"{x}_places", f'self.PLACES["{x}"].get(W, W)', "1", True
    if m.routing.contract == "all_reduce":
        yield f"{x}_rounded", f"self._{rounded_name(x)}", "None"


def sum_arguments(n: Launch, m: Moves, held: bool) -> Iterator[Found]:
    """The launch `n` that finishes sums: its own addends, which peers fetch too if they are `held` in symmetric memory,
    and which arrivals each part is made up of."""
    name = n.sums.parts.name
    parts = f"self._{final_name(m.name)}_parts"
    yield f"{name}_own", f"self._{m.source}{'.local' * held}", "None"
    if held:
        yield f"{name}_own_cap", slot_rows(), "0", True
    yield f"{name}_final", f"self._{final_name(m.name)}", "None"
    if isinstance(n.chunk, ChunkCount):
        yield f"{name}_parts", parts, "1", True
        yield f"{name}_each", f"{n.chunk.count} // {parts}", "1", True
    if n.sums.routing.contract == "all_reduce":
        yield f"{name}_rounded", f"self._{rounded_name(m.name)}", "None"


def followed(n: Launch, m: Moves, chunk: str) -> str:
    """Arguments of `follow_sums`: the table of transfers, rows of a part, the rank, whether senders go on with what
    they sent. `chunk`: rows of one."""
    table, whole = f"self._{sums_name(m.name)}", m.routing.contract == "all_reduce"
    rows = f"{n.chunk.count} // {table}_parts * {chunk}" if isinstance(n.chunk, ChunkCount) else "stride"
    return f"{table}_rows, {rows}, rank, {whole}"
