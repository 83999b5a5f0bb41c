"""Products and sums over rows: `a.T @ b`, and the sum of a matrix's rows. What weight and bias gradients are made of.

Every tile runs over all rows. A gathered operand that no tile has waited for yet is taken as it arrives, shard by
shard, where a copy engine brings it; else it is copied out first, by a launch whose tiles wait for it.
"""

from __future__ import annotations

from dataclasses import replace

from chunkdsl.ir.graph import Value
from chunkdsl.ir.layouts import CONTIGUOUS
from chunkdsl.lower.choices import rows_tiling
from chunkdsl.lower.transports import Transports
from chunkdsl.plan.routes import Walk
from chunkdsl.plan.schedule import Destination, Extent, Fold, Instruction, Operand, OverRows, Product

FOLD = replace(rows_tiling(), bn=64, bk=64)  # few columns a tile, so that a bias spreads over the multiprocessors


class OverRowsLaunches(Transports):
    def _row_product(self, value: Value, products: list[Value], name: str, destination: Destination, scatter) -> None:
        """The launch of a statement whose product has a transposed left operand. `scatter`: (Choices result, chunk,
        moves) when its tiles go shard by shard, each sent as soon as it is made."""
        product = products[0]
        if len(products) > 1:
            what = "a product over rows beside another product in one statement"
            self._refuse(what, "bind one of them to a name first", products[1].span)
        left, right = product.args[0].args[0], product.args[1]
        if right.kind in ("transpose", "pick") or left.kind == "pick":
            self._refuse("a product over rows whose right operand is transposed or picked from a stack of matrices",
                         "pass the matrix itself", right.span)  # fmt: skip
        coming = None
        if scatter is None:
            coming = next((v for v in (left, right) if left is not right and self._in_flight(v, name)), None)
        a, b = (
            self.gathers[v][0] if v is coming else self._kept(v, f"{name}_{side}")
            for v, side in ((left, "left"), (right, "right"))
        )
        over = self._over(left, a, b)
        walk, chunk, flags, moves, staging = Walk.UP, None, None, (), None
        if coming is not None:
            carried, staging, info = self.gathers[coming][1]
            walk, chunk, flags = self._walk(self.gathers[coming][1], None), info["chunk"], carried.arrived
            moves = (carried,)
            self.carried.add(carried.name)
        operands: dict[Value, Operand] = {}
        steps: list[Instruction] = []
        made = {product: "acc"}
        result = self._epilogue(value, made, operands, steps)
        space = "own" if self._sharded_rows(value) else "whole"
        out_chunk = None
        if scatter is not None:
            space, walk, out_chunk = "all", self._walk(None, scatter), scatter[1]
            moves = (scatter[2],) if scatter[2] else ()
        self._launch(
            name, value, space, walk, chunk, flags,
            self._tiling(products, value), replace(a, name=f"{a.source}_a", role="at", arrived=None),
            (Product("acc", replace(b, name=f"{b.source}_b", role="b", arrived=None)),),
            self._depth(left, over), None, operands, steps, result, destination, out_chunk, moves, staging,
        )  # fmt: skip
        self.launches[-1] = replace(self.launches[-1], over=over)

    def _in_flight(self, value: Value, name: str) -> bool:
        """Can the tiles of a product over rows take this operand as it arrives? They walk its shards in their loop and
        wait before each. It needs a copy engine, as programs of the launch that carry chunks count the launch's own
        rows; and shards of one axis, each of rows that follow one another."""
        if value.kind != "all_gather" or self._row_layout(value.args[0]) != CONTIGUOUS or len(self.over) > 1:
            return False
        self._gather(value, f"{name}_{self.names.get(value.args[0], 'x')}")
        moves, _, info = self.gathers[value][1]
        return info["via"] == "copy_engine" and moves.routing is None and moves.name not in self.carried

    def _row_sum(self, value: Value, name: str, destination: Destination) -> None:
        """The launch of a value of kind `sum_rows`: [m, n] -> [n]."""
        source = value.args[0]
        operand = replace(self._kept(source, f"{name}_rows"), role="fold")
        over = self._over(source, operand, operand)
        self._launch(
            name, value, "whole", Walk.UP, None, None, FOLD, None, (), self._depth(source, over), None,
            {}, [], "total", destination, None, (), None,
        )  # fmt: skip
        fold = Fold("total", replace(operand, name=f"{operand.source}_fold"))
        self.launches[-1] = replace(self.launches[-1], over=over, fold=fold)

    def _over(self, rows_of: Value, *operands: Operand) -> OverRows:
        kept = "shards" if any(o.layout == "padded" for o in operands) else "whole"
        return OverRows(self._rows(rows_of), "own" if self._sharded_rows(rows_of) else kept)

    def _depth(self, rows_of: Value, over: OverRows) -> Extent:
        own = over.kept == "own"
        return Extent(over.rows, own, self._row_layout(rows_of) if own else CONTIGUOUS)

    def _gathered_whole(self, value: Value, name: str) -> str:
        """The buffer that a gathered value is copied to, its shards behind each other, by tiles that wait for it. Once
        for each value: of a weight that is gathered ahead every product reads the same copy."""
        self._gather(value, f"{name}_{self.names.get(value.args[0], 'x')}")
        source = self.gathers[value][0].source
        if source not in self.wholes:
            copy = self._fresh(f"{name}_whole")
            self._tiles(value, copy, self._local(value, copy, False))
            self.wholes[source] = copy
        return self.wholes[source]

    def _kept(self, value: Value, name: str) -> Operand:
        """An operand that lies on this rank when the launch begins."""
        if value.kind == "all_gather":
            self._gather(value, f"{name}_{self.names.get(value.args[0], 'x')}")
            operand = self.gathers[value][0]
            apart = self._row_layout(value.args[0]) != CONTIGUOUS  # a tile needs the global order of both operands
            waited = [n for n in self.launches if n.chunk_flags == operand.arrived and (n.space == "all" or n.over)]
            if apart or not waited:
                copy = self._gathered_whole(value, name)
                return Operand(copy, "a", self._dtype(value), copy, "plain")
            return replace(operand, arrived=None)
        source, layout = self._place(value, name)
        self._aligned(value, value.span)
        return Operand(source, "a", self._dtype(value), source, layout)
