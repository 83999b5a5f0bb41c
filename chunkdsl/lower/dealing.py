"""all_to_all in an op: its buffers, flags, staging and moves, and the launches on either side of it.

Of a tensor that is there, it is a gather with other boxes: chunks arrive, and the tiles that read them wait. Of a tree
with a product it splits its statement like a reduction without a sum: the launch below stores each tile where the
peer that gets it will read it, the launch above waits and applies the rest of the statement.
"""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.ir.graph import Value
from chunkdsl.ir.types import evaluate
from chunkdsl.lower.ahead import AheadLaunches
from chunkdsl.lower.all_to_all_choices import settle_arrivals, settle_departures
from chunkdsl.lower.choices import Choices
from chunkdsl.lower.facts import Refused
from chunkdsl.lower.routed import chunk_of, settle_blocks, settle_exchange
from chunkdsl.plan.extents import Relay
from chunkdsl.plan.routes import GATHER_PEERS, Walk
from chunkdsl.plan.routing import Routing
from chunkdsl.plan.schedule import (
    Buffer,
    Deal,
    Destination,
    Flags,
    Moves,
    Operand,
    Staging,
)

ARRIVALS = {"swizzle": Walk.DOWN_OWN, "direct": Walk.UP}  # shards in which order, when tiles send them


