"""A plan as a person reads it: aligned tables of at most 120 columns. Prints a summary's numbers, computes none."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType

from chunkdsl.cost.constants import margin
from chunkdsl.cost.predict import Prediction
from chunkdsl.ir.meshes import ranks_of, run_time, world_text
from chunkdsl.ir.types import index_key
from chunkdsl.plan.schedule import Choice, OpSchedule, Schedule
from chunkdsl.plan.settled import Gate
from chunkdsl.plan.summary import Started, Summary, Transfer, gate_text
from chunkdsl.plan.tile_kernels import kernel_text
from chunkdsl.report.plan_prediction import lanes, totals

WIDTH = 120
SPACES = {"all": "all shards", "own": "own shard", "whole": "whole", "columns": "own shard, by columns", "": ""}
ORDERS = {
    "up": "own, next ranks",
    "down": "own, previous ranks",
    "ascending": "0, 1, 2, ...",
    "own_ascending": "own, then 0, 1, ...",
    "up_own": "next ranks, own last",
    "down_own": "previous ranks, own last",
    "ascending_own": "0, 1, ..., own last",
    "interleaved_up_own": "by chunks: next ranks, own",
    "interleaved_ascending_own": "by chunks: 0, 1, ..., own",
    "arrival": "as the plan brings them",
    "leaving": "as the plan takes them along",
    "": "",
}


def render(
    schedule: Schedule, plans: Sequence[tuple[OpSchedule, Summary]], notes: Mapping[str, str],
    predictions: Mapping[str, Prediction | str] = MappingProxyType({}),
) -> str:  # fmt: skip
    """All ops. `notes`: for an op, why this world size cannot run it fused. `predictions`: what the cost model says, or
    why it says nothing."""
    made = (_op(schedule, op, s, notes.get(op.name, ""), predictions.get(op.name)) for op, s in plans)
    return "\n".join("\n".join(lines) + "\n" for lines in made)


def size_text(count: int) -> str:
    """Bytes in the unit that keeps the number short."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            text = f"{count / factor:.1f}".removesuffix(".0")
            return f"{text} {unit}"
    return f"{count} B"


def _op(schedule: Schedule, op: OpSchedule, s: Summary, note: str, predicted: Prediction | str | None) -> Iterator[str]:
    call = f"op {op.name}({', '.join(p.name for p in op.parameters)}) -> {', '.join(r.name for r in op.results)}"
    yield _cut(f"{call}    {schedule.path}:{op.line}")
    dims = run_time(dict(s.dims))
    sizes = f"; {_bindings(dims.items())}" if dims else ""
    over = f" over {s.link}" if s.link else ""
    yield f"  rank {s.rank} of {s.world}{_axes(op, s)}{over}{sizes}"
    if note:
        yield from _wrap(f"This world size cannot run fused: {note}. The module refuses it.")
    yield from _wrap(_policy(s))
    yield from _gates("The gate", op.gate)
    if op.gate.eager:
        yield from _gates("That of calls outside of CUDA graphs", op.gate.eager)
    if not (s.fused and s.fused_eagerly):
        where = {(True, False): "Outside of CUDA graphs this", (False, True): "In a CUDA graph this"}
        which = where.get((s.fused, s.fused_eagerly), "This")
        yield from _wrap(f"{which} call runs the fallback ({s.fallback}); what follows is the fused call.")
    yield from _section("What auto became", _choices(op))
    if schedule.tuning and any(c.why.startswith("tuned:") for c in op.choices):
        yield from _wrap(f"Tuned is what was measured {schedule.tuning.told}.")
    yield from _section("In stream order", _launches(s))
    yield from _section("Programs (tiles + communication) and pipeline stages", _targets(s))
    if any(n.products for n in op.launches):
        yield from _section("Who computes the tiles of products on Hopper", _tile_kernels(op))
    if s.forms:
        yield from _section("How payloads travel, by the bytes of each rank", _forms(s))
    else:
        yield from _section("Chunks", _chunks(s))
    yield from _section(f"Transfers that rank {s.rank} makes", _transfers(s))
    yield from _section("Signals (words set to the call's epoch)", _signals(s))
    bounds = run_time(dict(s.bounds))
    where = f" for {_bindings(bounds.items())}" if bounds else ""
    yield from _section(f"Memory of each rank{where}", _memory(s))
    yield ""
    yield f"  symmetric memory    {size_text(s.symmetric_bytes):>10} on each rank ({s.symmetric_bytes:,} bytes)"
    yield f"  local memory        {size_text(s.local_bytes):>10} on each rank"
    text = f"leaves over {s.link or 'the link'}"
    yield f"  {text:<20}{size_text(s.sent_bytes):>10} in this call, {size_text(s.received_bytes)} arrive"
    if isinstance(predicted, str):
        yield from _section("Predicted", iter(_wrap(f"Nothing: {predicted}.")))
    elif predicted:
        title = "Predicted, not measured (how far such predictions are off: tests/bench/MODEL.md)"
        yield from _section(title, _predicted(predicted))


