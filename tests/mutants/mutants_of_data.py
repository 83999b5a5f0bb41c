"""Faults of templates in places and sums: the schedule is proven, the kernel moves or adds something else."""

from __future__ import annotations

from mutant_faults import (
    CARRY,
    EITHER,
    EPILOGUE,
    LOG,
    MOVES,
    SIM,
    STORE,
    SUM,
    TICKETS,
    TILES,
    Fault,
    in_template,
)

TEMPLATE = "template"

FAULTS = (
    # ---- where data goes
    Fault(
        "pushed into the other slot",
        "scatter_push",
        "wrong slot",
        TEMPLATE,
        EITHER,
        in_template(
            STORE,
            "place = slot * out_cap + rank.to(tl.int64) * stride + row",
            "place = (1 - slot) * out_cap + rank.to(tl.int64) * stride + row",
        ),
    ),
    Fault(
        "always the first slot",
        "scatter_push",
        "two buffers of which one is used",
        TEMPLATE,
        EITHER,
        in_template("_place.py.jinja", "slot = slot_of(epoch, SLOTS)", "slot = slot_of(epoch, 1)"),
    ),
    Fault(
        "pushed to the next rank",
        "scatter_push",
        "wrong owner of the data",
        TEMPLATE,
        EITHER,
        in_template(STORE, "base = tl.load(out + owner)", "base = tl.load(out + (owner + 1) % W)"),
    ),
    Fault(
        "pushed into the owner's place",
        "scatter_tma",
        "every rank's addend in one place",
        TEMPLATE,
        EITHER,
        in_template(
            STORE,
            "place = slot * out_cap + rank.to(tl.int64) * stride + row",
            "place = slot * out_cap + owner * stride + row",
        ),
    ),
    Fault(
        "chunk one row short",
        "gather_push",
        "chunk off by one",
        TEMPLATE,
        LOG,
        in_template(MOVES, "(c + 1) * {{ m }}_chunk), height)", "(c + 1) * {{ m }}_chunk - 1), height)"),
    ),
    Fault(
        "only the first column piece is carried",
        "gather_push",
        "columns lost",
        TEMPLATE,
        LOG,
        in_template(
            CARRY,
            "for col in range(0, {{ m }}_n, PIECE_COLS):",
            "for col in range(0, tl.minimum({{ m }}_n, PIECE_COLS), PIECE_COLS):",
            times=2,
        ),
    ),
    Fault(
        "carried past the shard's end",
        "gather_push",
        "ragged edge not clamped",
        TEMPLATE,
        EITHER,
        in_template(MOVES, "(c + 1) * {{ m }}_chunk), height)", "(c + 1) * {{ m }}_chunk), shard)"),
    ),
    Fault(
        "no row mask",
        "gather_push",
        "a ragged tile writes into the next shard",
        TEMPLATE,
        SIM,
        in_template(TILES, "    live = down < height - row\n    mask", "    live = down < height - row + BM\n    mask"),
    ),
    Fault(
        "no column mask",
        "scatter_push",
        "a ragged tile writes into the next row",
        TEMPLATE,
        SIM,
        in_template(
            TILES,
            "    mask = live[:, None] & (cols[None, :] < width)\n{% include \"_epilogue",
            "    mask = live[:, None] & (cols[None, :] < width + BN)\n{% include \"_epilogue",
        ),
    ),
    Fault(
        "last column block is not computed",
        "scatter_push",
        "columns of the output unwritten",
        TEMPLATE,
        ("float64", "simulator", "conformance"),
        in_template(
            TICKETS,
            'tl.maximum(tl.cdiv({{ "out_each" if launch.space == "columns" else view.across }}, BN), 1)',
            "tl.maximum(n // BN, 1)",
        ),
    ),
    # ---- sums
    Fault(
        "last addend lost",
        "scatter_push",
        "lost addend, in `exact` too",
        TEMPLATE,
        ("float64",),
        in_template(SUM, "        for source in tl.range(0, W, loop", "        for source in tl.range(0, W - 1, loop"),
    ),
    Fault(
        "first addend doubled",
        "scatter_push",
        "doubled addend, in `exact` too",
        TEMPLATE,
        ("float64",),
        in_template(
            SUM, "total += part.to(tl.float32)", "total += part.to(tl.float32) * tl.where(source == 0, 2.0, 1.0)"
        ),
    ),
    Fault(
        "partial sums of one rank",
        "scatter_pull",
        "every addend is read from this rank",
        TEMPLATE,
        EITHER,
        in_template(SUM, "base = tl.load({{ parts }} + source)", "base = tl.load({{ parts }} + rank + source * 0)"),
    ),
    Fault(
        "added in another order on each rank",
        "scatter_f32",
        "the sum starts with the rank's own addend",
        TEMPLATE,
        ("exact",),
        in_template(
            SUM,
            "part_from = slot * {{ parts }}_cap + source.to(tl.int64) * stride",
            "part_from = slot * {{ parts }}_cap + (source + (rank if FUSED else 0)) % W * stride.to(tl.int64)",
        ),
        run={"integers": False},
    ),
    Fault(
        "not rounded at each hop",
        "scatter_ring",
        "the wire's rounding is left out of `exact`",
        TEMPLATE,
        ("exact",),
        in_template(SUM, "total = total.to({{ wire }}).to(tl.float32) + part", "total = total + part"),
        run={"integers": False},
    ),
    Fault(
        "ring sends its own addend on",
        "scatter_ring",
        "running sum dropped",
        TEMPLATE,
        ("conformance", "float64"),
        in_template(
            CARRY,
            "value = (running.to(tl.float32) + value.to(tl.float32))",
            "value = (running.to(tl.float32) * 0.0 + value.to(tl.float32))",
        ),
    ),
    Fault(
        "bias of the first columns",
        "two_shot",
        "the column block is forgotten",
        TEMPLATE,
        ("float64",),
        in_template(
            EPILOGUE,
            "tl.load({{ operand.name }} + cols, mask=cols < width",
            "tl.load({{ operand.name }} + cols - col, mask=cols < width",
        ),
    ),
)