class Dealing(AheadLaunches):
    def _gather(self, value: Value, name: str, routing: Routing | None = None):
        return super()._gather(value, name, routing) if value.kind == "all_gather" else self._arriving(value, name)

    def _reduced(self, value: Value, reduction: Value, name: str, destination: Destination) -> None:
        self._place_norms(value, name, True)
        made = self._departing if reduction.kind == "all_to_all" else super()._reduced
        made(value, reduction, name, destination)

    def _kept(self, value: Value, name: str) -> Operand:
        """A value that arrives by all_to_all is copied out by tiles that wait for it."""
        if value.kind != "all_to_all" or not self._arrives(value):
            return super()._kept(value, name)
        copy = self._fresh(f"{name}_whole")
        self._tiles(value, copy, self._local(value, copy, False))
        return Operand(copy, "a", self._dtype(value), copy, self._layout(value))

    def _deal(self, value: Value) -> Deal:
        if len(self.over) > 1:
            self._refuse("all_to_all over two axes together", "exchange over one axis, then the other", value.span)
        if value.type.rank != 2:
            self._refuse("all_to_all of a tensor that is not a matrix", "reshape it before the call", value.span)
        onto = "columns" if value.attrs["target"] else "rows"
        return Deal(onto, self._cols(value if onto == "columns" else value.args[0]))

    def _arriving(self, value: Value, name: str):
        """Operand that reads the value, and (moves, staging, settled policy), as `_gather` has them."""
        if value in self.gathers:
            return self.gathers[value]
        twin = next((g for g in self.gathers if g.kind == value.kind and g.args[0] is value.args[0]), None)
        if twin is not None:
            if twin.policy != value.policy:
                what = "two all_to_alls of one tensor with different policies"
                self._refuse(what, "bind one to a name and use the name", value.span)
            self.gathers[value], self.places[value] = self.gathers[twin], self.places[twin]
            self.names[value] = self.names[twin]
            return self.gathers[value]
        deal = self._deal(value)
        onto_rows = deal.onto == "rows"
        source, _ = self._place(value.args[0], f"{name}_shard")
        name = f"{source}_dealt" if source.startswith(f"{self.op.name}_") else f"{self.op.name}_{source}_dealt"
        ends = ("", "_arrived", "_ready", "_pieces", "_sent", "_relay", "_relay_arrived", "_relay_pieces")
        name = self._fresh(name, *ends)
        dtype, rows, cols = self._dtype(value), self._rows(value), self._cols(value)
        settle = Choices(value, f"{self.op.name}: all_to_all({source})", self.report, self.choices, self.settled)
        routing = settle_exchange(value, self.program, settle)
        if not settle.ok:
            raise Refused
        info = settle_blocks(settle, routing, deal.onto) if routing else settle_arrivals(settle, deal.onto)
        chunk, copy_engine = self._chunked(settle, value, info)
        self._aligned(value, value.span)
        if copy_engine and not isinstance(value.type.shape[1], int):
            self._refuse("copy engines for rows of a run-time length", "fix the length, or write via = ldst",
                         value.span)
        info |= dict(chunk=chunk, space="own" if onto_rows else "all")
        self._hold(name, dtype, value, deal, chunk)
        pull, line = info["side"] == "pull", self._line(value.span)
        sent, read = None, pull or (routing is not None and routing.fetches)  # `read`: by others
        if read:
            sent = f"{name}_sent"
            self.flags.append(Flags(f"{name}_ready", "symmetric", "rank", rows))
            held = self._cols(value.args[0])
            self.buffers.append(Buffer(sent, "symmetric", dtype, "whole" if onto_rows else "shard", rows, held))
        if not copy_engine:
            self.counters.append(Flags(f"{name}_pieces", "local", "pair" if routing else "chunk", rows, chunk))
        relay = self._relay(name, dtype, rows, deal, chunk) if routing else None
        moves = Moves(
            name=f"{name}_move",
            kind="deal",
            via=info["via"],
            side=info["side"],
            walk=None if routing else GATHER_PEERS[info["route"]],
            programs=info["place"].programs if info["place"] else 0,
            source=sent or source,
            buffer=name,
            dtype=dtype,
            cols=cols,
            arrived=f"{name}_arrived",
            ready=f"{name}_ready" if read else None,
            counters=f"{name}_pieces",
            line=line,
            routing=routing,
            deal=deal,
            relay=relay,
        )
        staging = Staging(
            f"{name}_stage", source, name, dtype, cols, rows, moves.ready, pull and copy_engine, line, deal, sent
        )
        layout = "block" if onto_rows else "padded"
        operand = Operand(name, "a", dtype, name, layout, arrived=moves.arrived)
        self.gathers[value] = (operand, (moves, staging, info))
        self.places[value] = (name, layout)
        self.names[value] = name
        return self.gathers[value]

    def _departing(self, value: Value, dealt: Value, name: str, destination: Destination) -> None:
        """The launch that makes and sends what `dealt` deals out, and the one that makes `value` of what came."""
        deal = self._deal(dealt)
        onto_rows = deal.onto == "rows"
        settle = Choices(dealt, f"{self.op.name}: all_to_all", self.report, self.choices, self.settled)
        routing = settle_exchange(dealt, self.program, settle, product=True)
        if not settle.ok:
            raise Refused
        info = settle_blocks(settle, routing, deal.onto, product=True) if routing else settle_departures(settle)
        chunk, _ = self._chunked(settle, dealt, info)
        ends = ("_parts", "_done", "_pieces", "_relay", "_relay_arrived", "_relay_pieces")
        stem = self._fresh(f"{name}_dealt", "", "_arrived", "_tiles", "_full", *(ends if routing else ()))
        dtype = self._dtype(dealt)
        self._hold(stem, dtype, dealt, deal, chunk)
        self.counters.append(Flags(f"{stem}_tiles", "local", "chunk", self._rows(dealt), chunk))
        sent, moves = Destination(
            "deal", stem, dtype, arrived=f"{stem}_arrived", counters=f"{stem}_tiles", deal=deal
        ), None  # fmt: skip
        if routing:
            sent, moves = self._handed_over(sent, dealt, info, chunk)
        self._tiles(
            dealt.args[0], f"{name}_part", sent, space="all" if onto_rows else "columns", scatter=(info, chunk, moves)
        )
        role = "column" if dealt.type.shape[1] == 1 else "full"
        came = Operand(f"{stem}_{role}", role, dtype, stem, "block" if onto_rows else "padded", arrived=sent.arrived)
        operands, steps = {dealt: came}, []
        result = self._epilogue(value, {}, operands, steps)
        arrivals = ARRIVALS.get(info["route"], Walk.UP) if info["order"] == "arrival" else Walk.UP
        self._launch(
            f"{name}_whole", value, "own" if onto_rows else "all", Walk.UP if onto_rows else arrivals, chunk,
            sent.arrived, self._tiling([], value), None, (), None, None, operands, steps, result, destination, None,
            (), None,
        )  # fmt: skip
        brought = routing if info["order"] == "arrival" and not onto_rows else None
        self.launches[-1] = replace(self.launches[-1], from_every=onto_rows, visits=brought)

    def _handed_over(self, sent: Destination, dealt: Value, info: dict, chunk) -> tuple[Destination, Moves]:
        """Along a plan blocks lie on their giver, chunk by chunk, until programs take them up; `sent`: without one.
        Where the plan fetches, others read them and their flags there."""
        stem, deal, rows, routing = sent.buffer, sent.deal, self._rows(dealt), info["routing"]
        kind = "symmetric" if routing.fetches else "local"
        parts, done, groups = f"{stem}_parts", f"{stem}_done", "whole" if deal.onto == "rows" else "shard"
        self.buffers.append(Buffer(parts, kind, sent.dtype, groups, rows, self._cols(dealt.args[0])))
        self.flags.append(Flags(done, kind, "chunk", rows, chunk))
        self.counters.append(Flags(f"{stem}_pieces", "local", "pair", rows, chunk))
        moves = Moves(
            name=f"{stem}_move",
            kind="deal",
            via=info["via"],
            side=info["side"],
            walk=None,
            programs=info["place"].programs,
            source=parts,
            buffer=stem,
            dtype=sent.dtype,
            cols=self._cols(dealt),
            arrived=sent.arrived,
            done=done,
            counters=f"{stem}_pieces",
            line=self._line(dealt.span),
            routing=routing,
            deal=deal,
            relay=self._relay(stem, sent.dtype, rows, deal, chunk),
        )
        return replace(sent, kind="hand_over", buffer=parts, stage=stem, done=done), moves

    def _relay(self, name: str, dtype: str, rows, deal: Deal, chunk) -> Relay:
        """Where blocks lie on their way over other ranks, and its flags."""
        relay = Relay(f"{name}_relay", f"{name}_relay_arrived", f"{name}_relay_pieces")
        self.buffers.append(Buffer(relay.buffer, "symmetric", dtype, "world", rows, deal.cols))
        self.flags.append(Flags(relay.arrived, "symmetric", "chunk", rows, chunk))
        self.counters.append(Flags(relay.counters, "local", "pair", rows, chunk))
        return relay

    def _chunked(self, settle: Choices, value: Value, info: dict):
        """(chunk, whether copy engines carry it). A chunk in bytes counts the rows of the whole value: of an all_to_all
        onto rows a tile needs the parts of every rank, and so many bytes arrive for it."""
        rows, copy_engine = self._rows(value), info["via"] == "copy_engine"
        row_bytes = evaluate(value.type.shape[1], self.highs) * value.type.dtype.bytes
        routing = info.get("routing")
        shard = -(-evaluate(rows, self.highs) // self.world)
        chunk = chunk_of(settle, routing, row_bytes, shard, self.grid) if routing else settle.chunk_rows(row_bytes)
        copies = settle.buffers(row_bytes * -(-evaluate(rows, self.highs) // self.world), copy_engine)
        self._settled(settle, info)
        self.slots.append(copies)
        self._words(chunk, rows, "all_to_all", value)
        return chunk, copy_engine

    def _hold(self, name: str, dtype: str, value: Value, deal: Deal, chunk) -> None:
        """The buffer in which a rank's part of the value is put together, and its flags."""
        rows, cols = self._rows(value), self._cols(value)
        groups = "shard" if deal.onto == "rows" else "world"
        self.buffers.append(Buffer(name, "symmetric", dtype, groups, rows, cols))
        self.flags.append(Flags(f"{name}_arrived", "symmetric", "chunk", rows, chunk))
