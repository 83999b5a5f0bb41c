"""Sums that the tiles of a product make (`add = in_tiles`): a rank computes the shards of the others first and sends
them as ever; a tile of its own shard, which comes last, keeps its addend, waits for those of the others, adds them up
in the order of ranks and stores the result where the launch that adds would have. Nothing is added behind the product,
and the own addends are neither stored nor read again.

No rank waits for a tile that comes behind one of its own shard, so nothing waits in a circle: `check` proves it.
"""

from __future__ import annotations

from chunkdsl.ir.layouts import CONTIGUOUS
from chunkdsl.plan.kinds import kind_of
from chunkdsl.plan.routes import SCATTER_ORDER
from chunkdsl.plan.schedule import Launch, OpSchedule

WHOLE_ROWS = ("rms_norm", "rms_norm_grad")


def sum_within(op: OpSchedule, launch: Launch) -> Launch | None:
    """The launch whose rows the own tiles of this one make, if there is one."""
    return next((n for n in op.launches if n.within == launch.name), None)


def why_not_within(product: Launch, total: Launch) -> str:
    """Why the tiles of `product` cannot make the rows of `total`, the launch that adds up what they send; "" if they
    can."""
    n, d = product, product.destination
    if kind_of(n) != "product":
        return "the addends are no product of emitted tiles over whole rows"
    if d.kind != "push" or d.everyone or total.sums.ring or total.sums.routing:
        return "only tiles that are pushed to the shard's owner leave the own ones to be added up"
    if n.moves or n.staging or n.chunk_flags:
        return "its tiles wait for what arrives for the product as well"
    if n.layout != CONTIGUOUS:
        return "the rows of a tile lie apart"
    if n.interleaved or n.walk not in SCATTER_ORDER.values():
        return "the own shard does not come last"
    if any(i.op in WHOLE_ROWS for i in total.epilogue):
        return "the rest of the statement needs whole rows"
    return ""
