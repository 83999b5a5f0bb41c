"""Cuts the statements of an op into launches.

A statement is one pointwise tree over leaves: products, gathered values, at most one reduction, tensors, numbers.
A reduction splits it: the launch below makes the partial sums and sends them, the launch above adds them up and
applies the rest of the tree. Not done here: anything about the order of bytes on the wire (`choices`, templates).
"""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.check.resources import accumulator_too_large, shared_memory_too_large, too_many_flags, too_many_programs
from chunkdsl.check.targets import dtype_not_built, pattern_not_built
from chunkdsl.diagnostics import Report
from chunkdsl.ir.graph import Op, Program, Value
from chunkdsl.ir.policy import ChunkCount, FuseFrom
from chunkdsl.ir.types import Shard, SymSize, dims_in, evaluate
from chunkdsl.lower.choices import Choices, default_tile, rows_tiling
from chunkdsl.plan.limits import ACCUMULATOR_REGISTERS, FLAG_WORDS, MULTIPROCESSORS, SHARED_BYTES, stages_for
from chunkdsl.plan.routes import GATHER_ARRIVAL, GATHER_PEERS, GIVEN, LOCAL_FIRST, SCATTER_ORDER, Walk
from chunkdsl.plan.schedule import (
    Buffer,
    Choice,
    Destination,
    Extent,
    Flags,
    Gate,
    Instruction,
    Launch,
    Moves,
    Operand,
    OpSchedule,
    Parameter,
    Product,
    Result,
    Staging,
    Sum,
    Tiling,
)

POINTWISE = frozenset("add sub mul div neg gelu relu silu tanh swiglu cast const".split())
REDUCTIONS = ("reduce_scatter", "all_reduce")


class Refused(Exception):
    """The op cannot be scheduled; the report says why."""


