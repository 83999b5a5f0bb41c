"""Arguments of a kernel for where its tiles store: (name, in the fused call, in `exact`[, True for an integer]).

Rows of the chunks that they signal are left to the view."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from chunkdsl.plan.schedule import Buffer, Flags, Launch
from chunkdsl.render.deal import source_cap
from chunkdsl.render.sizes import dim_text

Found = tuple[str, str, str] | tuple[str, str, str, bool]


def destination(
    n: Launch, buffers: Mapping[str, Buffer], flags: Mapping[str, Flags], cap: Callable[[Buffer], str]
) -> Iterator[Found]:
    """`cap`: rows of a slot of a symmetric buffer."""
    d = n.destination
    if d.kind == "local":
        held = d.buffer in buffers
        name, picked, rest = d.buffer.partition("[")
        text = f"self._{d.buffer}" if held else f"{name}_{picked}{rest}"
        yield "out", text, text
        if held:
            yield "out_pitch", f"pitch_of({text})", f"pitch_of({text})", True
        return

    def mine(name: str) -> str:
        """This rank's own copy of a buffer, or of flags."""
        return f"self._{name}{'.local' if (buffers.get(name) or flags[name]).kind == 'symmetric' else ''}"

    to = mine(d.buffer) if d.kind in ("publish", "hand_over") else f"self._{d.buffer}.table"
    yield "out", to, f"exact_{d.buffer}"
    yield "out_pitch", f"pitch_of({mine(d.buffer)})", f"pitch_of(exact_{d.buffer})", True
    yield "out_cap", cap(buffers[d.stage or d.buffer]), "0", True
    if d.deal:
        each = f"max(1, cdiv({dim_text(d.deal.cols.size, 'dims')}, W))"
        yield "out_each", each, each, True
    yield "out_counters", f"self._{d.counters}", "None"
    if d.kind != "hand_over":
        yield "out_arrived", f"self._{d.arrived}.table", "None"
        return
    yield "out_done", mine(d.done), "None"
    if d.deal:
        yield "out_own_pitch", f"pitch_of({mine(d.stage)})", "1", True
        if buffers[d.buffer].kind == "symmetric":
            yield "out_held", source_cap(d.deal, dim_text(n.rows, "bounds")), "0", True
    if d.stage:
        yield "out_own", f"self._{d.stage}.local", "None"
        yield "out_arrived", f"self._{d.arrived}.local", "None"
