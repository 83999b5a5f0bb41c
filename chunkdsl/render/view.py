"""What templates read beside the schedule: the argument list of each kernel, written once for kernel and caller.

An argument has a name in the kernel and two expressions in the wrapper: one for the fused call, one for `exact`.
"""

from __future__ import annotations

from dataclasses import dataclass

from chunkdsl.ir.layouts import CONTIGUOUS
from chunkdsl.ir.types import Share, SymSize
from chunkdsl.plan.body import stagings
from chunkdsl.plan.geometry import rows_apart
from chunkdsl.plan.schedule import Buffer, Extent, Launch, Moves, OpSchedule
from chunkdsl.plan.tables import order_name
from chunkdsl.plan.within import sum_within
from chunkdsl.render.body import BodyView
from chunkdsl.render.chunks import chunk_cap_text, chunk_text
from chunkdsl.render.deal import dealt
from chunkdsl.render.destination import destination
from chunkdsl.render.hops import hops, host_chunks, host_hops, rows_of
from chunkdsl.render.layout import height_text, held_text, layout_value, row_text, shard_text
from chunkdsl.render.library import LibraryView
from chunkdsl.render.route_sums import followed, places_of, sum_arguments
from chunkdsl.render.sizes import dim_text
from chunkdsl.render.units import in_elements, is_even, slot_rows
from chunkdsl.render.within import counted, held, held_names

SLOTTED = {"padded": slot_rows(), "block": "stride_cap"}  # rows of a slot, by the layout of its rows


@dataclass(frozen=True, slots=True)
class Argument:
    name: str
    fused: str
    exact: str
    integer: bool = False


def cut_before(size: SymSize) -> tuple[SymSize, tuple[str, ...]]:
    """A size without the axes that cut it before those of the op, and these axes, outer first."""
    axes = []
    while isinstance(size, Share):
        axes.append(size.axis)
        size = size.size
    return size, tuple(reversed(axes))


def extent_text(extent: Extent, nested: bool) -> str:
    """Elements that this rank holds. `nested`: of an op over two axes together."""
    text = dim_text(extent.size, "dims")
    return held_text(text, extent.layout, nested) if extent.sharded else text


def extent_cap_text(extent: Extent) -> str:
    """Elements of the largest shard: what every rank allocates."""
    text = dim_text(extent.size, "dims")
    return shard_text(text, extent.layout) if extent.sharded else text


