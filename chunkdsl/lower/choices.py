"""What `auto` becomes, by fixed rules, and which transports are legal. A rule is a line and a reason; what the cost
model settled before (cost/choose.py) takes its place."""

from __future__ import annotations

from chunkdsl.check.targets import copy_engine_buffers, rank_order_ring, transport_not_legal
from chunkdsl.diagnostics import Report
from chunkdsl.ir.graph import Value
from chunkdsl.ir.policy import ChunkBytes, ChunkCount, ChunkRows, Place, Policy
from chunkdsl.lower.crossovers import crossover
from chunkdsl.plan.schedule import Tiling
from chunkdsl.plan.settled import Choice, Settlement
from chunkdsl.source import Span

GATHER_LEGAL = {
    # via: (places, routes, sides)
    "copy_engine": ((None,), ("direct", "swizzle"), ("push", "pull")),
    "tma": (("own_sms", "co_located"), ("direct", "swizzle", "ring"), ("push", "pull")),
    "ldst": (("own_sms", "co_located"), ("direct", "swizzle", "ring"), ("push", "pull")),
}
REDUCE_LEGAL = {
    "tma": (("own_sms", "co_located"), ("direct", "swizzle", "ring"), ("push",)),
    "ldst": (("own_sms", "co_located"), ("direct", "swizzle", "ring"), ("push", "pull")),
}
MIB = 1 << 20
PROGRAMS = 16  # that fill a link
NOTHING = Settlement()


