"""What `auto` becomes for an all_to_all, and its legal transports: of a tensor (chunks arrive, and the tiles that read
them wait) and of a product (the tiles that made them send them)."""

from __future__ import annotations

from chunkdsl.ir.policy import Place
from chunkdsl.lower.choices import Choices

# via: (places, routes, sides), as in `choices`
ARRIVAL_LEGAL = {
    "copy_engine": ((None,), ("direct", "swizzle"), ("push", "pull")),
    "ldst": (("own_sms", "co_located"), ("direct", "swizzle"), ("push", "pull")),
}
DEPARTURE_LEGAL = {"ldst": (("co_located",), ("direct", "swizzle"), ("push",))}


def settle_arrivals(settle: Choices, onto: str) -> dict:
    """route, via, side, place, order of the all_to_all of a tensor. `onto`: rows or columns, what gets sharded."""
    route = settle.pick("route", "swizzle", "spreads the ranks' transfers over different peers")
    via = settle.pick("via", "ldst" if settle.not_for_engines else "copy_engine",
                      "copy engines leave the multiprocessors to the tiles")
    side = settle.pick("side", "push", "nothing is staged for others to read, and no barrier comes first")
    place = settle.policy.place
    if via != "copy_engine":
        place = settle.pick("place", Place("own_sms", 16), "16 programs fill a link", "own_sms(16)")
    order = settle.pick("order", "arrival", "tiles start with what is there")
    settle.legal("all_to_all", ARRIVAL_LEGAL, via, route, side, place)
    if order == "local_first" and onto == "rows":
        settle.refuse_transport(f"order = {order}", "its tiles are of one shard, the rank's own", "order")
    if order != "arrival" and place and place.kind == "co_located":
        settle.refuse_transport(f"place = co_located, order = {order}", "tickets follow arrival", "order")
    return dict(route=route, via=via, side=side, place=place, order=order)


def settle_departures(settle: Choices) -> dict:
    """The same for the all_to_all of a product."""
    route = settle.pick("route", "swizzle", "spreads the ranks' writes over different peers")
    via = settle.pick("via", "ldst", "tiles store straight to the peer")
    place = settle.pick("place", Place("co_located"), "the tile that made it stores it", "co_located")
    side = settle.pick("side", "push", "the store is the transfer")
    order = settle.pick("order", "arrival", "what travels first is computed first")
    settle.legal("all_to_all", DEPARTURE_LEGAL, via, route, side, place)
    return dict(route=route, via=via, side=side, place=place, order=order)