def _gates(title: str, gate: Gate) -> Iterator[str]:
    """Where it depends on the number of ranks."""
    if gate.by_world:
        gates = (f"{gate_text(least)} from {world_text(world)} on" for world, least in gate.by_world)
        first = gate.by_world[0][0]
        fewer = "; always below" if ranks_of(first) > 2 else ""
        by = "number of ranks" if isinstance(first, int) else "ranks of each axis"
        yield from _wrap(f"{title} by {by}: {', '.join(gates)}{fewer}")


def _axes(op: OpSchedule, s: Summary) -> str:
    """Of a mesh of two axes: which rank of both it is, or which subgroup has it."""
    bound = dict(s.dims)
    if op.nested:
        inner = bound[op.over[1]]
        at = zip(op.over, divmod(s.rank, inner), strict=True)
        return f" ({', '.join(f'{axis} {i} of {bound[axis]}' for axis, i in at)})"
    outside = [a for a in bound if index_key(a) in bound and a not in op.over]
    return "".join(f" in the subgroup of {a} {bound[index_key(a)]} of {bound[a]}" for a in outside)


def _predicted(p: Prediction) -> Iterator[str]:
    for name, text in totals(p):
        first, *more = textwrap.wrap(text, WIDTH - 20)
        yield f"  {name:<18}{first}"
        yield from (" " * 20 + line for line in more)
    yield ""
    head, rows = lanes(p)
    yield from _table(head, rows, right=tuple(range(len(head))))
    more = " " if len(rows) == p.plan.world else f" of the first {len(rows)} ranks "
    yield from _wrap(f"Time{more}each lane is busy; in brackets how long it stands still for communication.")


def _policy(s: Summary) -> str:
    copies = "one copy" if s.slots == 1 else f"{s.slots} copies"
    end = "the call ends with a barrier" if s.closing else "no closing barrier"
    gate, eager = (
        {"always": "always fused", "never": "never fused"}.get(g, f"fused from {g}") for g in (s.gate, s.eager_gate)
    )
    gate += f" (outside of CUDA graphs {eager})" if eager != gate else ""
    return f"{copies} of each communication buffer, {end}; {gate}; fallback {s.fallback}"


def _choices(op: OpSchedule) -> Iterator[str]:
    rows = [(c.where.removeprefix(f"{op.name}: "), c.key, c.value, _runner_up(c), c.why) for c in op.choices]
    same = [("" if i and rows[i - 1][0] == r[0] else r[0], *r[1:]) for i, r in enumerate(rows)]
    yield from _table(("for", "key", "value", "runner-up", "because"), same, wrapped=True)
    if any(c.runner_up for c in op.choices):
        yield from _wrap("A runner-up is the best that was tried with another value of its key.")
        yield from _wrap(f"A rule stays unless a value is predicted to gain {margin('gain'):.0%}; the gate is closed "
                         f"where the library is predicted to be faster by {margin('gate'):.0%}.")  # fmt: skip


def _runner_up(c: Choice) -> str:
    """The next best value and how much slower it is predicted to be."""
    return f"{c.runner_up} {100 * c.margin:+.1f} %" if c.runner_up else ""


def _launches(s: Summary) -> Iterator[str]:
    rows = []
    for i, x in enumerate(s.started, 1):
        grid = " x ".join(map(str, x.grid))
        count = f"{x.tiles:,} = {grid}" if x.tiles else f"{x.copies:,} copies" if x.copies else ""
        count = f"{x.tiles:,} blocks" if x.kind == "exchange" else f"{x.tiles:,} calls" if x.kind == "calls" else count
        rows.append((str(i), x.name, str(x.line), SPACES[x.space], ORDERS[x.walk], x.tile, count))
    head = ("", "kernel", "line", "space", "order of shards", "tile", "tiles = shards x rows x columns")
    yield from _table(head, rows, right=(0, 2))
    yield ""
    for i, x in enumerate(s.started, 1):
        wait = f"   [waits for {x.waits_for}]" if x.waits_for else ""
        wait += f"   [own tiles wait for {x.adds} and add up]" if x.adds else ""
        wait += "   [starts while the one above runs]" if x.beside else ""
        yield _cut(f"  {i:>2}  {_short(x.text, WIDTH - 8 - len(wait))}{wait}")


def _targets(s: Summary) -> Iterator[str]:
    kernels = [x for x in s.started if x.kind in ("tiles", "exchange")]
    targets = [name for name, _ in kernels[0].programs] if kernels else []
    rows = [(x.name, str(x.warps), *(_programs(x, t) for t in targets)) for x in kernels]
    yield from _table(("kernel", "warps", *targets), rows, right=(1,))


def _tile_kernels(op: OpSchedule) -> Iterator[str]:
    """By which kernel, at which sizes, or why not by specialised warps. Elsewhere it is always Triton's."""
    rows = [(n.name, *kernel_text(n, op)) for n in op.launches if n.products]
    yield from _table(("kernel", "tiles by", "because"), rows, wrapped=True)


def _programs(x: Started, target: str) -> str:
    programs, stages = dict(x.programs)[target], dict(x.stages)[target]
    movers = min(x.movers, programs - 1)
    split = f"{programs - movers} + {movers}" if movers else str(programs)
    return f"{split}, {stages} stage{'s' * (stages > 1)}"


