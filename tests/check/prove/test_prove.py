"""Good plans are proven for worlds 1 to 8, and every mutant is refuted with its code."""

from __future__ import annotations

from dataclasses import replace

import pytest
from proof_plans import (
    ROWS,
    direct_gather,
    drop_signal,
    drop_wait,
    find,
    gemm_rs,
    one_shot,
    ring_gather,
    rows,
    tp_mlp,
    with_access,
    with_task,
)

from chunkdsl.check.prove import prove
from chunkdsl.plan.plan import Access, Act

GOOD = {
    "one shot, two buffers": lambda w: one_shot(w),
    "one shot, two buffers, blocks with their own flags": lambda w: one_shot(w, blocks=4),
    "one shot, one buffer, closing barrier": lambda w: one_shot(w, buffers=1, barrier="signals"),
    "one shot, one buffer, closing join": lambda w: one_shot(w, buffers=1, barrier="join"),
    "ring": lambda w: ring_gather(w),
    "ring, chunks on two lanes": lambda w: ring_gather(w, chunks=4, lanes=2),
    "ring, one buffer, closing barrier": lambda w: ring_gather(w, buffers=1, barrier=True),
    "push": lambda w: direct_gather(w, chunks=2),
    "pull with ready flags": lambda w: direct_gather(w, chunks=2, side="pull"),
    "copy engines push": lambda w: direct_gather(w, chunks=2, engines=2),
    "copy engines pull": lambda w: direct_gather(w, chunks=2, engines=3, side="pull"),
    "push, one buffer, closing barrier": lambda w: direct_gather(w, buffers=1, barrier=True),
    "gemm rs, chunks of many tiles": lambda w: gemm_rs(w, chunks=2, tiles=3),
    "gemm rs, tiles of a chunk as one task": lambda w: gemm_rs(w, chunks=2, tiles=3, merged=True),
    "gemm rs, one buffer, closing barrier": lambda w: gemm_rs(w, buffers=1, barrier=True),
    "gemm rs, full, empty, full, empty ranks signal": lambda w: gemm_rs(w, [w, 0, w]),
    "gemm rs, full, one rank with rows, full": lambda w: gemm_rs(w, [w, 1, w]),
    "gemm rs, silent empty ranks, never full": lambda w: gemm_rs(w, [0, 0, 0], empty_signals=False),
    "mlp": lambda w: tp_mlp(w, 2),
}


@pytest.mark.parametrize("world", (1, 2, 3, 5, 8))
@pytest.mark.parametrize("name", GOOD)
def test_good(name, world):
    assert [str(r) for r in prove(GOOD[name](world))] == []


def missing_wait():
    plan = gemm_rs(3)
    return drop_wait(plan, find(plan, "reduce chunk 0", 1, 2), 2)


def chunk_off_by_one():
    plan = ring_gather(3, chunks=2)
    t = find(plan, "send shard 0, chunk 0", 0, 0)
    return with_access(plan, t, 0, source=rows("all", 0, 0, 1))


def other_chunk():
    plan = direct_gather(3, chunks=2, engines=1)
    t = find(plan, "push shard 1, chunk 0 to rank 2", 1, 1)
    return with_access(plan, t, 0, source=rows("all", 1, 1, 3 * ROWS))


def other_content():
    plan = tp_mlp(2)
    t = find(plan, "down tiles for rank 1, chunk 0", 0, 0)
    first = plan.tasks[t].accesses[0]
    return with_access(plan, t, 0, what="x", region=first.region)


def wrong_slot():
    plan = ring_gather(3, calls=3)
    t = find(plan, "send shard 0, chunk 0", 0, 2)
    return with_access(plan, t, 0, source=rows("all", 0, 1, 0))


def fetched_twice():
    plan = gemm_rs(3)
    t = find(plan, "reduce chunk 0", 2, 0)
    accesses = plan.tasks[t].accesses
    return with_task(plan, t, accesses=(*accesses[:2], accesses[1], *accesses[2:]))


def two_ranks_wait_for_each_other():
    plan = direct_gather(2, calls=1)
    a, b = (find(plan, f"push shard {r}, chunk 0 to rank {1 - r}", r, 0) for r in (0, 1))
    given = [plan.tasks[t].signals[0] for t in (a, b)]
    plan = with_task(plan, a, waits=(*plan.tasks[a].waits, given[1]))
    return with_task(plan, b, waits=(*plan.tasks[b].waits, given[0]))


def output_twice():
    plan = gemm_rs(2, chunks=2)
    t = find(plan, "end", 0, 1)
    return with_task(plan, t, accesses=(Access(Act.PUT, rows("y", 0, 0, 0), None, "y", 3, (0, 0)),))


