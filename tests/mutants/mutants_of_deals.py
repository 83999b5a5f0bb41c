"""Faults of all_to_all: blocks, columns, sources, chunks, signals, staging, and the order of tickets."""

from __future__ import annotations

from mutant_faults import EITHER, PLACE, SIGNAL, SIM, STORE, WAITS, Fault, in_module, in_template, launches, moves
from mutants_of_plans import no_barrier
from mutants_of_schedules import PROOF, SCHEDULE, products, staging

from chunkdsl.ir.policy import ChunkRows
from chunkdsl.plan.routes import Walk

TEMPLATE, HELPER, WRAPPER = "template", "helper", "wrapper"
HOPS = "_deal_hops.py.jinja"
MOVE, HOST, BY_CHUNK = "_deal.py.jinja", "_deal_host.py.jinja", "_tickets_by_chunk.py.jinja"
ANY = ("proof", "simulator", "conformance", "exact", "float64")
VALUES = ("exact", "float64")
WAIT = '{{ p.wait_chunks(launch.chunk_flags, "source", view.site) | indent(8, true) | trim("\\n") }}'


FAULTS = (
    # ---- schedules, which the proof must refuse
    Fault(
        "tiles wait for their owner alone", "deal_push", "a source's block is not awaited", SCHEDULE, PROOF,
        change=launches(lambda n: n.from_every, from_every=False),
    ),
    Fault(
        "a peer is never served", "deal_push", "lost block", SCHEDULE, PROOF, change=moves(walk=Walk.UP),
    ),
    Fault(
        "nothing is staged for the others", "deal_pull", "a block is read before it is written", SCHEDULE, PROOF,
        change=launches(lambda n: n.staging, staging=staging(sent=None)),
    ),
    Fault(
        "columns are visited twice", "deal_store_columns", "lost block", SCHEDULE, PROOF,
        change=launches(products, space="own"),
    ),
    Fault(
        "chunks of another size are awaited", "deal_store_rows", "chunk off by one", SCHEDULE, PROOF,
        change=launches(lambda n: n.from_every, chunk=ChunkRows(16, "M")),
    ),
    # ---- moves
    Fault(
        "wrong column block at the target", "deal_push", "a block lies where another belongs", TEMPLATE, ANY,
        in_template(MOVE, "pitch + giver * each", "pitch + taker * each"),
    ),
    Fault(
        "wrong column block of the source", "deal_pull_columns", "a peer's columns go to another", TEMPLATE, ANY,
        in_template(MOVE, 'if onto_rows else " + taker * each" }}', 'if onto_rows else " + giver * each" }}'),
    ),
    Fault(
        "rows of the wrong shard", "deal_push", "a peer gets another's rows", TEMPLATE, ANY,
        in_template(MOVE, "(taker * shard + first) * source_pitch", "(giver * shard + first) * source_pitch"),
    ),
    Fault(
        "a row short", "deal_push", "chunk off by one", TEMPLATE, EITHER + VALUES,
        in_template(MOVE, "tl.minimum(first + PIECE, (c + 1)", "tl.minimum(first + PIECE - 1, (c + 1)"),
    ),
    Fault(
        "last columns left out", "deal_ragged", "the last block is narrower", TEMPLATE, EITHER + VALUES,
        in_template(MOVE, "tl.minimum(total - ", "tl.minimum(total - 1 - "),
    ),
    Fault(
        "signals the next chunk", "deal_push", "chunk off by one", TEMPLATE, EITHER,
        in_template(MOVE, '"rank * " ~ m ~ "_chunk_cap + c"', '"rank * " ~ m ~ "_chunk_cap + c + 1"'),
    ),
    Fault(
        "signals in the place of the peer", "deal_push", "wrong word", TEMPLATE, EITHER,
        in_template(MOVE, '"rank * " ~ m', '"peer * " ~ m'),
    ),
    Fault(
        "reads before the peer has staged", "deal_pull", "no wait before the read", TEMPLATE, EITHER,
        in_template(MOVE, "{% if moves.ready %}", "{% if moves.ready and not moves.ready %}"),
        run={"slow": 0},
    ),
    # ---- tiles
    Fault(
        "waits for its own rank's word", "deal_push", "wrong source wait", TEMPLATE, EITHER,
        in_template(WAITS, WAIT, WAIT.replace('"source"', '"rank"')),
    ),
    Fault(
        "does not wait for the last source", "deal_push", "wrong source wait", TEMPLATE, EITHER,
        in_template(WAITS, "        for source in range(W):\n{% if view.own_is_staged %}",
                    "        for source in range(W - 1):\n{% if view.own_is_staged %}"),
    ),
    Fault(
        "stores at the peer's columns", "deal_store_rows", "wrong column block", TEMPLATE, ANY,
        in_template(STORE, "* pitch + rank.to(tl.int64) * each)", "* pitch + owner * each)"),
    ),
    Fault(
        "stores at global columns", "deal_store_columns", "wrong column block", TEMPLATE, ANY,
        in_template(STORE, "* pitch - peer * each)", "* pitch)"),
    ),
    Fault(
        "no signal to the peer", "deal_store_columns", "missing signal", TEMPLATE, SIM,
        in_template(SIGNAL, '"words_of(out_arrived, " ~ view.holder ~ ")"', '"words_of(out_arrived, rank)"'),
    ),
    Fault(
        "counts tiles of all columns", "deal_store_columns", "missing signal", TEMPLATE, SIM,
        in_template(PLACE, "columns = tl.maximum(tl.cdiv(each, BN), 1)", "columns = tl.maximum(tl.cdiv(n, BN), 1)"),
    ),
    # ---- along a plan
    Fault(
        "takes a block before its tiles are done", "plan_deal", "no wait for what is handed over", TEMPLATE, EITHER,
        in_template(HOPS, "epoch, {{ view.sites[moves.done] }}", "0, {{ view.sites[moves.done] }}"),
    ),
    Fault(
        "sends on what has not come", "plan_deal", "no wait before forwarding", TEMPLATE, EITHER,
        in_template(HOPS, "if exists & (here >= W):", "if exists & (here >= 2 * W):"),
    ),
    Fault(
        "hands over in the other slot", "plan_deal", "wrong slot", TEMPLATE, ANY,
        in_template(STORE, '"slot * out_held + " if view', '"(1 - slot) * out_held + " if view'),
    ),
    Fault(
        "one buffer of what is handed over", "plan_deal", "reuse", SCHEDULE, PROOF,
        change=no_barrier,
    ),
    Fault(
        "fetches a block before it is staged", "plan_fetch", "no wait for staging", TEMPLATE, EITHER,
        in_template(HOPS, "if (here < W) & (holder != rank):", "if (here < 0) & (holder != rank):"),
        run={"slow": 0},
    ),
    Fault(
        "fetches from its own copy", "plan_fetch", "wrong source", TEMPLATE, EITHER + VALUES,
        in_template(HOPS, "lies = tl.load({{ m }}_source + holder)", "lies = tl.load({{ m }}_source + reader)"),
    ),
    # ---- tickets, staging, copies
    Fault(
        "tiles of a chunk come before its moves", "deal_mixed", "a ticket waits for a later one", TEMPLATE, SIM,
        in_template(BY_CHUNK, "c * moves + within,", "(chunks - 1 - c) * moves + within,"),
        run={"resident": 1, "calls": (90, 2)},
    ),
    Fault(
        "blocks of the last chunk are lost", "deal_mixed", "lost tiles", TEMPLATE, EITHER + VALUES,
        in_template(BY_CHUNK, "tl.where(c == chunks - 1, blocks, (c + 1) * chunk // BM)", "(c + 1) * chunk // BM"),
        run={"calls": (90, 2)},
    ),
    Fault(
        "staged in the next rank's place", "deal_push", "wrong column block", WRAPPER, ANY,
        in_template(HOST, "(rank * shard, 0, 0, rank * each, height, width)", "(rank * shard, 0, 0, 0, height, width)"),
    ),
    Fault(
        "staged into the other slot", "deal_push", "wrong slot", HELPER, EITHER,
        in_module("there = buffer + (slot * cap + to_row)", "there = buffer + ((1 - slot) * cap + to_row)"),
    ),
    Fault(
        "the copy engine takes whole rows", "deal_copied", "a block over its neighbour", WRAPPER, EITHER,
        in_template(HOST, "source_pitch, width * item, end - first", "source_pitch, pitch, end - first"),
    ),
    Fault(
        "the copy engine signals first", "deal_copied", "a flag before its data", WRAPPER, EITHER,
        in_template(HOST, "word = 4 * (giver * chunk_cap + c)", "word = 4 * (giver * chunk_cap + max(0, c - 1))"),
    ),
    Fault(
        "exact takes its own columns of all", "deal_store_columns", "baseline", WRAPPER, VALUES,
        in_module("part[:, :, :width] = every[:, :, rank * each : rank * each + width]",
                  "part[:, :, :width] = every[:, :, :width]"),
    ),
)  # fmt: skip