class OpBuilder:
    def __init__(self, op: Op, program: Program, report: Report) -> None:
        self.op, self.program, self.report = op, program, report
        self.world = program.mesh.axes[0].size if program.mesh.axes else 1
        self.highs = {r.name: r.high for r in program.ranges.values()}
        self.places: dict[Value, tuple[str, str]] = {}  # where a value lies: (source, layout)
        self.names: dict[Value, str] = {}
        self.buffers: list[Buffer] = []
        self.flags: list[Flags] = []
        self.counters: list[Flags] = []
        self.launches: list[Launch] = []
        self.choices: list[Choice] = []
        self.slots: list[int] = []
        self.gathers: dict[Value, tuple[Operand, dict, Moves, Staging]] = {}
        self.carried: set[str] = set()
        self.gates: list[tuple] = []

    # ---- the op

    def build(self) -> OpSchedule | None:
        results = dict(self.op.results)
        try:
            for p in self.op.params:
                self._dtype(p.value)
                self.places[p.value] = (p.name, self._layout(p.value))
                self.names[p.value] = p.name
            for s in self.op.statements:
                self._statement(s.target, s.value, s.target in results and results[s.target] is s.value)
        except Refused:
            return None
        if self.report.failed and not self.launches:
            return None
        slots = min(self.slots, default=1)
        return OpSchedule(
            name=self.op.name,
            line=self._line(self.op.span),
            parameters=tuple(Parameter(p.name, p.value.type.dtype.value, self._extents(p.value)) for p in self.op.params),
            results=tuple(Result(n, v.type.dtype.value, self._extents(v)) for n, v in self.op.results),
            buffers=tuple(replace(b, slots=slots) if b.kind == "symmetric" else b for b in self.buffers),
            flags=tuple(self.flags),
            counters=tuple(self.counters),
            launches=tuple(self.launches),
            slots=slots,
            closing=slots == 1 and bool(self.slots),
            pad=max((n.tiling.bm for n in self.launches), default=1),
            gate=self._gate(),
            choices=tuple(self.choices),
        )

    def _statement(self, target: str, value: Value, is_result: bool) -> None:
        if value in self.places:  # y = x: a copy
            pass
        self.target = target
        source = target if is_result else f"{self.op.name}_{target}"
        name = f"{self.op.name}_{target}"
        if value.kind == "all_gather" and not is_result:
            self._gather(value, name)
            return
        reduction = self._reduction(value)
        self._note_gate(value)
        if reduction is None:
            self._tiles(value, name, self._local(value, source, is_result))
        else:
            self._reduced(value, reduction, name, self._local(value, source, is_result))
        self.places[value] = (source, self._layout(value))
        self.names[value] = target

    def _local(self, value: Value, source: str, is_result: bool) -> Destination:
        dtype = self._dtype(value)
        if not is_result:
            self.buffers.append(Buffer(source, "local", dtype, "whole", self._rows(value), self._cols(value)))
        return Destination("local", source, dtype, self._layout(value))

    # ---- a launch of tiles

    def _tiles(self, value: Value, name: str, destination: Destination, *, space: str | None = None, scatter=None) -> None:
        """`scatter`: (Choices result, chunk, moves) when the destination sends chunks."""
        leaves = self._leaves(value, {})
        products = [v for v in leaves if v.kind == "matmul"]
        gathers = [v for v in leaves if v.kind == "all_gather"]
        a, b_operands, depth = None, [], None
        moves, staging, settled, chunk, arrived = [], None, None, None, None
        if products:
            a, settled_a = self._left(products, name)
            depth = self._cols(products[0].args[0])
            if settled_a:
                settled = settled_a
            b_operands = [
                Product(f"acc{i}" if i else "acc", self._right(p.args[1], p.span)) for i, p in enumerate(products)
            ]
        operands: dict[Value, Operand] = {}
        for g in gathers:
            operands[g], settled = self._gather(g, f"{name}_{self.names.get(g.args[0], 'x')}")
        if settled:
            moves_g, staging_g, info = settled
            arrived, chunk = moves_g.arrived, info["chunk"]
            if moves_g.name not in self.carried:
                self.carried.add(moves_g.name)
                staging = staging_g
                moves.append(moves_g)
        if space is None:
            space = "all" if settled else "own" if self._layout(value) == "own" and self._sharded_rows(value) else "whole"
        walk = self._walk(settled, scatter)
        if scatter and scatter[2]:
            moves.append(scatter[2])
        if len(moves) > 1 and any(m.via != "copy_engine" and not m.programs for m in moves):
            self._refuse(
                "co-located transfers on both sides of one product",
                "give one of the two collectives place = own_sms(n)",
                value.span,
            )
        tiling = self._tiling(products, value)
        steps: list[Instruction] = []
        made = {p: b_operands[i].accumulator for i, p in enumerate(products)}
        result = self._epilogue(value, made, operands, steps)
        self._launch(
            name, value, space, walk, chunk, arrived, tiling, a, tuple(b_operands), depth, None,
            operands, steps, result, destination, scatter[1] if scatter else None, tuple(moves), staging,
        )  # fmt: skip

    def _launch(
        self, name, value, space, walk, chunk, arrived, tiling, a, products, depth, sums,
        operands, steps, result, destination, out_chunk, moves, staging,
    ) -> None:  # fmt: skip
        taken = {n.name for n in self.launches}
        while name in taken:
            name += "_"
        self.launches.append(
            Launch(
                name=name,
                line=self._line(self.statement_span(value)),
                text=" ".join(self.program.source.slice(self.statement_span(value)).split()),
                space=space,
                rows=self._rows(value),
                cols=self._cols(value),
                walk=walk,
                chunk=chunk,
                chunk_flags=arrived,
                tiling=tiling,
                a=a,
                products=products,
                depth=depth,
                sums=sums,
                operands=tuple(operands.values()),
                epilogue=tuple(steps),
                value=result,
                destination=destination,
                out_chunk=out_chunk,
                moves=moves,
                staging=staging,
            )
        )

    def statement_span(self, value: Value):
        for s in self.op.statements:
            if s.target == self.target:
                return s.span
        return value.span

    def _left(self, products: list[Value], name: str):
        """The shared left operand of the products, and the settled gather that fills it if there is one."""
        left = products[0].args[0]
        if len(products) > 2 or any(p.args[0] is not left for p in products):
            self._refuse(
                "more than two products in a statement, or products with different left operands",
                "bind the products to names in statements of their own",
                products[-1].span,
            )
        if left.kind == "transpose":
            self._refuse("a transposed left operand", "pass the tensor transposed", left.span)
        if left.kind == "all_gather":
            return self._gather(left, f"{name}_{self.names.get(left.args[0], 'x')}")
        source, layout = self._place(left, f"{name}_left")
        return Operand(f"{source}_a", "a", self._dtype(left), source, layout), None

    def _right(self, value: Value, span) -> Operand:
        transposed = value.kind == "transpose"
        base = value.args[0] if transposed else value
        pick = None
        if base.kind == "pick":
            pick, base = int(base.attrs["index"]), base.args[0]
            if base.type.rank != 3:
                self._refuse("picking from a tensor that is not three-dimensional", "pass the matrix itself", span)
        if base.kind == "all_gather" or base not in self.places:
            what = "a gathered right operand" if base.kind == "all_gather" else "a right operand that is computed in place"
            self._refuse(what, "gather the left operand, or bind the right one to a name first", span)
        source, _ = self.places[base]
        if value.type.rank != 2:
            self._refuse("a product with a tensor that is not a matrix", "pick a matrix from it", span)
        name = f"{source}_b" if pick is None else f"{source}{pick}_b"
        return Operand(name, "b", self._dtype(base), source, "plain", transposed, pick)

    # ---- gathers

    def _gather(self, value: Value, name: str):
        """Operand that reads the gathered value, and (moves, staging, settled policy)."""
        if value in self.gathers:
            return self.gathers[value]
        if int(value.attrs["dim"]) != 0 or value.type.rank != 2:
            self._refuse("gathering along a dimension that is not the rows of a matrix", "gather rows", value.span)
        source, _ = self._place(value.args[0], f"{name}_shard")
        name = f"{self.op.name}_{source}_gathered" if not source.startswith(self.op.name) else f"{source}_gathered"
        dtype, cols, rows = self._dtype(value), self._cols(value), self._rows(value)
        settle = Choices(value, f"{self.op.name}: all_gather({source})", self.report, self.choices)
        info = settle.gather()
        row_bytes = self._high(cols) * value.type.dtype.bytes
        info["chunk"] = settle.chunk_rows(row_bytes)
        copies = settle.buffers(row_bytes * evaluate(rows, self.highs), info["via"] == "copy_engine")
        self._settled(settle, info)
        self.slots.append(copies)
        self._words(info["chunk"], rows, f"all_gather({source})", value)
        pull = info["side"] == "pull"
        self.buffers.append(Buffer(name, "symmetric", dtype, "world", rows, cols))
        self.flags.append(Flags(f"{name}_arrived", "symmetric", "chunk", rows, info["chunk"]))
        if pull:
            self.flags.append(Flags(f"{name}_ready", "symmetric", "rank", rows))
        if info["via"] != "copy_engine":
            self.counters.append(Flags(f"{name}_pieces", "local", "chunk", rows, info["chunk"]))
        line = self._line(value.span)
        moves = Moves(
            name=f"{name}_move",
            kind="gather",
            via=info["via"],
            side=info["side"],
            walk=GATHER_PEERS[info["route"]],
            programs=info["place"].programs if info["place"] else 0,
            source=name,
            buffer=name,
            dtype=dtype,
            cols=cols,
            arrived=f"{name}_arrived",
            ready=f"{name}_ready" if pull else None,
            counters=f"{name}_pieces",
            line=line,
        )
        staging = Staging(
            f"{name}_stage", source, name, dtype, cols, rows, moves.ready, pull and info["via"] == "copy_engine", line
        )
        operand = Operand(name, "a", dtype, name, "padded", arrived=moves.arrived)
        self.gathers[value] = (operand, (moves, staging, info))
        self.places[value] = (name, "padded")
        self.names[value] = name
        return self.gathers[value]

    # ---- reductions

    def _reduced(self, value: Value, reduction: Value, name: str, destination: Destination) -> None:
        scatter = reduction.kind == "reduce_scatter"
        if scatter and int(reduction.attrs["dim"]) != 0 or reduction.type.rank != 2:
            self._refuse("a reduction over columns or of a tensor that is not a matrix", "scatter rows", reduction.span)
        source = reduction.args[0]
        settle = Choices(reduction, f"{self.op.name}: {reduction.kind}", self.report, self.choices)
        algorithm = None
        if not scatter:
            algorithm = settle.pick("algorithm", "two_shot", "each byte travels twice, not W times")
        info = settle.reduce(algorithm)
        wire = settle.pick("wire", reduction.type.dtype.value, "the result's dtype")
        one_shot = algorithm == "one_shot"
        rows, cols = self._rows(source), self._cols(source)
        row_bytes = self._high(cols) * (4 if wire == "f32" else 2)
        chunk = settle.chunk_rows(row_bytes)
        copies = settle.buffers(row_bytes * evaluate(rows, self.highs), False)
        self._settled(settle, info)
        self.slots.append(copies)
        self._words(chunk, rows, reduction.kind, reduction)
        sent, moves, parts_source = self._partials(name, wire, rows, cols, chunk, info, one_shot, reduction)
        self._tiles(
            source, f"{name}_partial", sent,
            space="whole" if one_shot else "all", scatter=(info, chunk, moves),
        )  # fmt: skip
        self.launches[-1] = replace(self.launches[-1], rows=rows)
        parts = Operand(parts_source, "parts", wire, parts_source, "padded", arrived=sent.arrived)
        ring = info["route"] == "ring"
        sums = Sum("total", parts, ring, info["side"], wire)
        final, out_chunk = destination, None
        if not scatter and not one_shot:
            total = f"{name}_total"
            self.buffers.append(Buffer(total, "symmetric", value.type.dtype.value, "world", rows, cols))
            self.flags.append(Flags(f"{total}_arrived", "symmetric", "chunk", rows, chunk))
            self.counters.append(Flags(f"{total}_tiles", "local", "chunk", rows, chunk))
            final = Destination("broadcast", total, value.type.dtype.value, "padded", f"{total}_arrived", counters=f"{total}_tiles")
            out_chunk = chunk
        operands: dict[Value, Operand] = {}
        steps: list[Instruction] = []
        result = self._epilogue(value, {reduction: "total"}, operands, steps)
        space = "whole" if one_shot else "own"
        walk = Walk.UP
        self._launch(
            f"{name}_sum", value, space, walk, chunk, sent.arrived, rows_tiling(0), None, (), None, sums,
            operands, steps, result, final, out_chunk, (), None,
        )  # fmt: skip
        if final is not destination:
            total = Operand(final.buffer, "full", final.dtype, final.buffer, "padded", arrived=final.arrived)
            self._launch(
                f"{name}_out", value, "all", Walk.UP, chunk, final.arrived, rows_tiling(0), None, (), None, None,
                {value: total}, [Instruction("t0", "load", (total.name,))], "t0", destination, None, (), None,
            )  # fmt: skip

    def _partials(self, name, wire, rows, cols, chunk, info, one_shot, reduction):
        """Destination of the partial sums, the moves that carry them on if any, and where the sum reads them."""
        stage, arrived = f"{name}_stage", f"{name}_arrived"
        ring, pull = info["route"] == "ring", info["side"] == "pull"
        own_sms = info["place"].kind == "own_sms"
        groups = "world_whole" if one_shot and not pull else "whole" if one_shot else "world"
        self.buffers.append(Buffer(stage, "symmetric", wire, groups, rows, cols))
        self.flags.append(Flags(arrived, "symmetric", "chunk", rows, chunk, one_shot))
        self.counters.append(Flags(f"{name}_tiles", "local", "chunk", rows, chunk, one_shot))
        if pull:
            sent = Destination("publish", stage, wire, "padded", arrived, counters=f"{name}_tiles", everyone=one_shot)
            return sent, None, stage
        if not (own_sms or ring):
            via = info["via"]
            sent = Destination("push", stage, wire, "padded", arrived, counters=f"{name}_tiles", via=via, everyone=one_shot)
            return sent, None, stage
        partial, done = f"{name}_partials", f"{name}_done"
        self.buffers.append(Buffer(partial, "local", wire, "world", rows, cols))
        self.flags.append(Flags(done, "local", "chunk", rows, chunk))
        self.counters.append(Flags(f"{name}_pieces", "local", "chunk", rows, chunk))
        sent = Destination(
            "hand_over", partial, wire, "padded", arrived, done, None if ring else stage, f"{name}_tiles"
        )
        moves = Moves(
            name=f"{name}_move",
            kind="scatter",
            via=info["via"],
            side="push",
            walk=None if ring else SCATTER_ORDER[info["route"]],
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
        )
        return sent, moves, stage

    # ---- pieces

    def _walk(self, settled, scatter) -> Walk:
        if settled:
            info = settled[2]
            if info["order"] == "arrival":
                return GATHER_ARRIVAL[info["route"], info["side"]]
        elif scatter:
            info = scatter[0]
            if info["order"] == "arrival":
                return SCATTER_ORDER[info["route"]]
        else:
            return Walk.UP
        return LOCAL_FIRST if info["order"] == "local_first" else GIVEN

    def _tiling(self, products: list[Value], value: Value) -> Tiling:
        if not products:
            return rows_tiling(0)
        policy, dtype = products[0].policy, products[0].args[0].type.dtype
        span = policy.spans.get("tile", products[0].span)
        n = len(products)
        tile = policy.tile
        if tile is None:
            tile = default_tile(dtype.value, n)
            shown = "x".join(map(str, tile))
            self.choices.append(Choice(f"{self.op.name}: product", "tile", shown, "fills the register file"))
        bm, bn, bk = tile
        text = f"{bm}x{bn}x{bk}"
        if bm * bn * n > ACCUMULATOR_REGISTERS:
            self.report.add(accumulator_too_large(text, n, span))
            raise Refused
        stage_bytes = (bm + n * bn) * bk * dtype.bytes
        if not any(stages_for(t, stage_bytes, 1) for t in SHARED_BYTES if t != "gfx942"):
            self.report.add(shared_memory_too_large(text, stage_bytes, SHARED_BYTES["sm_90"], "sm_90", span))
            raise Refused
        stages = policy.stages or 4
        warps = policy.warps or (8 if bm * bn * n >= 128 * 128 else 4)
        return Tiling(bm, bn, bk, warps, stages, 32, 256)

    def _epilogue(self, value: Value, made: dict[Value, str], operands: dict[Value, Operand], steps: list) -> str | int | float:
        """Instructions for a pointwise tree. `made` maps leaves and shared nodes to their targets."""
        if value in made:
            return made[value]
        if value.kind == "const":
            return value.attrs["number"]
        target = f"t{len(made) + len(steps)}"
        if value in self.places or value in operands:
            if value not in operands:
                operands[value] = self._pointwise_operand(value)
            op = operands[value]
            if op.role == "a":  # a gathered value used element by element
                operands[value] = op = replace(op, role="full")
            steps.append(Instruction(target, "load", (op.name,)))
        elif value.kind == "swiglu":
            gate, up = (self._epilogue(a, made, operands, steps) for a in value.args)
            target = f"t{len(made) + len(steps)}"
            steps.append(Instruction(target, "silu", (gate,)))
            steps.append(Instruction(f"{target}m", "mul", (target, up)))
            target = f"{target}m"
        elif value.kind in POINTWISE:
            args = tuple(self._epilogue(a, made, operands, steps) for a in value.args)
            target = f"t{len(made) + len(steps)}"
            if value.kind == "cast":
                steps.append(Instruction(target, "round", (args[0], value.type.dtype.value)))
            else:
                steps.append(Instruction(target, value.kind, args))
        else:
            self._refuse(f"{value.kind} inside a pointwise expression", "bind it to a name first", value.span)
        made[value] = target
        return target

    def _pointwise_operand(self, value: Value) -> Operand:
        source, layout = self.places[value]
        shape = value.type.shape
        if value.type.rank > 2:
            self._refuse("a pointwise operand of more than two dimensions", "reshape it to a matrix", value.span)
        role = "row" if len(shape) == 1 or shape[0] == 1 else "column" if shape[1] == 1 else "full"
        arrived = self.gathers[value][0].arrived if value in self.gathers else None
        return Operand(f"{source}_{role}", role, self._dtype(value), source, layout, arrived=arrived)

    def _leaves(self, value: Value, found: dict[Value, None]) -> dict[Value, None]:
        if value in self.places and value not in self.gathers:
            pass
        elif value.kind in POINTWISE:
            for a in value.args:
                self._leaves(a, found)
        else:
            found.setdefault(value)
        return found

    def _reduction(self, value: Value) -> Value | None:
        found = [v for v in self._leaves(value, {}) if v.kind in REDUCTIONS]
        if len(found) > 1:
            self._refuse("two reductions in one statement", "give each a statement of its own", found[1].span)
        if found and len(self._leaves(value, {})) > 1:
            other = next(v for v in self._leaves(value, {}) if v is not found[0])
            self._refuse("a reduction beside a product or a gather in one statement", "bind one to a name", other.span)
        return found[0] if found else None

    def _place(self, value: Value, name: str) -> tuple[str, str]:
        """Where a value lies; a value that is computed in place is materialised by a launch of its own."""
        if value not in self.places:
            if value.kind in ("transpose", "pick"):
                self._refuse("a transposed or picked left operand", "pass the matrix itself", value.span)
            reduction = self._reduction(value)
            destination = self._local(value, name, False)
            if reduction is None:
                self._tiles(value, name, destination)
            else:
                self._reduced(value, reduction, name, destination)
            self.places[value] = (name, self._layout(value))
            self.names[value] = name
        return self.places[value]

    # ---- facts

    def _layout(self, value: Value) -> str:
        return "own" if self._sharded_rows(value) else "plain"

    def _sharded_rows(self, value: Value) -> bool:
        return value.type.rank > 0 and isinstance(value.type.placements[0], Shard) and value.type.placements[0].dim == 0

    def _extents(self, value: Value) -> tuple[Extent, ...]:
        p = value.type.placements[0] if value.type.placements else None
        return tuple(Extent(s, isinstance(p, Shard) and p.dim == i) for i, s in enumerate(value.type.shape))

    def _rows(self, value: Value) -> SymSize:
        if value.type.rank != 2:
            self._refuse("a value that is not a matrix", "reshape it before the call", value.span)
        return value.type.shape[0]

    def _cols(self, value: Value) -> Extent:
        return self._extents(value)[-1]

    def _high(self, extent: Extent) -> int:
        size = evaluate(extent.size, self.highs)
        return -(-size // self.world) if extent.sharded else size

    def _dtype(self, value: Value) -> str:
        if value.type.dtype.value not in ("bf16", "f16", "f32"):
            self.report.add(dtype_not_built(value.type.dtype.value, value.span))
            raise Refused
        return value.type.dtype.value

    def _line(self, span) -> int:
        return self.program.source.line_of(span.start)

    def _words(self, chunk, rows: SymSize, what: str, value: Value) -> None:
        shard = -(-evaluate(rows, self.highs) // self.world)
        per = chunk.count if isinstance(chunk, ChunkCount) else -(-shard // chunk.count)
        if per * self.world > FLAG_WORDS:
            self.report.add(too_many_flags(per * self.world, FLAG_WORDS, what, value.policy.spans.get("chunk")))
            raise Refused

    def _settled(self, settle: Choices, info: dict) -> None:
        place, limit = info["place"], min(MULTIPROCESSORS.values())
        if place and place.programs >= limit:
            settle.refuse(too_many_programs(place.programs, limit, settle.span("place")))
        if not settle.ok:
            raise Refused

    def _refuse(self, what: str, instead: str, span) -> None:
        self.report.add(pattern_not_built(what, instead, span))
        raise Refused

    def _note_gate(self, value: Value) -> None:
        stack, seen = [value], set()
        while stack:
            v = stack.pop()
            if v in seen or v in self.places:
                continue
            seen.add(v)
            if v.policy.fuse_from or v.policy.fallback:
                self.gates.append((v.policy.fuse_from, v.policy.fallback))
            stack += v.args

    def _gate(self) -> Gate:
        """One gate for the op: the strictest of its statements'."""
        froms = [f for f, _ in self.gates if f]
        never = next((f for f in froms if f.count is None), None)
        largest = max(froms, key=lambda f: f.count or 0, default=FuseFrom(0))
        fallback = next((b for _, b in self.gates if b), "nccl")
        return Gate(never or largest, fallback)


def run_time_dims(size: SymSize) -> frozenset[str]:
    return dims_in(size)
