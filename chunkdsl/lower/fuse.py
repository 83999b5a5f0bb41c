"""Cuts the statements of an op into launches.

A statement is one pointwise tree over leaves: products, gathered values, at most one reduction, tensors, numbers.
A reduction splits it: the launch below makes the partial sums and sends them, the launch above adds them up and
applies the rest of the tree. Not done here: anything about the order of bytes on the wire (`choices`, templates).
"""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.check.layouts import layout_rows_by_pointers, layouts_meet_in_a_product
from chunkdsl.ir.graph import Value
from chunkdsl.ir.layouts import CONTIGUOUS, Layout
from chunkdsl.lower.beside import overlapped
from chunkdsl.lower.choices import rows_tiling
from chunkdsl.lower.facts import Refused
from chunkdsl.lower.gates import settle_gate
from chunkdsl.lower.kernel_tiles import KernelTiles
from chunkdsl.lower.reserved import RESERVED
from chunkdsl.plan.body import written_by
from chunkdsl.plan.extents import matrix_name
from chunkdsl.plan.geometry import rows_apart
from chunkdsl.plan.schedule import (
    Buffer,
    Destination,
    Instruction,
    Launch,
    Operand,
    OpSchedule,
    Parameter,
    Product,
    Result,
)
from chunkdsl.plan.tile_kernels import settle_kernels


