"""Faults of templates in bulk copies, roles of programs, addresses, and what a dead program still does."""

from __future__ import annotations

from mutant_faults import (
    ALWAYS_ALIVE,
    CARRY,
    EITHER,
    MOVES,
    PIECES,
    PRODUCT,
    SILENT,
    SIM,
    TICKETS,
    TILES,
    WAITS,
    Edit,
    Fault,
    in_template,
)

TEMPLATE = "template"
MOVE_SIGNAL = "    if ok != 0:\n        if arrive({{ m }}_counters + target * {{ m }}_chunk_cap + c, pieces):"

OWN = "if owner == rank:  # the caller has the own shard"

FAULTS = (
    Fault(
        "tiles of the own shard read the buffer",
        "gather_copy_push",
        "nobody puts it there",
        TEMPLATE,
        ("exact", "float64"),
        in_template(PRODUCT, OWN, OWN.replace("owner == rank", "owner == rank + W")),
    ),
    Fault(
        "tiles of other shards read the parameter",
        "gather_copy_push",
        "rows of another rank",
        TEMPLATE,
        EITHER,
        in_template(PRODUCT, OWN, OWN.replace("owner == rank", "owner != rank")),
    ),
    # ---- TMA
    Fault(
        "bulk store not awaited",
        "scatter_tma",
        "TMA store in flight at the release",
        TEMPLATE,
        SIM,
        in_template(PIECES, "target.store([0, col], result) bulk_wait(NVIDIA)", "target.store([0, col], result)"),
    ),
    Fault(
        "moved by TMA and not awaited",
        "gather_ring",
        "TMA store in flight at the release",
        TEMPLATE,
        SIM,
        in_template(CARRY, "load([0, col]))\n            bulk_wait(NVIDIA)\n", "load([0, col]))\n"),
    ),
    Fault(
        "no proxy fence in tiles",
        "gather_push",
        "TMA reads past the acquire",
        TEMPLATE,
        SIM,
        in_template(WAITS, "            proxy_fence(NVIDIA)", "            pass", 2),
    ),
    Fault(
        "no proxy fence in moves",
        "gather_ring",
        "TMA reads past the acquire",
        TEMPLATE,
        SIM,
        in_template(MOVES, "        proxy_fence(NVIDIA)", "        pass"),
    ),
    # ---- programs
    Fault(
        "tickets from the program id",
        "gather_ring",
        "static tiles: a program waits for one that is not resident",
        TEMPLATE,
        SIM,
        (
            Edit(
                "        ticket = take(tickets)\n        while",
                "        ticket = tl.program_id(0) + take(tickets) * 0\n        while",
                TICKETS,
            ),
            Edit("            ticket = take(tickets)\n", "            ticket += tl.num_programs(0)\n", TICKETS),
        ),
        run={"resident": 1},
    ),
    Fault(
        "movers come first",
        "scatter_hand_over",
        "those who wait for tiles take the only programs",
        TEMPLATE,
        SIM,
        in_template(TICKETS, "if (started < tl.num_programs(0) - MOVERS_LAST)", "if (started >= MOVERS_LAST)"),
        run={"resident": 1},
    ),
    Fault(
        "warm-up does the work",
        "scatter_push",
        "the launches of the construction are not idle",
        TEMPLATE,
        EITHER,
        in_template(PIECES, " * active:", ":", 3),
        run={"slow": 1},
    ),
    # ---- the compiler's eyes
    Fault(
        "row offset in 32 bits",
        "large",
        "the address wraps past 2^31 elements",
        TEMPLATE,
        ("lint",),
        in_template(PRODUCT, "left_row.to(tl.int64) * left_pitch", "left_row.to(tl.int32) * left_pitch"),
    ),
    Fault(
        "alignment of a peer's pointer lost",
        "large",
        "16-byte accesses shrink",
        TEMPLATE,
        ("lint",),
        in_template(
            MOVES,
            "destination = tl.multiple_of(tl.load({{ m }}_table + peer).to(tl.pointer_type({{ dtype }})), 16)",
            "destination = tl.load({{ m }}_table + peer).to(tl.pointer_type({{ dtype }}))",
        ),
    ),
    # ---- timeouts; flags are withheld twice, by `ok` and by the dead word
    Fault(
        "sums are sent on after their wait ran out",
        "two_shot",
        "a dead program publishes",
        TEMPLATE,
        ("timeout",),
        in_template(TILES, "    if FUSED:\n        if ok != 0:", "    if FUSED:\n        if ok >= 0:") + ALWAYS_ALIVE,
        run=SILENT,
    ),
    Fault(
        "ring forwards after its wait ran out",
        "scatter_ring",
        "a dead program publishes",
        TEMPLATE,
        ("timeout",),
        in_template(MOVES, MOVE_SIGNAL, MOVE_SIGNAL.replace("ok != 0", "ok >= 0")) + ALWAYS_ALIVE,
        run=SILENT,
    ),
)