def _chunks(s: Summary) -> Iterator[str]:
    rows = [(c.what, c.rule, f"{c.rows:,}", str(c.per_shard), str(c.shards), size_text(c.bytes)) for c in s.chunks]
    head = ("of", "rule", "rows", "a shard", "shards", "bytes of a full one")
    yield from _table(head, rows, right=(2, 3, 4, 5), empty="nothing travels in chunks")
    for layout, held in dict.fromkeys((c.layout, c.held) for c in s.chunks if c.layout):
        runs = [f"{first:,}..{end:,}" for first, end in held]
        few = runs if len(runs) < 6 else [*runs[:3], "...", runs[-1]]
        yield f"  {layout} shards: that of rank {s.rank} has rows {', '.join(few) or 'none'}"


FORMS = {
    "word": "64-bit words: half data, half epoch",
    "mark": "32-bit words, one pattern of which means empty",
    "flag": "data, then a flag for each block",
    "speculative": "data, read first and validated by flags",
}


def _forms(s: Summary) -> Iterator[str]:
    rows = []
    for f in s.forms:
        most = f"up to {size_text(f.most)}" if f.most else "above" if len(s.forms) > 1 else "all"
        as_ = f"the fallback ({s.fallback})" if f.form == "fallback" else FORMS[f.form]
        as_ += f", {f.wide} at a time" if f.wide > 1 else ""
        rounds = "" if not f.rounds else f"{'one_shot' if f.rounds == 1 else 'two_shot'}"
        rows.append((most, as_, rounds, str(f.slots or ""), "this call" if f.taken else ""))
    yield from _table(("payload", "as", "algorithm", "buffers", ""), rows, right=(3,))


def _transfers(s: Summary) -> Iterator[str]:
    def key(t: Transfer) -> tuple:
        pulled = t.destination == s.rank
        return t.what, t.via, t.side, t.lane, t.pieces, t.bytes, pulled

    rows = []
    for (what, via, side, lane, pieces, size, pulled), found in groupby(s.transfers, key):
        items = list(found)
        peers = _ranks([t.source if pulled else t.destination for t in items])
        ways = f"{peers} -> {s.rank}" if pulled else f"{s.rank} -> {peers}"
        rows.append((what, ways, str(pieces), size_text(size), size_text(size * len(items)), f"{side}, {via}", lane))
    head = ("what", "ranks", "pieces", "to or from each", "in all", "how", "by")
    yield from _table(head, rows, right=(2, 3, 4), empty="none")


def _ranks(ranks: Sequence[int]) -> str:
    """In the order of the transfers; long lists keep their ends."""
    if len(ranks) > 8:
        return f"{', '.join(map(str, ranks[:4]))}, ..., {ranks[-1]} ({len(ranks)} ranks)"
    return ", ".join(map(str, ranks))


def _signals(s: Summary) -> Iterator[str]:
    rows = [(x.flags, x.meaning, f"{x.gives:,}", f"{x.gets:,}", f"{x.waits:,}") for x in s.signals]
    head = ("flags", "meaning", "set by it", "set on it", "waits")
    yield from _table(head, rows, right=(2, 3, 4), empty="none")


def _memory(s: Summary) -> Iterator[str]:
    rows = []
    for m in s.memory:
        if m.use == "scratch":
            continue
        shape = f"{m.rows:,} x {m.cols:,} {m.dtype}" if m.use == "data" else f"{m.cols:,} words"
        slots = str(m.slots) if m.use == "data" else ""
        rows.append((m.name, m.kind, shape, slots, size_text(m.bytes)))
    scratch = sum(m.bytes for m in s.memory if m.use == "scratch")
    rows.append(("tickets and scratch", "local", "", "", size_text(scratch)))
    yield from _table(("name", "kind", "shape (all slots)", "slots", "bytes"), rows, right=(2, 3, 4))


# ---- layout


def _section(title: str, lines: Iterator[str]) -> Iterator[str]:
    yield ""
    yield title
    yield from lines


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = (), empty: str = "nothing",
    wrapped: bool = False,
) -> Iterator[str]:  # fmt: skip
    """Columns as wide as their widest cell, `right` ones flush right. To fit, the widest are cut; of the last, if it
    is `wrapped`, nothing is lost."""
    if not rows:
        yield f"  {empty}"
        return
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    while 2 + sum(widths) + 2 * (len(widths) - 1) > WIDTH:
        widths[widths.index(max(widths))] -= 1
    for row in (head, *rows):
        first, *more = textwrap.wrap(row[-1], widths[-1]) if wrapped and row[-1] else [row[-1]]
        cells = [_short(c, w) for c, w in zip((*row[:-1], first), widths, strict=True)]
        made = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        yield ("  " + "  ".join(made)).rstrip()
        yield from (" " * (2 + sum(widths[:-1]) + 2 * len(widths[:-1])) + line for line in more)


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 3)] + "..."


def _cut(text: str) -> str:
    return _short(text, WIDTH)


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")


def _bindings(pairs: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in pairs)
