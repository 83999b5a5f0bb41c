"""The communication of an op: buffers, flags, counters, staging and moves of its gathers and reductions."""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.check.resources import too_many_flags, too_many_programs
from chunkdsl.ir.graph import Value
from chunkdsl.ir.layouts import CONTIGUOUS, Layout
from chunkdsl.ir.policy import ChunkCount
from chunkdsl.ir.types import SymSize, dims_in, evaluate
from chunkdsl.lower.choices import Choices, rows_tiling
from chunkdsl.lower.facts import Refused
from chunkdsl.lower.in_place import may_stay
from chunkdsl.lower.library import LibraryLaunches
from chunkdsl.lower.routed import (
    built_in,
    chunk_of,
    refuse_breaches,
    routing_of,
    settle_gather,
    settle_halves,
    settle_sum,
)
from chunkdsl.plan.limits import FLAG_WORDS, MULTIPROCESSORS
from chunkdsl.plan.routes import GATHER_PEERS, SCATTER_ORDER, Walk
from chunkdsl.plan.routing import Routing
from chunkdsl.plan.schedule import Buffer, Destination, Flags, Instruction, Moves, Operand, Staging, Sum
from chunkdsl.plan.within import why_not_within


class Transports(LibraryLaunches):
    def _gather(self, value: Value, name: str, routing: Routing | None = None):
        """Operand that reads the gathered value, and (moves, staging, settled policy). `routing`: instead of what its
        policy says."""
        if value in self.gathers:
            return self.gathers[value]
        if int(value.attrs["dim"]) != 0 or value.type.rank != 2:
            self._refuse("gathering along a dimension that is not the rows of a matrix", "gather rows", value.span)
        twin = next((g for g in self.gathers if g.kind == value.kind and g.args[0] is value.args[0]), None)
        if twin is not None:
            if twin.policy != value.policy:
                what = "two gathers of one tensor with different policies"
                self._refuse(what, "bind one gather to a name and use the name", value.span)
            self.gathers[value], self.places[value] = self.gathers[twin], self.places[twin]
            self.names[value] = self.names[twin]
            return self.gathers[value]
        source, _ = self._place(value.args[0], f"{name}_shard")
        name = f"{source}_gathered" if source.startswith(f"{self.op.name}_") else f"{self.op.name}_{source}_gathered"
        name = self._fresh(name, "", "_arrived", "_ready", "_pieces", "_copies", "_own")
        dtype, cols, rows = self._dtype(value), self._cols(value), self._rows(value)
        layout = self._row_layout(value.args[0])
        settle = Choices(value, f"{self.op.name}: all_gather({source})", self.report, self.choices, self.settled)
        row_bytes = self._high(cols) * value.type.dtype.bytes
        half, routing = routing is not None, routing or routing_of(value, self.program, settle)
        stays = len(self.over) < 2 and not cols.sharded and may_stay(value, self.op, self._by_library)
        if not settle.ok:
            raise Refused
        if routing is None:
            info = settle.gather(stays)
            info["chunk"] = settle.chunk_rows(row_bytes, value in self.for_library)
        else:
            shard = layout.shard(evaluate(rows, self.highs), self.world)
            info = settle_gather(settle, routing, half)
            info["chunk"] = chunk_of(settle, routing, row_bytes, shard, self.grid)
            routing = info["routing"]
            refuse_breaches(settle, *(r.uncopied(self.grid) for r in (routing, info["copied"]) if r))
        info["layout"], info["span"] = layout, value.span
        copied = info["via"] == "copy_engine" or info.get("copied") is not None
        copies = settle.buffers(row_bytes * evaluate(rows, self.highs), copied)
        self._settled(settle, info)
        self._aligned(value, value.span)
        if copied and dims_in(cols.size):
            what = "copy engines for rows of a run-time length"
            self._refuse(what, "fix the length, or write via = ldst", value.span)
        self.slots.append(copies)
        self._words(info["chunk"], rows, f"all_gather({source})", value, layout)
        pull = routing.fetches if routing else info["side"] == "pull"
        pushed = routing is None and info["via"] == "copy_engine" and not pull
        self.buffers.append(Buffer(name, "symmetric", dtype, "world", rows, cols, layout=layout))
        self.flags.append(Flags(f"{name}_arrived", "symmetric", "chunk", rows, info["chunk"], layout=layout))
        if pull:
            self.flags.append(Flags(f"{name}_ready", "symmetric", "rank", rows))
        if info["via"] != "copy_engine":
            per = "pair" if routing else "chunk"
            self.counters.append(Flags(f"{name}_pieces", "local", per, rows, info["chunk"], layout=layout))
        line = self._line(value.span)
        moves = Moves(
            name=f"{name}_move",
            kind="gather",
            via=info["via"],
            side=info["side"],
            walk=None if routing else GATHER_PEERS[info["route"]],
            programs=info["place"].programs if info["place"] else 0,
            source=source if stays and pushed else name,
            buffer=name,
            dtype=dtype,
            cols=cols,
            arrived=f"{name}_arrived",
            ready=f"{name}_ready" if pull else None,
            counters=f"{name}_pieces",
            line=line,
            routing=routing,
            otherwise=info.get("otherwise", ""),
        )
        info["beside"] = ()
        if info.get("copied") is not None:
            info["beside"] = (replace(moves, name=f"{name}_copies", via="copy_engine", programs=0, ready=None,
                                      counters=None, routing=info["copied"], otherwise=""),)  # fmt: skip
        staging = Staging(
            f"{name}_stage", source, name, dtype, cols, rows, moves.ready, pull and info["via"] == "copy_engine", line
        )
        operand = Operand(name, "a", dtype, name, "padded", arrived=moves.arrived)
        self.gathers[value] = (operand, (moves, staging, info))
        self.places[value] = (name, "padded")
        self.names[value] = name
        return self.gathers[value]

    def _reduced(self, value: Value, reduction: Value, name: str, destination: Destination) -> None:
        scatter = reduction.kind == "reduce_scatter"
        if (scatter and int(reduction.attrs["dim"]) != 0) or reduction.type.rank != 2:
            self._refuse("a reduction over columns or of a tensor that is not a matrix", "scatter rows", reduction.span)
        source = reduction.args[0]
        settle = Choices(reduction, f"{self.op.name}: {reduction.kind}", self.report, self.choices, self.settled)
        algorithm = None
        if not scatter:
            algorithm = settle.pick("algorithm", "two_shot", "each byte travels twice, not W times")
        routing = routing_of(reduction, self.program, settle)
        halves = settle_halves(settle, routing, algorithm, self.grid) if routing and not scatter else None
        if not settle.ok:
            raise Refused
        sent_whole = routing is not None and not scatter and halves is None
        if halves is not None:
            routing = halves[0]
        elif routing is not None and built_in(settle, routing):
            routing = None
        layout = self._row_layout(reduction)
        if source.kind == "kernel" and layout != CONTIGUOUS:  # it stores rows one behind the other, in the global order
            self._place(source, f"{name}_{source.attrs['item']}")
        kernel = source.kind == "kernel" and source not in self.places
        straight = scatter and routing is None and layout == CONTIGUOUS and len(self.over) < 2
        if self._contracts_rows(source) and not straight:  # its tiles go by shards of the left operand's columns
            self._place(source, f"{name}_whole")
        library = self._by_library(source) and source not in self.places
        if library:
            info = self._library_sum(settle, routing, algorithm)
        else:
            info = settle.reduce(algorithm, kernel) if routing is None else settle_sum(settle, routing)
        wire = settle.pick("wire", reduction.type.dtype.value, "the result's dtype")
        one_shot = algorithm == "one_shot"
        rows, cols = self._rows(source), self._cols(source)
        info["layout"], info["span"] = layout, reduction.span
        row_bytes = self._high(cols) * (4 if wire == "f32" else 2)
        shard = layout.shard(evaluate(rows, self.highs), self.world)
        chunk = settle.chunk_rows(row_bytes, library) if routing is None else None
        chunk = chunk or chunk_of(settle, routing, row_bytes, shard, self.grid)
        copies = settle.buffers(row_bytes * evaluate(rows, self.highs), library)
        self._settled(settle, info)
        self.slots.append(copies)
        self._words(chunk, rows, reduction.kind, reduction, layout, routing.places(self.grid) if routing else 0)
        ends = ("_stage", "_arrived", "_tiles", "_partials", "_done", "_pieces")
        stem = self._fresh(name, *ends, *(f"_total{end}" for end in ("", "_arrived", "_tiles")))
        sent, moves, parts_source = self._partials(stem, wire, rows, cols, chunk, info, one_shot, reduction)
        self._tiles(
            source, f"{name}_partial", sent,
            space="whole" if one_shot else "all", scatter=(info, chunk, moves),
        )  # fmt: skip
        self.launches[-1] = replace(self.launches[-1], rows=rows)
        parts = Operand(parts_source, "parts", wire, parts_source, "padded", arrived=sent.arrived)
        ring = info["route"] == "ring"
        sums = Sum("total", parts, ring, info["side"], wire, routing, library)
        final, out_chunk = destination, None
        if halves is not None:
            dtype = value.type.dtype.value
            final = Destination("local", f"{stem}_total", dtype, "own")
            self.buffers.append(Buffer(final.buffer, "local", dtype, "whole", rows, cols))
        elif not scatter and not one_shot and not sent_whole:
            total = f"{stem}_total"
            self.buffers.append(Buffer(total, "symmetric", value.type.dtype.value, "world", rows, cols))
            self.flags.append(Flags(f"{total}_arrived", "symmetric", "chunk", rows, chunk))
            self.counters.append(Flags(f"{total}_tiles", "local", "chunk", rows, chunk))
            dtype, arrived = value.type.dtype.value, f"{total}_arrived"
            final = Destination("broadcast", total, dtype, "padded", arrived, counters=f"{total}_tiles")
            out_chunk = chunk
        operands: dict[Value, Operand] = {}
        steps: list[Instruction] = []
        result = self._epilogue(value, {reduction: "total"}, operands, steps)
        space = "whole" if one_shot else "all" if sent_whole else "own"
        walk = Walk.UP
        self._launch(
            f"{name}_sum", value, space, walk, chunk, sent.arrived, self._tiling([], value), None, (), None, sums,
            operands, steps, result, final, out_chunk, (), None,
        )  # fmt: skip
        self._settle_within(settle, routing is None and not library and not one_shot)
        if halves is not None:
            self._hand_out(value, reduction, halves[1], final.buffer, f"{name}_out", destination)
        elif final is not destination:
            total = Operand(final.buffer, "full", final.dtype, final.buffer, "padded", arrived=final.arrived)
            self._launch(
                f"{name}_out", value, "all", Walk.UP, chunk, final.arrived, rows_tiling(), None, (), None, None,
                {value: total}, [Instruction("t0", "load", (total.name,))], "t0", destination, None, (), None,
            )  # fmt: skip

    def _settle_within(self, settle: Choices, is_open: bool) -> None:
        """Who adds up: the launch just made, or the tiles of the product ahead of it. `is_open`: that may be asked."""
        product, total = self.launches[-2:]
        why_not = why_not_within(product, total)
        if not why_not and product.destination.buffer != total.sums.parts.source:
            why_not = "a launch lies between the product and its sum"
        if not is_open:
            why_not = why_not or "the addends do not end on one owner, or not in its tiles"
        add = settle.policy.add
        if add is None and is_open and not why_not:
            add = settle.pick("add", "behind", "a launch adds up while the product runs")
        if add != "in_tiles":
            return
        if why_not:
            settle.refuse_transport("add = in_tiles", why_not, "add")
            raise Refused
        self.launches[-1] = replace(total, within=product.name, sums=replace(total.sums, own_here=True))

    def _hand_out(self, value: Value, reduction: Value, routing: Routing, total: str, name: str, destination) -> None:
        """The second half of an all-reduce along a plan: a gather of `total`, which holds the own rows of `value`."""
        own = Value("reduced", (reduction,), value.type, value.span)
        self.places[own], self.names[own] = (total, "own"), total
        axes = {key: reduction.attrs[key] for key in ("axis", "inner") if key in reduction.attrs}
        policy = replace(self.settled.policy_of(reduction), route=None, algorithm=None)
        whole = Value("all_gather", (own,), value.type, value.span, {**axes, "dim": 0}, policy)
        self.settled = self.settled.also_for(whole, reduction)  # one policy for both halves
        self._gather(whole, name, routing)
        self._tiles(whole, name, destination)

    def _partials(self, name, wire, rows, cols, chunk, info, one_shot, reduction):
        """Destination of the partial sums, the moves that carry them on if any, and where the sum reads them."""
        if info["via"] == "copy_engine":
            return self._copied_partials(name, wire, rows, cols, chunk, info, self._line(reduction.span))
        stage, arrived = f"{name}_stage", f"{name}_arrived"
        ring, pull = info["route"] == "ring", info["side"] == "pull"
        own_sms = info["place"].kind == "own_sms"
        groups = "world_whole" if one_shot and not pull else "whole" if one_shot else "world"
        cut = info["layout"]
        routing = info.get("routing")
        groups = "places" if routing else groups
        self.buffers.append(Buffer(stage, "symmetric", wire, groups, rows, cols, layout=cut, routing=routing))
        self.flags.append(Flags(arrived, "symmetric", "chunk", rows, chunk, one_shot, cut, routing))
        self.counters.append(Flags(f"{name}_tiles", "local", "chunk", rows, chunk, one_shot, cut))
        if pull:
            sent = Destination("publish", stage, wire, "padded", arrived, counters=f"{name}_tiles", everyone=one_shot)
            return sent, None, stage
        if not (own_sms or ring):
            tiles, via = f"{name}_tiles", info["via"]
            sent = Destination("push", stage, wire, "padded", arrived, counters=tiles, via=via, everyone=one_shot)
            return sent, None, stage
        partial, done = f"{name}_partials", f"{name}_done"
        kind = "symmetric" if routing and routing.fetches else "local"  # peers fetch the addends
        self.buffers.append(Buffer(partial, kind, wire, "world", rows, cols, layout=cut))
        self.flags.append(Flags(done, kind, "chunk", rows, chunk, layout=cut))
        per = "pair" if routing else "chunk"
        self.counters.append(Flags(f"{name}_pieces", "local", per, rows, chunk, layout=cut, routing=routing))
        sent = Destination(
            "hand_over", partial, wire, "padded", arrived, done, None if ring or routing else stage, f"{name}_tiles"
        )
        moves = Moves(
            name=f"{name}_move",
            kind="scatter",
            via=info["via"],
            side="push",
            walk=None if ring or routing else SCATTER_ORDER[info["route"]],
            programs=info["place"].programs,
            source=partial,
            buffer=stage,
            dtype=wire,
            cols=cols,
            arrived=arrived,
            done=done,
            counters=f"{name}_pieces",
            wire=wire,
            line=self._line(reduction.span),
            routing=routing,
        )
        return sent, moves, stage

    def _words(
        self, chunk, rows: SymSize, what: str, value: Value, layout: Layout = CONTIGUOUS, places: int = 0
    ) -> None:  # fmt: skip
        """Refuse more flags than there may be. `places`: of what arrives for a sum along a plan."""
        shard = layout.shard(evaluate(rows, self.highs), self.world)
        words = chunk.count if isinstance(chunk, ChunkCount) else -(-shard // chunk.count)
        words *= max(self.world, places)
        if words > FLAG_WORDS:
            self.report.add(too_many_flags(words, FLAG_WORDS, what, value.policy.spans.get("chunk")))
            raise Refused

    def _settled(self, settle: Choices, info: dict) -> None:
        place, limit = info["place"], min(MULTIPROCESSORS.values())
        if place and place.programs >= limit:
            settle.refuse(too_many_programs(place.programs, limit, settle.span("place")))
        if not settle.ok:
            raise Refused
