"""Does the emitted kernel of a small all-reduce do what the plan says? See `conformance`, which hands over to this.

Compared for each rank and call: the words written, on whom, in which slot and row; the words read on its own rank.
In the word forms a read counts once it comes after the write that the plan puts there; with flags every program has
to acquire the word of a block, with the call's epoch, before it reads, and to release it after it wrote.
"""

from __future__ import annotations

from collections.abc import Iterator

from chunkdsl.plan.plan import Plan
from chunkdsl.plan.schedule import OpSchedule
from chunkdsl.plan.unroll_exchange import payload_words
from chunkdsl.sim.log import Log, Read, Signal, Trail, Wait, Write


def compare_exchange(log: Log, plan: Plan, op: OpSchedule, tools) -> list[str]:
    """Differences, each one line for a person. `tools` is the module `conformance`."""
    name, found = op.exchange.name, []
    words = {b.name: b for b in plan.buffers if b.kind == "symmetric"}
    trails = [t for t in tools.fused_trails(log) if t.origin.label == name]
    wanted = {k: v for k, v in tools.planned(plan).items() if k[2] == name}
    done: dict = {}
    for t in trails:
        o = t.origin
        side = done.setdefault((o.rank, o.call - 1, name), tools.Side())
        for e in t.events:
            if isinstance(e, Write | Read) and e.at.buffer in words:
                into = side.writes if isinstance(e, Write) else side.reads
                into += [(e.at.buffer, e.at.owner, (b.row0, b.row1, b.col0, b.col1)) for b in e.boxes]
    for key in sorted(wanted.keys() | done.keys()):
        where = f"rank {key[0]}, call {key[1]}, {name} ({plan.spec}:{op.exchange.line})"
        sides = wanted.get(key, tools.Side()), done.get(key, tools.Side())
        found += tools.box_differences(where, *sides, words)
    found += early_reads(trails, words) if op.exchange.validity == "word" else unflagged(trails, words, op, plan)
    return found


def early_reads(trails: list[Trail], words) -> Iterator[str]:
    """Words of a source whose last read comes before the source has written them in this call."""
    writes: dict[tuple, list] = {}
    for t in trails:
        for e in t.events:
            if isinstance(e, Write) and e.at.buffer in words and e.at.owner != t.origin.rank:
                for b in e.boxes:
                    for row in range(b.row0, b.row1):
                        writes.setdefault((t.origin.call, e.at.buffer, e.at.owner, row), []).append((e.seq, b))
    for t in trails:
        last: dict[tuple, tuple[int, object]] = {}
        for e in t.events:
            if isinstance(e, Read) and e.at.buffer in words:
                last |= {(e.at.buffer, e.at.owner, b.row0, b.col0, b.col1): (e.seq, b) for b in e.boxes}
        for (buffer, owner, row, low, high), (seq, _) in last.items():
            for wrote, b in writes.get((t.origin.call, buffer, owner, row), ()):
                if b.col0 < high and low < b.col1 and wrote > seq:
                    yield (
                        f"rank {t.origin.rank}, call {t.origin.call - 1}: reads {buffer} row {row}, "
                        f"words {low}..{high}, for the last time before they are written"
                    )


def unflagged(trails: list[Trail], words, op: OpSchedule, plan: Plan) -> Iterator[str]:
    """Reads of a program before it has acquired a word of the source with this call's epoch; signals with another
    epoch, or before the program's own writes are done."""
    speculative = op.exchange.validity == "speculative"
    live = [payload_words(op.exchange, dict(dims)) > 0 for dims in plan.calls]  # calls without rows advance nothing
    epochs = [sum(live[: i + 1]) for i in range(len(live))]
    for t in trails:
        o, heard = t.origin, set()
        epoch = epochs[o.call - 1]
        for e in t.events:
            if isinstance(e, Wait) and e.at.buffer == "arrived" and e.sem == "acquire" and e.scope == "sys":
                if e.value - epoch >= 0:
                    heard.add(e.index)
            elif isinstance(e, Signal) and e.at.buffer in ("arrived", "closed"):
                if e.value != epoch or e.sem != "release" or e.scope != "sys":
                    how = f"with {e.value}, {e.sem} at {e.scope} scope"
                    yield f"rank {o.rank}, call {o.call - 1}: signals {e.at.buffer}[{e.index}] {how}"
            elif isinstance(e, Read) and e.at.buffer in words and not heard and not speculative:
                yield f"rank {o.rank}, call {o.call - 1}: reads {e.at.buffer} and has waited for no flag of this call"
