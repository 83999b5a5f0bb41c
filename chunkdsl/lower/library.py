"""Products that the library computes (`compute = library`): what of a statement becomes a launch of such calls, how its
addends travel, and what is refused.

A product is all of its launch: the rest of its statement is a pointwise launch of its own, on the product as it was
stored and so rounded. A gather is waited for chunk by chunk before the calls; addends are carried on by a copy engine
behind each call. Which rows a call has is said in plan/geometry.
"""

from __future__ import annotations

from functools import cached_property

from chunkdsl.check.library import library_addends, library_has_no_tile, library_out_of_reach
from chunkdsl.ir.graph import Value
from chunkdsl.ir.layouts import CONTIGUOUS
from chunkdsl.lower.choices import Choices
from chunkdsl.lower.epilogue import GENERATED, Epilogue
from chunkdsl.lower.facts import Refused
from chunkdsl.lower.gates import values_of
from chunkdsl.plan.routing import Routing
from chunkdsl.plan.schedule import Buffer, Destination, Flags, Moves

ROUTES = ("direct", "swizzle")


class LibraryLaunches(Epilogue):
    def _by_library(self, value: Value) -> bool:
        """Is it a product that the library computes: as the spec says, or as was measured to be faster?"""
        if value.kind != "matmul" or value.policy.compute is not None:
            return value.kind == "matmul" and value.policy.compute == "library"
        found = self.settled.get((value, "compute"))
        return found is not None and found.value == "library"

    @cached_property
    def for_library(self) -> frozenset[Value]:
        """Left operands of the library's products."""
        return frozenset(v.args[0] for v in values_of(self.op) if self._by_library(v))

    def _place_library(self, value: Value, name: str, sends: bool) -> None:
        """Store the products of a statement that the library computes, unless one is all of it. `sends`: the statement
        makes the addends of a reduction."""
        for product in [v for v in self._leaves(value, {}) if self._by_library(v)]:
            self._check_product(product)
            if sends and product is not value:
                mend = "write it on the sum: `2 * reduce_scatter(h @ w, M)`, or compute = generated"
                self._refuse_library(library_addends("not the product alone", value.span, mend))
            if product is not value:
                self._place(product, f"{name}_product")

    def _check_product(self, product: Value) -> None:
        """Refuse what no launch of the library's calls can have, whatever arrives or leaves."""
        spans = product.policy.spans
        if product.policy.compute is None:
            self._auto(product, "compute", "generated", "generated", GENERATED)
        for key in ("tile", "stages", "warps"):
            if getattr(product.policy, key) is not None:
                span = spans.get("compute", product.span)
                self._refuse_library(library_has_no_tile(key, spans.get(key, product.span), span))
        left, right = product.args
        right = right.args[0] if right.kind == "transpose" else right
        right = right.args[0] if right.kind == "pick" else right
        if left.kind == "transpose":
            self._out_of_reach("a product over rows, `a.T @ b`", product)
        if self._arrives(right):
            self._out_of_reach("a product whose right operand arrives", product)
        if len(self.over) > 1:
            self._out_of_reach("a product between ranks of two mesh axes together", product)

    def _check_library(self, product: Value, settled, scatter, destination: Destination, layout) -> None:
        """Refuse a launch whose product the library cannot compute, by what arrives for it and what it makes."""
        if settled and scatter:
            self._out_of_reach("a product between a gather and a reduction in one statement", product)
        if layout != CONTIGUOUS:
            self._out_of_reach(f"a product of rows that are {layout}", product)
        if destination.deal:
            self._out_of_reach("blocks of an all_to_all", product)
        if not settled:
            return
        moves = settled[0]
        if moves.kind != "gather":
            self._out_of_reach("a product whose left operand comes by all_to_all", product)
        if moves.via != "copy_engine" or moves.routing is not None:
            how = f"along plan {moves.routing.name}" if moves.routing else f"by programs, via = {moves.via}"
            self._out_of_reach(f"a product whose chunks come {how}", product, "write via = copy_engine")

    def _library_sum(self, settle: Choices, routing: Routing | None, algorithm: str | None) -> dict:
        """How the library's addends travel: pushed by copy engine, in stream order behind the calls that made them."""
        value, instead = settle.value, "write compute = generated"
        route = settle.pick("route", "swizzle", "spreads the ranks' writes over different peers")
        via = settle.pick("via", "copy_engine", "it carries what a call has left while the next one runs")
        side = settle.pick("side", "push", "the owner adds up what has come")
        order = settle.pick("order", "arrival", "what travels first is computed first")
        reduce = settle.pick("reduce", "fixed", "the same sum on every run")
        for key, found, built in (("route", route, ROUTES), ("via", via, ("copy_engine",)), ("side", side, ("push",))):
            if found not in built or (key == "route" and routing is not None):
                settle.refuse(library_out_of_reach(f"addends that travel by {key} = {found}", settle.span(key),
                                                   f"write {key} = {built[-1]}, or compute = generated"))  # fmt: skip
        if settle.policy.place is not None:
            settle.refuse(library_out_of_reach("addends that programs carry", settle.span("place"),
                                               "leave `place` out, or write compute = generated"))  # fmt: skip
        if algorithm == "one_shot":
            settle.refuse(library_out_of_reach("addends that go to every rank", settle.span("algorithm"),
                                               "write algorithm = two_shot, or compute = generated"))  # fmt: skip
        if order == "interleaved":
            settle.refuse(library_out_of_reach("shards in turns", settle.span("order"),
                                               "write order = arrival, or compute = generated"))  # fmt: skip
        wire = settle.policy.wire
        if wire is not None and wire != value.args[0].type.dtype.value:
            what = f"{wire} on the wire, and the product is {value.args[0].type.dtype.value}"
            settle.refuse(library_addends(what, settle.span("wire"), f"leave `wire` out, or {instead[6:]}"))
        return dict(route=route, via=via, side=side, place=None, order=order, reduce=reduce)

    def _copied_partials(self, name: str, wire: str, rows, cols, chunk, info: dict, line: int):
        """(destination of the calls, the copies behind them, buffer of what the sum reads)."""
        stage, arrived, partial = f"{name}_stage", f"{name}_arrived", f"{name}_partials"
        cut = info["layout"]
        self.buffers.append(Buffer(stage, "symmetric", wire, "world", rows, cols, layout=cut))
        self.flags.append(Flags(arrived, "symmetric", "chunk", rows, chunk, layout=cut))
        self.buffers.append(Buffer(partial, "local", wire, "world", rows, cols, layout=cut))
        sent = Destination("hand_over", partial, wire, "padded", arrived, stage=stage)
        moves = Moves(
            name=f"{name}_move", kind="scatter", via="copy_engine", side="push", walk=None, programs=0,
            source=partial, buffer=stage, dtype=wire, cols=cols, arrived=arrived, wire=wire, line=line,
        )  # fmt: skip
        return sent, moves, stage

    def _out_of_reach(self, what: str, product: Value, instead: str = "") -> None:
        mend = f"{instead}, or compute = generated" if instead else "write compute = generated"
        self._refuse_library(library_out_of_reach(what, product.policy.spans.get("compute", product.span), mend))

    def _refuse_library(self, diagnostic) -> None:
        self.report.add(diagnostic)
        raise Refused
