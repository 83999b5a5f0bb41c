"""Faults of sums that tiles of a product make (`add = in_tiles`): what they wait for, add up and tell."""

from __future__ import annotations

from mutant_faults import ALWAYS_ALIVE, EITHER, SILENT, SIM, TILES, Edit, Fault, in_template

TEMPLATE, ADD, OWN = "template", "_add.py.jinja", "_own_tile.py.jinja"
HEARD = "    for source in range(W):\n        if source != rank:\n"
VALUES = ("exact", "float64")
ADDS = "                if ok != 0:\n{% for half in range(2) %}\n"
EARLY = """                if ok != 0:
{% with who = "program" %}
{% filter indent(8, true) %}
{% include "_signal.py.jinja" %}
{% endfilter %}
{% endwith %}
{% for half in range(2) %}
"""

FAULTS = (
    Fault(
        "own tiles do not wait",
        "scatter_in_tiles",
        "adds what has not arrived",
        TEMPLATE,
        SIM,
        in_template(ADD, HEARD, HEARD.replace("source != rank", "source < 0")),
    ),
    Fault(
        "own tiles wait for one rank too few",
        "scatter_in_tiles",
        "adds what has not arrived from rank 0",
        TEMPLATE,
        SIM,
        in_template(ADD, HEARD, HEARD.replace("range(W)", "range(1, W)")),
    ),
    Fault(
        "own tiles without rows do not wait",
        "reduce_in_tiles",
        "runs ahead of the buffers of the others",
        TEMPLATE,
        EITHER,
        in_template(OWN, "    elif FUSED:\n        if owner == rank:", "    elif FUSED:\n        if owner < 0:"),
        run={"calls": (40, 2, 40)},
    ),
    Fault(
        "own tiles forget that their wait ran out",
        "reduce_in_tiles",
        "a dead rank publishes sums",
        TEMPLATE,
        ("timeout",),
        (Edit("                ok = {{ awaited()", "                {{ awaited()", OWN), *ALWAYS_ALIVE),
        run=SILENT,
    ),
    Fault(
        "own addend left out",
        "scatter_in_tiles",
        "sum of the others alone",
        TEMPLATE,
        VALUES,
        in_template(ADD, "tl.where(source == rank, own, part)", "part"),
    ),
    Fault(
        "own addend twice",
        "reduce_in_tiles",
        "added for another rank too",
        TEMPLATE,
        VALUES,
        in_template(ADD, "tl.where(source == rank, own,", "tl.where((source == rank) | (source == 0), own,"),
    ),
    Fault(
        "addends of another buffer",
        "scatter_in_tiles",
        "the slot of the call before",
        TEMPLATE,
        (*SIM, *VALUES),
        in_template(ADD, "(slot * {{ held[parts", "((1 - slot) * {{ held[parts"),
    ),
    Fault(
        "sum told before it is stored",
        "reduce_in_tiles",
        "early signal",
        TEMPLATE,
        SIM,
        (
            Edit(ADDS, EARLY, OWN),
            Edit(
                "    if FUSED:\n        if ok != 0:\n",
                "    if FUSED:\n        if (ok != 0) & ((owner != rank) | (row >= height)):\n",
                TILES,
            ),
        ),
    ),
    Fault(
        "sum told to the owner alone",
        "reduce_in_tiles",
        "readers are never told",
        TEMPLATE,
        SIM,
        in_template("_signal.py.jinja", "many = tl.where(owner == rank, W, 1)", "many = tl.where(owner == rank, 1, 1)"),
    ),
)
