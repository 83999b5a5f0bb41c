"""Launches whose tiles are a user's kernel: gathers of its arguments, where its result goes, what the footprint says.

Shares buffers, flags, moves and staging with the launches of built-in kernels; only the tile is another one.
"""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.check.kernels import chunk_edge_inside_a_tile, kernel_cannot_be_fused
from chunkdsl.ir.graph import Value
from chunkdsl.ir.layouts import CONTIGUOUS
from chunkdsl.ir.types import DimRef, Shard, Share, evaluate, shard_rows
from chunkdsl.kernels.binding import Stride
from chunkdsl.kernels.fault import KernelFault
from chunkdsl.kernels.rewrite import by_ticket, definitions, suffix
from chunkdsl.lower.dealing import Dealing
from chunkdsl.lower.facts import Refused
from chunkdsl.lower.kernel_items import DeclaredKernel
from chunkdsl.lower.kernel_loops import keep_order
from chunkdsl.plan.body import BodyScalar, BodyTensor, KernelBody, Turn
from chunkdsl.plan.schedule import Destination, Extent, Tiling

WARPS, STAGES = 4, 3  # what Triton takes where the item pins no others


class KernelTiles(Dealing):
    def _pad(self) -> int:
        """Rows to which shards of communication buffers are padded. None where a user's kernel reads or fills them: it
        knows one tensor, whose row is the global row."""
        if not any(n.body for n in self.launches):
            return max((n.reach for n in self.launches), default=1)
        padded = next((n for n in self.launches if n.a and n.a.layout == "padded"), None)
        if padded is not None:
            what = "a product of a gathered value in an op that calls a kernel"
            self._refuse(what, "give the two ops of their own", self.op.span)
        return 1

    def _place_kernels(self, value: Value, name: str) -> None:
        """Calls of kernels inside a pointwise expression get launches of their own."""
        for v in self._leaves(value, {}):
            if v.kind == "kernel":
                self._place(v, f"{name}_{v.attrs['item']}")

    def _kernel_tiles(self, value: Value, name: str, destination: Destination, scatter) -> None:
        if len(self.over) > 1:
            self._refuse("a kernel in an op over two axes together", "communicate over one of them", value.span)
        d = destination
        carried = d.kind == "hand_over" and not d.stage and scatter and scatter[2] and scatter[2].ring
        if d.kind not in ("local", "publish") and not carried:
            what = "a kernel whose result travels otherwise than by side = pull or a ring"
            self._refuse(what, "write side = pull, or bind the kernel's result to a name first", value.span)
        kernel: DeclaredKernel = self.program.kernels[value.attrs["item"]]
        sources, arriving = [], {}
        for bound, arg in zip(kernel.binding.tensors, value.args, strict=True):
            if len(bound.block) > 1:
                self._aligned(arg, arg.span)
            if self._comes_in_order(value, arg):
                operand, other = self._gather(arg, f"{name}_{bound.name}")
                arriving[other[0].name] = arg, other
                sources.append(operand.source)
            elif arg.kind == "all_gather":
                copy = self._fresh(f"{name}_{bound.name}_whole")
                self._tiles(arg, copy, self._local(arg, copy, False))
                sources.append(copy)
            else:
                sources.append(self._place(arg, f"{name}_{bound.name}")[0])
        self._travel_together([*arriving.values()])
        settled = next((other for _, other in arriving.values()), None)
        extents = self._own_sizes(kernel, value)
        gathered = tuple(
            b.name for b, a in zip(kernel.binding.tensors, value.args, strict=True) if self._comes_in_order(value, a)
        )
        beside = self._outputs(value)
        for result, made in zip(kernel.binding.results, (value, *beside), strict=True):
            if len(result.block) > 1:
                self._aligned(made, made.span)
            if result.dims[0] != kernel.binding.results[0].dims[0]:
                what = f"a kernel's result `{result.name}` whose rows are not those of the first one"
                self._refuse(what, "store it by a kernel of its own", made.span)
        found, texts = self._traced(kernel, [value, *beside], extents, gathered, destination.kind != "local")
        moves, stagings, chunk, arrived = [], [], None, None
        rows = self._rows(value)
        if settled:
            moves_g, _, info = settled
            if moves_g.routing is not None:
                self._refuse("a plan as the route of a kernel's argument", "use swizzle, direct or ring", value.span)
            arrived, chunk = moves_g.arrived, info["chunk"]
            gather = next(a for a in value.args if self._comes_in_order(value, a))
            if not found.block:
                rows = gather.type.shape[0]
            if moves_g.via != "copy_engine" and not moves_g.programs:
                self._refuse("co-located transfers into a user's kernel", "write place = own_sms(16)", gather.span)
        for arg, (moves_g, staging_g, _) in arriving.values():
            path = kernel.source.path
            wrong = found.turns and keep_order(arg, staging_g, found.turns, path, self.op.name, self.choices)
            if wrong:
                self.report.add(wrong)
                raise Refused
            if moves_g.name not in self.carried:
                self.carried.add(moves_g.name)
                stagings.append(staging_g)
                moves.append(moves_g)
        space = "all" if settled or destination.kind != "local" else "own" if self._sharded_rows(value) else "whole"
        if destination.kind != "local" and destination.everyone:
            space = "whole"
        if scatter and scatter[2]:
            moves.append(scatter[2])
        options = dict(kernel.binding.options)
        tiling = Tiling(max(1, found.block), 16, 16, options.get("num_warps", WARPS),
                        options.get("num_stages", STAGES), 32, 256)  # fmt: skip
        self._launch(
            name, value, space, self._walk(settled, scatter), chunk, arrived, tiling, None, (), None, None, {}, [], "",
            destination, scatter[1] if scatter else None, tuple(moves),
            stagings[0] if stagings else None,
            self._body(kernel, {value: destination, **beside}, extents, sources, found, texts),
        )  # fmt: skip
        n = self.launches[-1]
        self.launches[-1] = replace(n, rows=rows, body=replace(n.body, also=tuple(stagings[1:])))

    def _comes_in_order(self, value: Value, arg: Value) -> bool:
        """Do an argument's rows arrive where the kernel finds them, one behind the other? Those of a layout are copied
        out into the global order by tiles that wait for them; so are rows of which every rank sends a part, and what
        plans or co-located programs deal."""
        if arg.kind != "all_to_all":
            return arg.kind == "all_gather" and self._row_layout(arg.args[0]) == CONTIGUOUS
        p, alone = arg.policy, sum(a.kind in ("all_gather", "all_to_all") for a in value.args) == 1
        plain = p.route in (None, "swizzle", "direct") and (p.place is None or p.place.kind == "own_sms")
        return bool(arg.attrs["target"]) and alone and plain

    def _outputs(self, value: Value) -> dict[Value, Destination]:
        """The other results of a call, in their order, and where each is kept: bound to names by the same statement."""
        found: dict[Value, Destination] = {}
        for s in self.op.statements:
            if s.value.kind != "output" or s.value.args[0] is not value:
                continue
            is_result = any(n == s.target and v is s.value for n, v in self.op.results)
            source = s.target if is_result else self._fresh(f"{self.op.name}_{s.target}")
            found[s.value] = self._local(s.value, source, is_result)
            self.places[s.value] = (source, self._layout(s.value))
            self.names[s.value] = s.target
        return found

    def _travel_together(self, arriving) -> None:
        """Several gathered arguments: a chunk is the same rows of all of them, and each has a lane of its own."""
        for arg, (moves, _, info) in arriving[1:]:
            first, (other, _, settled) = arriving[0]
            if arg.type.shape[0] != first.type.shape[0]:
                what = "arguments of a kernel that are gathered along different sizes"
                self._refuse(what, "gather along one size, or call two kernels", arg.span)
            if info["chunk"] != settled["chunk"]:
                what = "gathered arguments of a kernel whose chunks have different rows"
                self._refuse(what, "write chunk = 512 along M, or another number of rows", arg.span)
            if {moves.via, other.via} != {"copy_engine"}:
                self._refuse("several gathered arguments of a kernel, not by copy engine", "write via = copy_engine",
                             arg.span)

    def _own_sizes(self, kernel: DeclaredKernel, value: Value) -> dict[str, Extent]:
        """The kernel's own sizes as this rank's extents."""
        found: dict[str, Extent] = {}
        for bound, arg in zip(kernel.binding.tensors, value.args, strict=True):
            for i, (own, extent) in enumerate(zip(bound.dims, self._extents(arg), strict=True)):
                if isinstance(own, DimRef):
                    alone = len(self.program.mesh.axes) == 1 and arg.type.axis_sharding(i) is not None
                    found[own.name] = Extent(extent.size, extent.sharded or alone)
        return found

    def _shards(self, extents: dict[str, Extent]) -> dict[str, tuple[int, ...]]:
        """Of sizes that are sharded and fixed the parts that ranks of the declared mesh hold."""
        return {
            name: tuple(sorted({n for rank in range(self.world) if (n := shard_rows(e.size, self.world, rank))}))
            for name, e in extents.items() if e.sharded and isinstance(e.size, int)
        }  # fmt: skip

    def _traced(self, kernel: DeclaredKernel, values: list[Value], extents: dict[str, Extent], gathered, sent: bool):
        """The footprint and the two texts. Refuses the op where the kernel is unfit."""
        from chunkdsl.kernels.answers import find_footprint  # imports torch and Triton
        from chunkdsl.kernels.footprint import Question

        value = values[0]
        sizes = {name: max(1, evaluate(e.size, self.highs)) for name, e in extents.items()}
        dims = [p.dim for p in value.type.placements if isinstance(p, Shard)]
        cuts = tuple(kernel.binding.results[0].dims[i].name for i in dims)
        parted = frozenset(name for name, e in extents.items() if e.sharded or isinstance(e.size, Share))
        fixed = frozenset(extents) - parted - {n for n, e in extents.items() if not isinstance(e.size, int)}
        ranges = {
            name: (-(-r.low // r.step) * r.step, r.step)
            for name, e in extents.items()
            if name not in parted and isinstance(e.size, DimRef) and (r := self.program.ranges.get(e.size.name))
        }
        typed = [replace(t, dtype=self._held_dtype(a)) for t, a in zip(kernel.binding.tensors, value.args, strict=True)]
        made = [replace(r, dtype=self._dtype(v)) for r, v in zip(kernel.binding.results, values, strict=True)]
        binding = replace(kernel.binding, tensors=tuple(typed), results=tuple(made))
        try:
            by_ticket(kernel.source)  # a text that cannot be rewritten is not run
            found = find_footprint(
                Question(kernel.source, binding, gathered, sent, sizes, cuts, parted, fixed, ranges,
                         self._shards(extents))
            )
            return found, (definitions(kernel.source), by_ticket(kernel.source, found.turns))
        except KernelFault as fault:
            path, line = kernel.source.path, fault.line
            code = kernel.source.text.splitlines()[line - 1].strip() if line else ""
            said = chunk_edge_inside_a_tile if fault.edge else kernel_cannot_be_fused
            self.report.add(said(path, line, fault.reason, code, value.span, fault.mend))
            raise Refused from None

    def _body(
        self, kernel: DeclaredKernel, made: dict[Value, Destination], extents, sources, found, texts
    ) -> KernelBody:
        """`made`: the results and where they go."""
        value = next(iter(made))
        binding, reads = kernel.binding, dict(found.reads)
        tensors = [
            BodyTensor(
                b.pointer, source, self._held_dtype(arg), self._extents(arg), b.dims, reads.get(b.name, ""),
                False, b.strided, self.gathers[arg][0].arrived if self._comes_in_order(value, arg) else "", b.block,
            )
            for b, arg, source in zip(binding.tensors, value.args, sources, strict=True)
        ]  # fmt: skip
        for result, (v, d) in zip(binding.results, made.items(), strict=True):
            tensors.append(BodyTensor(result.pointer, d.buffer, d.dtype, self._extents(v), result.dims, "", True,
                                      result.strided, block=result.block))  # fmt: skip
        pointers = {t.name: t.pointer for t in binding.all}
        scalars = [
            BodyScalar(name, 0, (pointers[v.tensor], v.index)) if isinstance(v, Stride) else BodyScalar(name, v)
            for name, v in binding.scalars
        ]
        row = binding.results[0].dims[0]
        order = found.order
        return KernelBody(
            item=kernel.name,
            path=kernel.source.path,
            line=kernel.source.kernel.lineno,
            function=kernel.source.function,
            tensors=tuple(tensors),
            scalars=tuple(scalars),
            parameters=tuple(p.arg for p in kernel.source.parameters),
            constants=binding.constants,
            options=binding.options,
            sizes=tuple(extents.items()),
            row=row.name if isinstance(row, DimRef) else "",
            grid=binding.grid,
            block=found.block,
            columns=found.columns,
            column_block=found.column_block,
            order=(order.axes, order.group, order.across, order.turned),
            step=found.step,
            untouched=texts[0],
            by_ticket=texts[1],
            imports=kernel.source.import_lines,
            tickets=kernel.source.function + suffix(found.turns),
            turns=tuple(Turn(t.lead, t.each, tuple(pointers[n] for n in t.names)) for t in found.turns),
            flops=found.flops,
            loads=found.loads,
            whole=found.whole,
        )