def no_ready_flag_for_engines():
    return direct_gather(3, engines=2, side="pull", ready=False)


def word_shared_by_two_chunks():
    plan = gemm_rs(2, chunks=2)
    signals = [replace(s, index=s.index // 2 * 2) for s in plan.signals]
    return replace(plan, signals=tuple(signals))


def calls_out_of_order():
    """Rank 0 gives the word of each call, nothing orders its calls."""
    plan = gemm_rs(1)
    loose = [tuple(a for a in t.after if plan.tasks[a].call == t.call) for t in plan.tasks]
    tasks = [replace(t, lane="tiles", after=after) for t, after in zip(plan.tasks, loose, strict=True)]
    return replace(plan, tasks=tuple(tasks))


MUTANTS = {
    "top flags dropped": (lambda: one_shot(2, calls=1, flags=False), {"CD302"}),
    "one buffer, no barrier": (lambda: one_shot(3, buffers=1), {"CD401"}),
    "ring, one buffer": (lambda: ring_gather(3, buffers=1), {"CD401"}),
    "ring, a forwarding wait missing": (lambda: ring_gather(3, skip=(1, 1)), {"CD302", "CD401"}),
    "gemm rs, one buffer": (lambda: gemm_rs(3, buffers=1), {"CD401"}),
    "chunk signalled by its last tile": (lambda: gemm_rs(3, [3], tiles=4, last_tile_only=True), {"CD302"}),
    "silent empty ranks between full calls": (lambda: gemm_rs(3, [3, 0, 3], empty_signals=False), {"CD401"}),
    "silent empty ranks, one row": (lambda: gemm_rs(3, [1, 1, 1], empty_signals=False), {"CD401"}),
    "reduce programs first": (lambda: gemm_rs(2, reduce_first=True), {"CD304"}),
    "missing wait": (missing_wait, {"CD302"}),
    "addend lost": (lambda: gemm_rs(3, lost={(1, 2)}), {"CD307"}),
    "addend doubled": (lambda: gemm_rs(3, twice={(1, 2)}), {"CD306"}),
    "addend doubled in one place": (fetched_twice, {"CD306"}),
    "tile off by one row": (lambda: gemm_rs(3, [3], shift=1), {"CD302", "CD305", "CD308"}),
    "wrong owner": (lambda: gemm_rs(3, [3], wrong_owner=True), {"CD302", "CD305"}),
    "chunk off by one row": (chunk_off_by_one, {"CD308", "CD302"}),
    "another chunk's data": (other_chunk, {"CD308"}),
    "another tensor": (other_content, {"CD309"}),
    "wrong slot": (wrong_slot, {"CD402"}),
    "slot of the next call": (lambda: one_shot(2, rank_slot=lambda e: (e + 1) % 2), {"CD305", "CD401", "CD402"}),
    "cyclic waits": (two_ranks_wait_for_each_other, {"CD303"}),
    "output written twice": (output_twice, {"CD310"}),
    "copy engines without an entry barrier": (no_ready_flag_for_engines, {"CD302", "CD401"}),
    "one word for two chunks": (word_shared_by_two_chunks, {"CD403"}),
    "calls that nothing orders": (calls_out_of_order, {"CD401", "CD403"}),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant(name):
    build, codes = MUTANTS[name]
    assert {r.code for r in prove(build())} == codes


def test_signal_that_no_task_gives_any_more():
    plan = gemm_rs(3)
    assert [r.code for r in prove(drop_signal(plan, find(plan, "tile 0 of chunk 0 for rank 1", 0, 0), 0))] == ["CD404"]


def test_serial_tiles_would_hide_the_early_signal():
    """The mutant above with its tiles taken as a serial lane: not a race. So the test of it looks at the lane."""
    plan = gemm_rs(3, tiles=4, last_tile_only=True)
    lanes = tuple(replace(lane, serial=True) for lane in plan.lanes)
    assert prove(replace(plan, lanes=lanes)) == []


def test_a_finding_stands_for_all_like_it():
    (found,) = prove(one_shot(4, buffers=1, calls=2))
    assert found.kind == "reuse"
    assert found.more == 4 * 3 - 1  # each rank may overwrite what each other still reads


def test_many_serial_lanes():
    """More lanes than get a clock: the answers stay the same."""
    assert prove(direct_gather(5, chunks=8, engines=40)) == []
    assert prove(direct_gather(5, chunks=8, engines=40, buffers=1)) == []  # the entry barrier is enough for a push
    plan = direct_gather(5, chunks=8, engines=40, buffers=1, side="pull")
    assert {r.code for r in prove(plan)} == {"CD401"}
