"""Arguments of the kernel that carries the chunks of an all_to_all, beside its chunk: (name, in the fused call, in
`exact`, whether it is an integer)."""

from __future__ import annotations

from collections.abc import Iterator

from chunkdsl.plan.schedule import Moves
from chunkdsl.render.units import slot_rows


def dealt(m: Moves, total: str, rows: str, own_buffer: bool) -> Iterator[tuple[str, str, str, bool]]:
    """`total`: columns of the value, `rows`: its rows at the bounds, as Python. `own_buffer`: the operand is memory of
    the instance."""
    x, local = m.name, f"self._{m.buffer}.local"
    onto_rows, pull = m.deal.onto == "rows", m.side == "pull"
    held = f"self._{m.source}" if own_buffer else f"{m.source}_"
    source = f"{held}.local" if pull else held
    cap = "stride_cap" if onto_rows else slot_rows()
    integers = {
        "total": total,
        "block": f"max(1, cdiv({total}, W))",
        "pitch": f"pitch_of({local})",
        "cap": cap,
        "source_pitch": f"{source}.shape[-1]",
    }
    if pull:
        integers["source_cap"] = f"stride_of({rows}, 1, self.PAD)" if onto_rows else "stride_cap"
    for name, text in integers.items():
        yield f"{x}_{name}", text, text, True
    tensors = {"source": f"{held}.table" if pull else held, "counters": f"self._{m.counters}"}
    if pull:
        tensors |= {"buffer": local, "arrived": f"self._{m.arrived}.local", "ready": f"self._{m.ready}.local"}
    else:
        tensors |= {"table": f"self._{m.buffer}.table", "arrived_peers": f"self._{m.arrived}.table"}
    for name, text in tensors.items():
        yield f"{x}_{name}", text, "None", False
    if m.relay:
        yield from relayed(m)


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