class Choices:
    """The settled policy of one collective. Records what `auto` became."""

    def __init__(
        self, collective: Value, where: str, report: Report, record: list[Choice], settled: Settlement = NOTHING
    ) -> None:
        self.value, self.where, self.report, self.record = collective, where, report, record
        self.settled = settled
        self.policy: Policy = settled.policy_of(collective)
        self.ok = True
        if self.policy.order == "interleaved" and collective.kind not in ("reduce_scatter", "all_reduce"):
            why = "what arrives comes shard by shard"
            self._refuse_transport(collective.kind, "order = interleaved", why, "order")

    def pick(self, key: str, value: object, why: str, shown: str | None = None):
        """The spec's value of a key, or `value` with the reason why."""
        given = getattr(self.policy, key)
        if isinstance(given, Place) and not given.counted:
            value, why, shown = Place("own_sms", PROGRAMS), "16 programs fill a link", "own_sms(16)"
        elif given is not None:
            return given
        rule = Choice(self.where, key, shown or str(value), why)
        found, choice = self.settled.choice(self.value, key, value, rule)
        self.record.append(choice)
        return found

    def refuse(self, diagnostic) -> None:
        """Reports the first thing wrong with a policy: mending it often mends the others."""
        if self.ok:
            self.report.add(diagnostic)
        self.ok = False

    def span(self, key: str):
        return self.policy.spans.get(key, self.value.span)

    @property
    def not_for_engines(self) -> bool:
        """The policy is one for programs: it has a place, or several buffers, and copy engines need fixed addresses."""
        return self.policy.place is not None or self.policy.buffers not in (None, 1)

    def gather(self, stays: bool = False) -> dict:
        """route, via, side, place, programs, order of an all-gather. `stays`: who reads it can take the own shard from
        where the caller has it (in_place.py)."""
        route = self.pick("route", "swizzle", "spreads the ranks' reads over different peers")
        default_via = "ldst" if route == "ring" or self.not_for_engines else "copy_engine"
        via = self.pick("via", default_via, "copy engines leave the multiprocessors to the tiles")
        side = "pull" if via == "copy_engine" and route != "ring" and not stays else "push"
        why = "one staged copy serves every reader" if side == "pull" else "no entry barrier"
        if via == "copy_engine" and stays:
            why = "the shard goes from where the caller has it: nothing is staged"
        side = self.pick("side", side, why)
        place = self.policy.place
        if via != "copy_engine":
            place = self.pick("place", Place("own_sms", 16), "16 programs fill a link", "own_sms(16)")
        order = self.pick("order", "arrival", "tiles start with what is there")
        self.legal("all_gather", GATHER_LEGAL, via, route, side, place)
        if place and place.kind == "co_located" and order != "arrival":
            # The proof finds the deadlock: a program would wait for a chunk that a later ticket carries.
            transport = f"place = co_located, order = {order}"
            self._refuse_transport("all_gather", transport, "tickets follow arrival", "order")
        return dict(route=route, via=via, side=side, place=place, order=order)

    def reduce(self, algorithm: str | None, kernel: bool = False) -> dict:
        """route, via, side, place, order, reduce of a reduce-scatter or the first half of an all-reduce. `kernel`: the
        addends are made by a user's kernel, which stores to this rank's own memory."""
        kind = self.value.kind
        route = self.pick("route", "swizzle", "spreads the ranks' writes over different peers")
        via = self.pick("via", "ldst", "tiles store straight to the owner")
        default = Place("own_sms", 16) if route == "ring" else Place("co_located")
        place = self.pick("place", default, "the tile that made it stores it", f"{default.kind}")
        pull = kernel and route != "ring"
        why = "a user's kernel stores to its own rank's memory" if pull else "the store is the transfer"
        side = self.pick("side", "pull" if pull else "push", why)
        order = self.pick("order", "arrival", "what travels first is computed first")
        reduce = self.pick("reduce", "fixed", "the same sum on every run")
        self.legal(kind, REDUCE_LEGAL, via, route, side, place)
        if side == "pull" and place.kind == "own_sms":
            self._refuse_transport(kind, "side = pull, place = own_sms", "the reduce launch itself reads the partials")
        if kernel and (side == "push") != (route == "ring" and place.kind == "own_sms"):
            why = "a user's kernel stores to its own rank's memory: side = pull, or a ring with own_sms"
            self._refuse_transport(kind, f"route = {route}, side = {side}, place = {place.kind}", why, "side")
        if algorithm == "one_shot" and (place.kind == "own_sms" or route == "ring"):
            self._refuse_transport(kind, "algorithm = one_shot", "every tile goes to every rank: co_located, no ring")
        if route == "ring" and place.kind == "co_located" and order != "arrival":
            self._refuse_transport(kind, f"order = {order}", "a co-located ring forwards in the order it computes")
        if order == "interleaved":
            self._interleaved(kind, place, algorithm, kernel)
        if reduce == "rank_order" and route == "ring":
            self.refuse(rank_order_ring(self.span("reduce")))
        return dict(route=route, via=via, side=side, place=place, order=order, reduce=reduce)

    def _interleaved(self, kind: str, place: Place, algorithm: str | None, kernel: bool) -> None:
        if place.kind == "own_sms":
            transport = "place = own_sms, order = interleaved"
            self._refuse_transport(kind, transport, "programs carry shard by shard", "order")
        if algorithm == "one_shot":
            why = "every tile goes to every rank: there are no shards"
            self._refuse_transport(kind, "algorithm = one_shot, order = interleaved", why, "order")
        if kernel:
            self._refuse_transport(kind, "order = interleaved", "a user's kernel has an order of its own", "order")

    def chunk_rows(self, row_bytes: int, library: bool = False) -> ChunkRows | ChunkCount:
        """Chunk as rows or as a count for each shard. `row_bytes`: bytes of a row as it travels, at its bound.
        `library`: a call of the library for each chunk."""
        rule = (ChunkBytes(4 * MIB), "few, large chunks: each flag costs microseconds", "4 MiB")
        if library:
            rule = (ChunkCount(1), "small products leave multiprocessors idle", "1 per shard")
        chunk = self.pick("chunk", *rule)
        if isinstance(chunk, ChunkBytes):
            return ChunkRows(max(1, chunk.count // max(1, row_bytes)), "")
        return chunk

    def buffers(self, total_bytes: int, copy_engine: bool) -> int:
        """Copies of the communication buffer across calls."""
        if copy_engine:
            if self.policy.buffers not in (None, 1):
                self.refuse(copy_engine_buffers(self.span("buffers")))
            if self.policy.buffers is None:  # nothing to choose, also where other steps of a plan leave the choice
                why = "copy engines need fixed addresses; the call ends with a barrier"
                self.record.append(Choice(self.where, "buffers", "1", why))
            return 1
        most = crossover("buffers")
        small = total_bytes <= most
        why = "a second buffer is cheaper than a barrier" if small else f"above {most // MIB} MiB a barrier is cheaper"
        return self.pick("buffers", 2 if small else 1, why)

    def legal(self, kind: str, table: dict, via: str, route: str, side: str, place: Place | None) -> None:
        if via not in table:
            why = "copy engines neither wait for tiles nor add"
            if via != "copy_engine":
                why = "its blocks begin at any column, and a descriptor at multiples of 16 bytes"
            return self._refuse_transport(kind, f"via = {via}", why, "via")
        places, routes, sides = table[via]
        if route not in routes:
            why = "a ring forwards what arrived, and copy engines do not wait"
            return self._refuse_transport(kind, f"route = {route}, via = {via}", why, "route")
        if (place.kind if place else None) not in places:
            why = "a copy engine runs beside the multiprocessors" if via == "copy_engine" else "it needs a place"
            return self._refuse_transport(kind, f"via = {via}, place", why, "place")
        if side not in sides or (route == "ring" and side == "pull"):
            why = "a ring forwards" if route == "ring" else "only stores carry a descriptor to a peer"
            return self._refuse_transport(kind, f"route = {route}, via = {via}, side = {side}", why, "side")

    def refuse_transport(self, transport: str, why: str, key: str, span: Span | None = None) -> None:
        """The same for a collective whose transports are not in this file's tables. `span`: instead of the key's."""
        self._refuse_transport(self.value.kind, transport, why, key, span)

    def _refuse_transport(
        self, kind: str, transport: str, why: str, key: str = "via", span: Span | None = None
    ) -> None:
        legal = "see the table of legal transports in the language reference"
        self.refuse(transport_not_legal(kind, transport, why, legal, span or self.span(key)))


def default_tile(dtype: str, accumulators: int) -> tuple[int, int, int]:
    if dtype == "f32":
        return (64, 64, 16) if accumulators == 1 else (64, 32, 16)  # no tensor cores: operands go through registers
    return (128, 256, 64) if accumulators == 1 else (128, 128, 64)


def rows_tiling() -> Tiling:
    """Tiles of launches without a product: 16 bytes a thread and some rows."""
    return Tiling(16, 256, 16, 4, 1, 32, 256)


def whole_rows_tiling(cols: int) -> Tiling:
    """The same where a tile needs whole rows of `cols` elements: 32 of them a thread, as in the tiles above."""
    bn = max(16, 1 << (cols - 1).bit_length())
    return Tiling(max(1, min(16, 4096 // bn)), bn, 16, max(4, min(16, bn // 1024)), 1, 32, 256)
