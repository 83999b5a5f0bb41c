"""Faults of templates in waits and signals: the schedule is proven, the kernel waits or tells otherwise."""

from __future__ import annotations

from mutant_faults import EITHER, LOG, MOVES, PIECES, PRODUCT, SIGNAL, SIM, TILES, Edit, Fault, in_template

TEMPLATE = "template"
WAIT_LOOP = "for c in range(row // {{ chunk }}, last // {{ chunk }} + 1):"
SIGNAL_LOOP = '"row // out_chunk, last // out_chunk + 1"'
FLAGS = '{{ arrived | default("words_of(out_arrived, " ~ view.holder ~ ")") }}'
MOVE_SIGNAL = "    if ok != 0:\n        if arrive({{ m }}_counters + target * {{ m }}_chunk_cap + c, pieces):"

FAULTS = (
    # ---- waits
    Fault(
        "tiles do not wait",
        "gather_push",
        "missing wait",
        TEMPLATE,
        SIM,
        in_template(PIECES, "{{ flags }} + word, epoch,", "state, epoch,"),
    ),
    Fault(
        "wait misses the last chunk",
        "gather_push",
        "chunk off by one",
        TEMPLATE,
        SIM,
        in_template(PIECES, WAIT_LOOP, "for c in range(row // {{ chunk }}, last // {{ chunk }}):"),
    ),
    Fault(
        "wait for the chunk before",
        "gather_copy_push",
        "chunk off by one",
        TEMPLATE,
        SIM,
        in_template(
            PIECES, "word = {{ place }} * {{ cap }} + c", "word = {{ place }} * {{ cap }} + tl.maximum(c - 1, 0)"
        ),
    ),
    Fault(
        "wait for every chunk before it too",
        "scatter_long",
        "waits for more than it reads: no overlap",
        TEMPLATE,
        LOG,
        in_template(PIECES, WAIT_LOOP, "for c in range(0, last // {{ chunk }} + 1):"),
        run={"calls": (90,)},
    ),
    Fault(
        "wait inside the K loop",
        "large",
        "the pipeliner hoists loads above it",
        TEMPLATE,
        ("lint",),
        (
            Edit("{{ flags }} + word, epoch,", "state, epoch,", PIECES),
            Edit(
                "                left = {{ left }}.load(",
                "                if k % 256 == 0:\n"
                "                    wait_flag({{ launch.chunk_flags }} + owner * chunk_cap + k // 256, epoch, 0, 0,"
                " state, state_peers, record, limit, W, NVIDIA)\n                left = {{ left }}.load(",
                PRODUCT,
            ),
        ),
    ),
    Fault(
        "ring forwards without waiting",
        "gather_ring",
        "forwards what has not arrived",
        TEMPLATE,
        SIM,
        in_template(MOVES, "    if step > 0:\n        ok = ok &", "    if step > W:\n        ok = ok &"),
    ),
    Fault(
        "moves do not wait for their tiles",
        "scatter_hand_over",
        "hand-over without its done flag",
        TEMPLATE,
        SIM,
        in_template(MOVES, "{{ m }}_done + word, epoch,", "state, epoch,"),
    ),
    Fault(
        "moves do not wait for the peer's staging",
        "gather_pull",
        "ready flag not awaited",
        TEMPLATE,
        SIM,
        in_template(MOVES, "{{ m }}_ready + peer, epoch,", "state, epoch,"),
    ),
    Fault(
        "moves wait for their own staging",
        "gather_pull",
        "wait for the wrong rank",
        TEMPLATE,
        EITHER,
        in_template(MOVES, "{{ m }}_ready + peer, epoch", "{{ m }}_ready + rank, epoch"),
    ),
    # ---- signals
    Fault(
        "chunk signalled before it is stored",
        "gather_push",
        "early signal",
        TEMPLATE,
        SIM,
        (
            Edit(MOVE_SIGNAL, "    if ok != 0:\n        if first < 0:", MOVES),
            Edit(
                "    if (first < end) & (ok != 0):\n{{ carry",
                MOVE_SIGNAL + '\n            set_flag({{ p.flag_at(m ~ "_arrived_peers",'
                ' "peer", "word") }}, epoch, state)\n    if first < end:\n{{ carry',
                MOVES,
            ),
        ),
    ),
    Fault(
        "chunk signalled by its last column",
        "scatter_push",
        "signalled by its last tile, not when all are done",
        TEMPLATE,
        SIM,
        in_template(SIGNAL, "if {{ view.counted[who] }}:", "if column == columns - 1:"),
    ),
    Fault(
        "counter expects one tile",
        "scatter_push",
        "a chunk of several tiles is signalled by each",
        TEMPLATE,
        SIM,
        in_template(
            SIGNAL,
            "tiles_of_chunk = (final // {{ view.tile_rows }} - c * out_chunk // {{ view.tile_rows }} + 1) * columns",
            "tiles_of_chunk = final * 0 + 1",
        ),
    ),
    Fault(
        "counter expects whole tiles",
        "scatter_long",
        "a tile of two chunks is counted for one",
        TEMPLATE,
        ("simulator", "conformance"),
        in_template(
            SIGNAL,
            "final // {{ view.tile_rows }} - c * out_chunk // {{ view.tile_rows }} + 1",
            "tl.cdiv(out_chunk, BM)",
        ),
        run={"calls": (90,)},
    ),
    Fault(
        "last chunk is not signalled",
        "scatter_push",
        "chunk off by one",
        TEMPLATE,
        SIM,
        in_template(SIGNAL, SIGNAL_LOOP, '"row // out_chunk, last // out_chunk"'),
    ),
    Fault(
        "empty tiles signal nobody",
        "scatter_push",
        "an empty shard's chunks are never signalled",
        TEMPLATE,
        SIM,
        in_template(
            TILES, "    if FUSED:\n        if ok != 0:", "    if FUSED:\n        if (ok != 0) & (row < height):"
        ),
    ),
    Fault(
        "empty chunks are not forwarded",
        "gather_ring",
        "an empty call signals nobody",
        TEMPLATE,
        SIM,
        in_template(MOVES, MOVE_SIGNAL, MOVE_SIGNAL.replace("if ok != 0:", "if (ok != 0) & (first < end):")),
    ),
    Fault(
        "signal goes to the next rank",
        "scatter_push",
        "wrong owner of the flag",
        TEMPLATE,
        EITHER,
        in_template(SIGNAL, f"{FLAGS} + rank *", "words_of(out_arrived, (owner + 1) % W) + rank *"),
    ),
    Fault(
        "signal in the reader's name",
        "scatter_push",
        "wrong word: the reader's number for the writer's",
        TEMPLATE,
        EITHER,
        in_template(SIGNAL, f"{FLAGS} + rank *", f"{FLAGS} + owner *"),
    ),
    Fault(
        "all-reduce leaves out one reader",
        "two_shot",
        "a rank is never told",
        TEMPLATE,
        SIM,
        in_template(SIGNAL, "for step in range(W):", "for step in range(W - 1):"),
    ),
    Fault(
        "tiles of a hand-over signal nobody",
        "scatter_ring",
        "done flag missing",
        TEMPLATE,
        SIM,
        in_template(
            SIGNAL,
            "set_flag(out_done + owner * out_chunk_cap + c, epoch,",
            "set_flag(out_done + owner * out_chunk_cap + c, 0,",
        ),
    ),
)
