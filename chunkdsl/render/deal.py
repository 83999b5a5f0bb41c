"""Arguments of the kernel that carries the chunks of an all_to_all, beside its chunk: (name, in the fused call, in
`exact`, whether it is an integer)."""

from __future__ import annotations

from collections.abc import Iterator

from chunkdsl.plan.schedule import Buffer, Deal, Moves
from chunkdsl.render.units import slot_rows


def dealt(m: Moves, total: str, rows: str, operand: Buffer | None) -> Iterator[tuple[str, str, str, bool]]:
    """`total`: columns of the value, `rows`: its rows at the bounds, as Python. `operand`: it is memory of the
    instance."""
    x, local = m.name, f"self._{m.buffer}.local"
    onto_rows, pull, read = m.deal.onto == "rows", m.side == "pull", read_by_others(m)
    held = f"self._{m.source}" if operand else f"{m.source}_"
    source = f"{held}.local" if read else held
    cap = "stride_cap" if onto_rows else slot_rows()
    integers = {
        "total": total,
        "block": f"max(1, cdiv({total}, W))",
        "pitch": f"pitch_of({local})",
        "cap": cap,
        "source_pitch": f"{source}.shape[-1]",
    }
    if read:
        integers["source_cap"] = source_cap(m.deal, rows)
    for name, text in integers.items():
        yield f"{x}_{name}", text, text, True
    tensors = {"source": f"{held}.table" if read else held, "counters": f"self._{m.counters}"}
    if pull:
        tensors |= {"buffer": local, "arrived": f"self._{m.arrived}.local"}
    else:
        tensors |= {"table": f"self._{m.buffer}.table", "arrived_peers": f"self._{m.arrived}.table"}
    if m.ready:
        tensors["ready"] = f"self._{m.ready}.local"
    if m.leaving:
        tensors["done"] = f"self._{m.done}{'.table' if read else ''}"
    for name, text in tensors.items():
        yield f"{x}_{name}", text, "None", False
    if m.relay:
        yield from relayed(m)


def read_by_others(m: Moves) -> bool:
    """Do ranks read what the moves carry where it lies on another?"""
    return m.side == "pull" or (m.routing is not None and m.routing.fetches)


def source_cap(deal: Deal, rows: str) -> str:
    """Rows of a slot of what they read. `rows`: those of the value at the bounds."""
    return f"stride_of({rows}, 1, self.PAD)" if deal.onto == "rows" else "stride_cap"


def relayed(m: Moves) -> Iterator[tuple[str, str, str, bool]]:
    """The same of the places of blocks on their way."""
    x, relay = m.name, f"self._{m.relay.buffer}"
    for name, text in {"relay_pitch": f"pitch_of({relay}.local)", "relay_cap": slot_rows()}.items():
        yield f"{x}_{name}", text, text, True
    flags = f"self._{m.relay.arrived}"
    tensors = {"relay": f"{relay}.local", "relay_table": f"{relay}.table", "relayed": f"{flags}.local",
               "relayed_peers": f"{flags}.table", "relay_counters": f"self._{m.relay.counters}"}  # fmt: skip
    for name, text in tensors.items():
        yield f"{x}_{name}", text, "None", False