class OpBuilder(KernelTiles):
    def build(self) -> OpSchedule | None:
        gate = settle_gate(self.op, self.program, self.report, self.choices, self.settled)
        try:
            for p in self.op.params:
                self._held_dtype(p.value)
                self.places[p.value] = (p.name, self._layout(p.value))
                self.names[p.value] = p.name
            self._reserve()
            for s in self.op.statements:
                self._statement(s.target, s.value)
            for name, value in self.op.results:
                self._copy_result(name, value)
        except Refused:
            return None
        if gate is None:
            return None
        slots = min(self.slots, default=1)
        made = OpSchedule(
            name=self.op.name,
            line=self._line(self.op.span),
            parameters=tuple(Parameter(p.name, *self._declared(p.value)) for p in self.op.params),
            results=tuple(Result(name, *self._declared(value)) for name, value in self.op.results),
            buffers=tuple(replace(b, slots=slots) if b.kind == "symmetric" else b for b in self.buffers),
            flags=tuple(self.flags),
            counters=tuple(self.counters),
            launches=overlapped(self.launches, {p.name for p in self.op.params}),
            slots=slots,
            closing=slots == 1 and bool(self.slots),
            pad=self._pad(),
            gate=gate,
            choices=tuple(self.choices),
            over=tuple(self.program.mesh.axes[i].name for i in self.over) if len(self.program.mesh.axes) > 1 else (),
        )
        return settle_kernels(made)

    def _statement(self, target: str, value: Value) -> None:
        self.target = target
        is_result = any(n == target and v is value for n, v in self.op.results)
        name = f"{self.op.name}_{target}"
        source = target if is_result else self._fresh(name)
        if self._arrives(value) and not is_result:
            self._gather(value, name)
            return
        if value.kind == "output":
            return  # kept by the launch of its call
        if value.kind == "stack":
            for i, matrix in enumerate(value.args):
                place = Destination("local", matrix_name(source, i), self._dtype(matrix), self._layout(matrix))
                self._tiles(matrix, f"{name}_{i}", place)
            return
        reduction = self._reduction(value)
        if reduction is None:
            self._tiles(value, name, self._local(value, source, is_result))
        else:
            self._reduced(value, reduction, name, self._local(value, source, is_result))
        self.places[value] = (source, self._layout(value))
        self.names[value] = target

    def _copy_result(self, name: str, value: Value) -> None:
        """A result that is another name of a value, or a gathered value itself, gets a launch that copies it."""
        written = {name for n in self.launches if n.destination.kind == "local" for name in written_by(n)}
        if name in written or value.kind == "stack":
            return
        self.target = name
        self._tiles(value, f"{self.op.name}_{name}", self._local(value, name, True))

    def _reserve(self) -> None:
        """Buffers and kernels are named OP_TARGET: two ops or targets must not meet there."""
        own = self.op.name
        alike = [o for o in self.program.ops if o.name.startswith(own) or own.startswith(o.name)]
        for s in self.op.statements:
            name = f"{own}_{s.target}"
            for other in alike:
                if other is not self.op and any(f"{other.name}_{t.target}" == name for t in other.statements):
                    self._refuse(f"two statements whose kernels would both be called {name}", "rename an op", s.span)

    def _local(self, value: Value, source: str, is_result: bool) -> Destination:
        dtype = self._dtype(value)
        if not is_result:
            self.buffers.append(Buffer(source, "local", dtype, "whole", self._rows(value), self._cols(value)))
        return Destination("local", source, dtype, self._layout(value))

    # ---- a launch of tiles

    def _tiles(self, value: Value, name: str, destination: Destination, *, space=None, scatter=None) -> None:
        """`scatter`: (Choices result, chunk, moves) when the destination sends chunks."""
        if value.kind == "kernel" and value not in self.places:
            self._kernel_tiles(value, name, destination, scatter)
            return
        self._place_kernels(value, name)
        self._place_norms(value, name, destination.kind == "local")
        self._place_library(value, name, scatter is not None)
        leaves = self._leaves(value, {})
        products = [v for v in leaves if v.kind == "matmul"]
        gathers = [v for v in leaves if self._arrives(v)]
        interleaved = scatter is not None and scatter[0]["order"] == "interleaved"
        if value.kind == "sum_rows":
            return self._row_sum(value, name, destination)
        if interleaved and (gathers or (products and self._by_shards_of_its_left(products[0].args[0]))):
            what = "order = interleaved of tiles that take what arrives, or go by shards of another dimension"
            self._refuse(what, "write order = arrival", value.span)
        if products and products[0].args[0].kind == "transpose" and not gathers:
            return self._row_product(value, products, name, destination, scatter)
        a, b_operands, depth = None, [], None
        moves, staging, settled, chunk, arrived, ahead = [], None, None, None, None, None
        if products:
            a, settled_a = self._left(products, name)
            depth = self._cols(products[0].args[0])
            if settled_a:
                settled = settled_a
            apart = not (settled or scatter or gathers) and destination.kind == "local"
            taken = self._ahead(products, name) if apart else None
            if taken:
                rights = [self._ahead_operand(p, g) for p, (_, g) in zip(products, taken, strict=True)]
                ahead, moves_a, stagings_a, coming = self._take_ahead(taken, products)
            else:
                rights = [self._right(p.args[1], p.span) for p in products]
            if len({b.name for b in rights}) < len({(b.source, b.pick, b.transposed) for b in rights}):
                rights[-1] = replace(rights[-1], name=f"{rights[-1].name}_")  # `w[0]` beside a tensor `w0`
            b_operands = [Product(f"acc{i}" if i else "acc", b) for i, b in enumerate(rights)]
        operands: dict[Value, Operand] = {}
        for g in gathers:
            operands[g], other = self._gather(g, f"{name}_{self.names.get(g.args[0], 'x')}")
            if settled and other[0].name != settled[0].name:
                self._refuse("two gathers in one statement", "bind one of them to a name first", g.span)
            settled = other
        if settled:
            moves_g, staging_g, info = settled
            arrived, chunk = moves_g.arrived, info["chunk"]
            if moves_g.name not in self.carried:
                self.carried.add(moves_g.name)
                staging = staging_g
                moves += [moves_g, *info.get("beside", ())]
        if ahead and moves_a:
            moves, staging = moves_a, next(iter(stagings_a))
            arrived, chunk = moves_a[0].arrived, coming[2]["chunk"]
        if space is None:
            space = settled[2].get("space", "all") if settled else "own" if self._sharded_rows(value) else "whole"
        elif space == "whole" and settled:
            what = "a one-shot reduction of a product with an all_to_all"
            self._refuse(what, "write algorithm = two_shot", value.span)
        walk = self._walk(coming if ahead else settled, scatter)
        if scatter and scatter[2]:
            moves.append(scatter[2])
        co_located = [m for m in moves if m.via != "copy_engine" and not m.programs]
        if co_located and (len(moves) > 1 or destination.kind == "deal"):
            self._refuse(
                "co-located transfers on both sides of one product",
                "give one of the two collectives place = own_sms(n)",
                value.span,
            )
        layout = self._meeting_layout(settled[2] if settled else None, scatter[0] if scatter else None)
        if library := self._by_library(value):
            self._check_library(value, settled, scatter, destination, layout)
        tiling = rows_tiling() if library else self._tiling(products, value)
        steps: list[Instruction] = []
        made = {p: b_operands[i].accumulator for i, p in enumerate(products)}
        result = self._epilogue(value, made, operands, steps)
        self._launch(
            name, value, space, walk, chunk, arrived, tiling, a, tuple(b_operands), depth, None,
            operands, steps, result, destination, scatter[1] if scatter else None, tuple(moves), staging,
        )  # fmt: skip
        if ahead or library or interleaved:
            self.launches[-1] = replace(self.launches[-1], ahead=ahead, library=library, interleaved=interleaved)
        info = settled[2] if settled else scatter[0] if scatter else {}
        if space != "own":
            self.launches[-1] = replace(self.launches[-1], layout=layout)
            self._check_pointers(info, destination)
        if info.get("routing") and info.get("space") != "own" and info["order"] == "arrival":
            self.launches[-1] = replace(self.launches[-1], visits=info["routing"])
        if settled and settled[2].get("space") == "own":
            self.launches[-1] = replace(self.launches[-1], from_every=True)

    def _by_shards_of_its_left(self, left: Value) -> bool:
        return left.kind == "transpose" or self._arrives(left)

    def _meeting_layout(self, gather: dict | None, scatter: dict | None) -> Layout:
        """The layout in which rows arrive and leave."""
        found = [i for i in (gather, scatter) if i and "layout" in i]
        if len(found) > 1 and found[0]["layout"] != found[1]["layout"]:
            arrives, leaves = found
            words = str(arrives["layout"]), str(leaves["layout"])
            self.report.add(layouts_meet_in_a_product(*words, leaves["span"], arrives["span"]))
            raise Refused
        return found[0]["layout"] if found else CONTIGUOUS

    def _check_pointers(self, info: dict, destination: Destination) -> None:
        n = self.launches[-1]
        if rows_apart(n) and "tma" in (destination.via, *(m.via for m in n.moves)):
            self.report.add(layout_rows_by_pointers("reduce_scatter", str(n.layout), info["span"]))
            raise Refused

    def _launch(
        self, name, value, space, walk, chunk, arrived, tiling, a, products, depth, sums,
        operands, steps, result, destination, out_chunk, moves, staging, body=None,
    ) -> None:  # fmt: skip
        while name in self.kernels or name in RESERVED:
            name += "_"
        self.kernels.add(name)
        self.launches.append(
            Launch(
                name=name,
                line=self._line(self.statement_span(value)),
                text=self._statement_text(value),
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
                operands=tuple({o.name: o for o in operands.values()}.values()),
                epilogue=tuple(steps),
                value=result,
                destination=destination,
                out_chunk=out_chunk,
                moves=moves,
                staging=staging,
                body=body,
                layout=self._row_layout(value) if space == "own" else CONTIGUOUS,
            )
        )

    def _statement_text(self, value: Value) -> str:
        """The statement without its policy, on one line that fits a comment."""
        statement = next((s for s in self.op.statements if s.target == self.target), None)
        span = statement.value.span if statement else value.span
        text = f"{self.target} = {' '.join(self.program.source.slice(span).split())}"
        text = statement.text if statement and statement.text else text
        return text if len(text) <= 100 else f"{text[:97]}..."

    def statement_span(self, value: Value):
        for s in self.op.statements:
            if s.target == self.target:
                return s.span
        return value.span

    def _left(self, products: list[Value], name: str):
        """The shared left operand of the products, and the settled gather that fills it if there is one."""
        left = products[0].args[0]
        if len(products) > 2 or any(not same_left(p.args[0], left) for p in products):
            self._refuse(
                "more than two products in a statement, or products with different left operands",
                "bind the products to names in statements of their own",
                products[-1].span,
            )
        first = products[0].policy
        for p in products[1:]:
            if (p.policy.tile, p.policy.stages, p.policy.warps) != (first.tile, first.stages, first.warps):
                self._refuse("products of one statement with different tiles", "give both the same policy", p.span)
        if left.kind == "transpose":
            self._refuse("a transposed left operand", "pass the tensor transposed", left.span)
        if self._arrives(left):
            return self._gather(left, f"{name}_{self.names.get(left.args[0], 'x')}")
        source, layout = self._place(left, f"{name}_left")
        if left in {p.value for p in self.op.params}:
            self._aligned(left, left.span)
        return Operand(f"{source}_a", "a", self._dtype(left), source, layout), None

    def _right(self, value: Value, span) -> Operand:
        transposed = value.kind == "transpose"
        base = value.args[0] if transposed else value
        pick = None
        if base.kind == "pick":
            pick, base = int(base.attrs["index"]), base.args[0]
            if base.type.rank != 3:
                self._refuse("picking from a tensor that is not three-dimensional", "pass the matrix itself", span)
        if base.kind == "all_gather":
            source = self._gathered_whole(base, f"{self.op.name}_{self.target}_right")
        elif self._arrives(base) or base not in self.places:
            what = "an all_to_all" if self._arrives(base) else "computed in place"
            self._refuse(f"a right operand that is {what}", "bind it to a name first", span)
        else:
            source, _ = self.places[base]
        self._aligned(base, span)
        if value.type.rank != 2:
            self._refuse("a product with a tensor that is not a matrix", "pick a matrix from it", span)
        name = f"{source}_b" if pick is None else f"{source}{pick}_b"
        return Operand(name, "b", self._dtype(base), source, "plain", transposed, pick)

    def _place(self, value: Value, name: str) -> tuple[str, str]:
        """Where a value lies; a value that is computed in place is materialised by a launch of its own."""
        if value not in self.places:
            if value.kind in ("transpose", "pick"):
                self._refuse("a transposed or picked left operand", "pass the matrix itself", value.span)
            reduction, name = self._reduction(value), self._fresh(name)
            destination = self._local(value, name, False)
            if reduction is None:
                self._tiles(value, name, destination)
            else:
                self._reduced(value, reduction, name, destination)
            self.places[value] = (name, self._layout(value))
            self.names[value] = name
        return self.places[value]


def same_left(a: Value, b: Value) -> bool:
    """One tensor, or the same gather written twice."""
    alike = a.kind == b.kind and a.attrs == b.attrs and a.args and a.args[0] is b.args[0] and a.policy == b.policy
    return a is b or (a.kind in ("all_gather", "all_to_all") and alike)
