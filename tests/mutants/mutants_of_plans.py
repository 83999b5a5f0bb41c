"""Faults of what carries chunks along a plan: its kernel, its tables, the sum at its end, and the schedule."""

from __future__ import annotations

from dataclasses import replace

from mutant_faults import EITHER, HOPS, HOPS_SUMS, LOG, ROUTE_SUM, Fault, in_module, in_template

TEMPLATE, HELPER = "template", "helper"
NUMBERS = ("conformance", "exact", "float64")


def no_barrier(op):
    """One buffer instead of two, and no closing barrier."""
    return replace(op, slots=1, buffers=tuple(replace(b, slots=1) for b in op.buffers))


FAULTS = (
    Fault(
        "forwards what has not come",
        "plan_gather",
        "no wait before forwarding",
        TEMPLATE,
        EITHER,
        in_template(HOPS, "if content != holder:", "if content < 0:"),
    ),
    Fault(
        "waits for its own word, fetches from a peer",
        "plan_ring",
        "wait for the wrong rank's word",
        TEMPLATE,
        EITHER,
        in_template(HOPS, '"_arrived_peers", "holder", "word")', '"_arrived_peers", "rank", "word")'),
    ),
    Fault(
        "fetches before the peer has staged",
        "plan_gather",
        "no wait for staging",
        TEMPLATE,
        EITHER,
        in_template(HOPS, "if holder != rank:", "if holder < 0:"),
    ),
    Fault(
        "tells the peer, not the reader",
        "plan_gather",
        "signal at the wrong rank",
        TEMPLATE,
        EITHER,
        in_template(HOPS, '"_arrived_peers", "reader", "word")', '"_arrived_peers", "peer", "word")'),
    ),
    Fault(
        "carries the first part twice",
        "plan_gather",
        "a part left out",
        TEMPLATE,
        EITHER,
        in_template(HOPS, "c += tl.load(hop + 2) * {{ m }}_chunks", "c += tl.load(hop + 2) * 0"),
    ),
    Fault(
        "steps by one too few",
        "plan_ring",
        "the last shard does not travel",
        TEMPLATE,
        EITHER,
        in_template("_pieces.py.jinja", "{{ moves.name }}_each * {{ view.steps(moves) }} * active",
                    "{{ moves.name }}_each * ({{ view.steps(moves) }} - 1) * active"),
    ),
    Fault(
        "the peer of the step before",
        "plan_ring",
        "wrong shard by the formula",
        TEMPLATE,
        EITHER,
        in_template(HOPS, "content = ({{ form.shard.text() }})", 'content = ({{ form.shard.text("(step + 1)") }})'),
    ),
    Fault(
        "adds one arrival too few",
        "plan_scatter",
        "an addend lost on the way",
        TEMPLATE,
        NUMBERS,
        in_template(
            HOPS_SUMS,
            "for k in range(count):\n                arrival",
            "for k in range(count - 1):\n                arrival",
        ),
    ),
    Fault(
        "adds before the arrival",
        "plan_scatter",
        "no wait before adding",
        TEMPLATE,
        EITHER,
        in_template(HOPS_SUMS, "for k in range(count):\n            word =", "for k in range(0):\n            word ="),
    ),
    Fault(
        "sends before the tiles are done",
        "plan_scatter",
        "no wait for the own addend",
        TEMPLATE,
        EITHER,
        in_template(HOPS_SUMS, 'm ~ "_done + word" }}, epoch,', 'm ~ "_done + word" }}, 0,'),
    ),
    Fault(
        "arrives in another place",
        "plan_scatter",
        "two addends in one place",
        TEMPLATE,
        EITHER,
        in_template(HOPS_SUMS, "{{ m }}_cap + there * stride + first",
                    "{{ m }}_cap + (there + 1) % {{ m }}_places * stride + first"),
    ),
    Fault(
        "the sum begins at the first place",
        "plan_scatter",
        "adds another shard's addend",
        TEMPLATE,
        NUMBERS,
        in_template(ROUTE_SUM, "(arrival + k).to(tl.int64)", "(0 * arrival + k).to(tl.int64)"),
    ),
    Fault(
        "the sum does not wait",
        "plan_scatter",
        "no wait before the last addition",
        TEMPLATE,
        EITHER,
        in_template(ROUTE_SUM, "for k in range(count):\n{{ wait", "for k in range(0):\n{{ wait"),
    ),
    Fault(
        "takes the rows of another rank",
        "plan_gather",
        "wrong table",
        HELPER,
        EITHER,
        in_module("mine = flat[self.rank]", "mine = flat[self.rank - 1]"),
    ),
    Fault(
        "exact does not round what travels",
        "plan_scatter",
        "other bits than the fused sum",
        HELPER,
        ("exact",),
        in_module("total[holder, low:high].to(parts.dtype).float()", "total[holder, low:high]"),
        run={"integers": False},
    ),
    Fault(
        "fetches before the peer's tiles are done",
        "plan_exchange",
        "wait for the wrong rank's word",
        TEMPLATE,
        EITHER,
        in_template(HOPS_SUMS, '"_done_peers", "holder", "word")', '"_done_peers", "rank", "word")'),
    ),
    Fault(
        "fetches its own addend",
        "plan_exchange",
        "reads from the wrong rank",
        TEMPLATE,
        EITHER,
        in_template(HOPS_SUMS, "{{ m }}_source_table + holder", "{{ m }}_source_table + reader"),
    ),
    Fault(
        "goes on with what it has not sent",
        "plan_exchange",
        "other bits than its peer",
        TEMPLATE,
        ("exact",),
        in_template(ROUTE_SUM, "!= 0:  # it was sent", "> 1:  # it was sent"),
        run={"integers": False},
    ),
    Fault(
        "begins with its own addend where a sum came",
        "plan_given_back",
        "drops the addends of others",
        TEMPLATE,
        EITHER,
        in_template(HOPS_SUMS, "            if base < 0:\n", "            if base < W:\n"),
    ),
    Fault("one buffer without a barrier", "plan_gather", "reuse", "schedule", ("proof",), change=no_barrier),
    Fault(
        "chunks of the other half",
        "plan_gather",
        "a chunk off by one",
        TEMPLATE,
        LOG,
        in_template(HOPS, "(c + 1) * {{ m }}_chunk), height)", "(c + 1) * {{ m }}_chunk - 1), height)"),
    ),
)