class LaunchView:
    """One launch as its templates see it."""

    def __init__(self, launch: Launch, op: OpSchedule, sites: dict[str, int]) -> None:
        self.launch, self.op, self.sites, self.warps = launch, op, sites, launch.warps
        self.buffers = {b.name: b for b in op.buffers}
        self.own = launch.a and op.stays.get(launch.a.source)  # has the own shard of its left operand
        self.flags = {f.name: f for f in op.flags}
        self.pitched = set(self.buffers)
        self.moves = tuple(m for m in launch.moves if m.via != "copy_engine")
        self.copies = tuple(m for m in launch.moves if m.via == "copy_engine")
        gathers = {m.arrived for n in op.launches for m in n.moves if not m.leaving}
        own_here = launch.sums is not None and launch.sums.own_here
        self.own_is_staged = own_here or launch.chunk_flags in gathers  # stream order, not a flag, guards the own shard
        own = [m for m in self.moves if m.programs]
        self.own_first = next((m for m in own if not m.leaving), None)
        self.own_last = next((m for m in own if m.leaving), None)
        self.co_located = next((m for m in self.moves if not m.programs), None)
        self.by_chunk = self.co_located is not None and self.co_located.kind == "deal" and launch.space == "own"
        d = launch.destination
        self.across = "span" if launch.ahead and launch.column_shards else "n"
        self.across = f"cdiv({dim_text(d.deal.cols.size, 'dims')}, W)" if launch.space == "columns" else self.across
        self.span = "span" if launch.ahead else "shard"  # rows of a shard of what its gather carries
        self.walked = launch.ahead is not None and not launch.column_shards
        self.tma = "aligned" if self.walked else "False" if rows_apart(launch) else "tma"
        if launch.over and launch.space == "all":  # a box of the left operand begins at a multiple of 16 bytes
            self.tma = f"tma and {is_even('shard')}"
        self.ticket = {m.name: 2 if m is self.own_first or self.own_first is None else 4 for m in self.moves}
        behind = [n for n in op.launches[op.launches.index(launch) + 1 :] if not n.within]
        self.admits = any(n.beside for n in behind[:1])  # what is behind starts while it runs
        self.overlaps = self.admits or launch.beside
        self.body = launch.body and BodyView(launch, self._source, frozenset(self.pitched), dim_text, sites)
        self.holder = "peer" if launch.space == "columns" else "owner"  # whose chunks tiles are of
        self.library = LibraryView(launch, self.buffers, self._tensor) if launch.library else None
        within = sum_within(op, launch)
        self.total = within and LaunchView(within, op, sites)  # what its own tiles make
        self.sends_sums = within is not None and within.destination.kind == "broadcast"
        self.keeps_sums = within is not None and not self.sends_sums
        self.counted = counted(self.holder, "counters" if self.sends_sums else "out_counters")
        self.stagings, self.arguments = stagings(launch), () if launch.library else tuple(self._arguments())
        if self.total:  # `held`: arguments of the launch that adds, by name, as they are called here
            self.held = held_names(self.total.arguments, self.arguments)
            self.arguments += tuple(Argument(*found) for found in held(self.total.arguments, self.held))
            self.total_names = ", ".join(self.held.values())
        self.names = ", ".join(a.name for a in self.arguments)
        self.tile_names = ", ".join([self.names, *(name for name, *_ in (self.body.descriptors if self.body else ()))])
        self.integers = ", ".join(f'"{n}"' for n in [*(a.name for a in self.arguments if a.integer), "active"])

    @property
    def options(self) -> str:
        """What the wrapper says of a launch without programs that carry chunks, beside its tiles and arguments."""
        found = f", crowd={self.launch.crowd}" if self.launch.crowd > 1 else ""
        found += ", early=fused and m.starts_beside()" if self.overlaps else ""
        return f"{found}, beside=True" if self.launch.beside else found

    def rows_of(self, owner: str, of: Extent | None = None) -> str:
        """Rows of a shard, in the wrapper: of the launch's own rows, or `of` those that it gathers."""
        return held_text("rows", (of or self.launch).layout, self.op.nested, owner)

    def shard_of(self, rows: str, of: Extent | None = None) -> str:
        """Rows of a nominal shard, in the wrapper: of the launch's own rows, or `of` those that it gathers."""
        whole = of is None and self.launch.space == "whole"
        return rows if whole else shard_text(rows, (of or self.launch).layout)

    def parted(self, whole: str) -> str:
        """The shards of a whole tensor one behind the other, in the fallback."""
        if self.launch.layout == CONTIGUOUS:
            return f"parted({whole}, W{', inner' * self.op.nested})"
        return f"dealt_out({whole}, W, {layout_value(self.launch.layout)})"

    def height(self, owner: str) -> str:
        """Rows of a shard, in the kernel."""
        return height_text(self.launch.layout, owner, self.op.nested)

    @property
    def apart(self) -> str:
        """Rows of the whole of a tile that goes through shards whose rows lie apart; "" for contiguous ones."""
        n = self.launch
        return row_text(n.layout, "row + down") if n.layout != CONTIGUOUS and n.space == "all" else ""

    @property
    def stored_apart(self) -> bool:
        """Does the store function read or write rows of the whole that lie apart?"""
        n = self.launch
        held = [o.layout for o in n.operands if o.role in ("full", "column")]
        return bool(self.apart) and "plain" in (*held, *([n.destination.layout] * (n.destination.kind == "local")))

    @property
    def handed_to_readers(self) -> bool:
        """Do other ranks fetch what its tiles hand over?"""
        return self.buffers[self.launch.destination.buffer].kind == "symmetric"

    @property
    def site(self) -> int:
        """Number of the place in the spec that a timed-out wait of a tile names."""
        return self.sites[self.launch.chunk_flags]

    @property
    def awaited(self) -> tuple[str, ...]:
        """Flags that a tile waits for; those of the launch first."""
        beside = self.launch.body.arriving if self.body else [p.b.arrived for p in self.launch.products if p.b.arrived]
        return tuple(dict.fromkeys((self.launch.chunk_flags, *beside)))

    @property
    def values(self) -> str:
        """What the tile function hands to the store function: accumulators or the sum."""
        n = self.launch
        return "".join(f"{p.accumulator}, " for p in n.products) + ("total, " if n.sums or n.fold else "")

    def half_values(self, half: int | str) -> str:
        return "".join(f"halves({p.accumulator}, {half}), " for p in self.launch.products)

    @property
    def destination_text(self) -> str:
        """Where the value goes, in words."""
        return {
            "local": "on this rank",
            "push": "on every rank" if self.launch.destination.everyone else "on the shard's owner",
            "publish": "here, for the others to read",
            "hand_over": "here, for the moves to carry",
            "broadcast": "on every rank",
            "deal": "on the peer whose block it is",
        }[self.launch.destination.kind]

    def visited(self, step: str) -> str:
        """The shard, or the rank that columns are for, whose tiles come at a step."""
        n = self.launch
        if n.visits is None:
            return f"{n.walk.value}(rank, {step}, W)"
        if not n.visits.tabled:
            return f"tl.where({step} == 0, rank, {n.visits.form.arriving.text(f'({step} - 1)')})"
        return f"tl.load({self.order} + {step})"

    @property
    def order(self) -> str:
        """Table of the order in which shards arrive or leave."""
        n, moves = self.launch, (m for n in self.op.launches for m in n.moves)
        return order_name(next(m.name for m in moves if m.routing is n.visits), n.leaving)

    def mover_template(self, moves: Moves) -> str:
        """What prints the kernel's function that carries a piece of a chunk."""
        along = {"gather": "_hops", "scatter": "_hops_sums", "deal": "_deal_hops"}
        name = along[moves.kind] if moves.routing else "_deal" if moves.kind == "deal" else "_moves"
        return f"{name}.py.jinja"

    def way(self, moves: Moves) -> str:
        """Which end of its transfers a rank is: sends, fetches or mixed."""
        if moves.routing.form is not None:
            return "fetches" if moves.routing.form.fetch else "sends"
        return "mixed" if moves.routing.fetches else "sends"

    def steps(self, moves: Moves) -> str:
        """How many transfers of a shard, or of a part of one, a rank issues."""
        return "(W - 1)" if moves.routing is None else f"{moves.name}_count"

    def chunks(self, moves: Moves) -> str:
        """Chunks of one of them."""
        return f"tl.cdiv({self.span}, {moves.name}_chunk)" if moves.routing is None else f"{moves.name}_chunks"

    def host_hops(self, moves: Moves) -> tuple[str, ...]:
        return tuple(host_hops(moves, self.launch.chunk))

    def host_chunks(self, moves: Moves) -> str:
        return host_chunks(moves, self.launch.chunk)

    def describe(self, moves: Moves) -> str:
        if moves.routing is not None:
            return f"plan {moves.routing.name}, via {moves.via}"
        what = {"gather": "own shard", "scatter": "partial sums", "deal": "a peer's block"}[moves.kind]
        how = "ring to the right neighbour" if moves.ring else f"{moves.side} by {moves.walk.value}"
        return f"{what}, {how}, via {moves.via}"

    @property
    def host_tiles(self) -> str:
        """Tickets of a shard, as the wrapper counts them."""
        rows = 'constants["BM"] * args["slices"]' if self.launch.sliced else 'constants["BM"]'
        return self.body.tickets(False) if self.body else self.tiles_of(rows)

    @property
    def tile_rows(self) -> str:
        """Rows that a program takes at once, in the kernel."""
        return "(BM * slices)" if self.launch.sliced else "BM"

    def tiles_of(self, rows: str) -> str:
        """Tiles of so many rows in a shard."""
        return f'cdiv(shard, {rows}) * max(1, cdiv({self.across}, constants["BN"]))'

    # ---- arguments

    def _arguments(self):
        n = self.launch
        yield from (
            Argument("state", "self.state.local", "self.state.local"),
            Argument("state_peers", "self.state.table", "self.state.table"),
            Argument("record", "self.record", "self.record"),
            Argument("tickets", f"self._{n.name}_tickets", f"self._{n.name}_tickets"),
        )
        yield from (Argument(x, x, x, True) for x in ("limit", "rank", "rows", "shard", "stride"))
        if n.sliced:
            chunks = dict.fromkeys(chunk_text(c) for c in (n.chunk, n.out_chunk) if c)
            of = ("m.sms", self.tiles_of('constants["BM"]'), 'constants["BM"]', *chunks)
            yield Argument("slices", *[f"slices_of({', '.join(of)})"] * 2, True)
        yield Argument("n", *[extent_text(n.cols, self.op.nested)] * 2, True)
        if n.products or n.fold:
            yield Argument("depth", *[extent_text(n.depth, self.op.nested)] * 2, True)
        if n.ahead:
            yield Argument("span_rows", "span_rows", "span_rows", True)
        if n.ahead or (n.over and n.over.kept == "shards"):
            yield Argument("span", "span", "span", True)
            yield Argument("span_stride", "span_stride", "span_stride", True)
        yield from self._operands()
        if n.chunk_flags:
            for flags in self.awaited:
                yield Argument(flags, f"self._{flags}.local", "None")
            yield from self._chunk("chunk", n.chunk, "span" if n.other_rows else "shard")
        if n.visits is not None and n.visits.tabled:
            yield Argument(self.order, f"self._{self.order}", f"self._{self.order}")
        yield from (Argument(*found) for found in destination(self.launch, self.buffers, self.flags, self.slot_cap))
        if n.out_chunk:
            yield from self._chunk("out_chunk", n.out_chunk)
        for m in self.moves:
            yield from self._moves(m)

    def _operands(self):
        n, own = self.launch, self.own
        if self.body:
            for name, text, integer in self.body.arguments():
                yield Argument(name, text, "None", integer)
        for b in ([n.a] if n.a else []) + [p.b for p in n.products]:
            kind = b.role if b.role in ("a", "at") else "bt" if b.transposed else "b"
            text = f'"{kind}", {{}}, constants, {self.tma}, {self._logical_cols(b)})'
            fused = f"warp_matrix(self, {text.replace('constants', 'chosen')}" if self.warps else f"self.matrix({text}"
            tensors = {b.name: self._tensor(b)} | ({f"{b.name}_own": self._source(own)} if b is n.a and own else {})
            for name, tensor in tensors.items():
                yield Argument(name, fused.format(tensor), f"self.matrix({text}".format(tensor))
            yield Argument(f"{b.name}_pitch", f"pitch_of({self._tensor(b)})", f"pitch_of({self._tensor(b)})", True)
            if b.layout in SLOTTED:
                spanned = n.over or (n.ahead and b is not n.a)
                cap = slot_rows("span_stride_cap") if spanned else SLOTTED[b.layout]
                yield Argument(f"{b.name}_cap", cap, "0", True)
        if n.fold:
            o = n.fold.operand
            yield Argument(o.name, self._tensor(o), self._tensor(o))
            yield Argument(f"{o.name}_pitch", f"pitch_of({self._tensor(o)})", f"pitch_of({self._tensor(o)})", True)
            if o.layout == "padded":
                yield Argument(f"{o.name}_cap", slot_rows("span_stride_cap"), "0", True)
        for o in n.operands:
            yield Argument(o.name, self._tensor(o), self._tensor(o))
            if o.source in self.pitched and o.role in ("full", "column"):
                yield Argument(f"{o.name}_pitch", f"pitch_of({self._tensor(o)})", f"pitch_of({self._tensor(o)})", True)
            if o.layout in SLOTTED:
                yield Argument(f"{o.name}_cap", SLOTTED[o.layout], "0", True)
        if n.sums:
            name = n.sums.parts.name
            reach = "table" if n.sums.side == "pull" else "local"
            yield Argument(name, f"self._{name}.{reach}", f"exact_{name}")
            yield Argument(f"{name}_pitch", f"pitch_of(self._{name}.local)", f"pitch_of(exact_{name})", True)
            yield Argument(f"{name}_cap", self.slot_cap(self.buffers[name]), "0", True)
            if n.sums.routing:
                held = self.buffers[self._mover.source].kind == "symmetric"
                yield from (Argument(*found) for found in sum_arguments(n, self._mover, held))
            elif n.sums.ring:
                yield Argument(f"{name}_own", f"self._{name.removesuffix('_stage')}_partials", "None")

    @property
    def _mover(self) -> Moves:
        """The moves that bring what this launch adds up."""
        return next(m for n in self.op.launches for m in n.moves if m.buffer == self.launch.sums.parts.source)

    @property
    def exact_sum(self) -> str:
        """What `exact` adds up beforehand, along the route, in torch."""
        return followed(self.launch, self._mover, chunk_text(self.launch.chunk))

    def _moves(self, m: Moves):
        x = m.name
        chunk = self.launch.out_chunk if m.leaving else self.launch.chunk
        local = f"self._{m.buffer}.local"
        if m.deal:
            yield from self._chunk(f"{x}_chunk", chunk)
            total, rows = dim_text(m.deal.cols.size, "dims"), dim_text(self.launch.rows, "bounds")
            yield from (Argument(*found) for found in dealt(m, total, rows, self.buffers.get(m.source)))
            yield from (Argument(*found) for found in (rows_of(m, chunk, chunk_text(chunk)) if m.routing else ()))
            return
        yield Argument(f"{x}_n", *[extent_text(m.cols, self.op.nested)] * 2, True)
        yield from self._chunk(f"{x}_chunk", chunk, self.span)
        yield Argument(f"{x}_pitch", f"pitch_of({local})", f"pitch_of({local})", True)
        cap = slot_rows("span_stride_cap") if self.launch.ahead else self.slot_cap(self.buffers[m.buffer])
        yield Argument(f"{x}_cap", cap, cap, True)
        yield Argument(f"{x}_table", f"self._{m.buffer}.table", "None")
        if m.routing is not None:
            yield from (Argument(*found) for found in hops(m, chunk, chunk_text(chunk)))
            return
        yield Argument(f"{x}_buffer", local, "None")
        if m.side == "push":
            yield Argument(f"{x}_source", local if m.kind == "gather" else f"self._{m.source}", "None")
            yield Argument(f"{x}_arrived_peers", f"self._{m.arrived}.table", "None")
        if m.side == "pull" or m.ring:
            yield Argument(f"{x}_arrived", f"self._{m.arrived}.local", "None")
        if m.ready:
            yield Argument(f"{x}_ready", f"self._{m.ready}.local", "None")
        if m.done:
            yield Argument(f"{x}_done", f"self._{m.done}", "None")
        yield Argument(f"{x}_counters", f"self._{m.counters}", "None")

    def _chunk(self, name: str, chunk, of: str = "shard"):
        yield Argument(name, chunk_text(chunk).replace("shard", of), of, True)
        yield Argument(f"{name}_cap", chunk_cap_text(chunk).replace("shard", of), "1", True)

    def _tensor(self, operand) -> str:
        """The wrapper's expression for an operand; gathered and total buffers are bound to a local variable first."""
        text = self._source(operand.source)
        return f"{text}[{operand.pick}]" if operand.pick is not None else text

    def line(self, operand) -> str:
        """Elements from one row of an operand to the next."""
        return f"({in_elements(f'{operand.name}_pitch', operand.dtype)})"

    def _source(self, source: str) -> str:
        buffer = self.buffers.get(source)
        if buffer is None:
            return f"{source}_"
        return f"at_{source}" if buffer.kind == "symmetric" else f"self._{source}"

    def _logical_cols(self, operand) -> str:
        if operand.role == "at":
            return self.rows_of("rank") if self.launch.space == "own" else "rows"
        if self.launch.over:
            return "n"
        return "depth" if operand.role == "a" or operand.transposed else "n"

    @property
    def handed(self) -> str:
        """How the wrapper reaches what its tiles hand over."""
        return ".local" if self.handed_to_readers else ""

    def slot_cap(self, buffer: Buffer) -> str:
        if buffer.routing:
            return f"{places_of(self.op, buffer.routing)} * stride_cap"
        return "stride_cap" if buffer.groups in ("whole", "shard") else slot_rows()
