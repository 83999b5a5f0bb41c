"""The calls that a proof unrolls: how many, of which shapes, and that they find faults that equal calls hide."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkdsl.check import worlds
from chunkdsl.check.prove import prove
from chunkdsl.check.worlds import call_sequences, largest, prove_worlds
from chunkdsl.pipeline import check_source
from chunkdsl.plan.geometry import Geometry
from chunkdsl.plan.unroll import unroll
from chunkdsl.source import Source

SPEC = """mesh tp[2] over nvlink
dim M = %s
dim H = 64
dim F = 64
tensor x : bf16[M @ tp, H]
tensor w : bf16[F @ tp, H]
op f(x, w) -> y { y = all_gather(x) @ w.T with { tile = 16x16x16, via = ldst, %s } }
"""


def schedule(dim="1..4096", policy="chunk = 8 along M, buffers = 1"):
    checked = check_source(Source("t.chunk", SPEC % (dim, policy)))
    assert not checked.report.failed, checked.report.diagnostics
    return checked.schedule


def sequences(made, world):
    return [[c["M"] for c in calls] for calls in call_sequences(made, made.ops[0], world)]


def test_one_buffer():
    full = 4 * (3 * 8 + 1)  # three chunks and a ragged one on each of four ranks
    assert sequences(schedule(), 4) == [
        [full, full], [full, 1, full], [1, 1], [2, 2], [full - 1, 2, full - 1],
    ]  # fmt: skip


def test_two_buffers_mix_shapes_in_neighbouring_calls_and_in_calls_that_share_a_buffer():
    made = schedule("0..4096", "chunk = 8 along M, buffers = 2")
    assert sequences(made, 4) == [
        [100] * 3, [100, 0, 100], [100, 0, 0, 100], [0] * 3, [2] * 3, [99, 2, 2, 99],
    ]  # fmt: skip


def test_many_ranks_keep_the_largest_and_the_smallest_between():
    full = 64 * (2 * 8 + 1)
    assert sequences(schedule(), 64) == [[full, full], [full, 1, full]]


def test_one_rank_and_small_ranges():
    assert sequences(schedule("1..1"), 3) == [[1, 1]]
    assert sequences(schedule("5..6"), 2) == [[6, 6], [6, 5, 6], [5, 5], [5, 5, 5]]


def test_steps_are_kept():
    made = schedule("8..4096 step 8")
    assert all(m % 8 == 0 and m >= 8 for calls in sequences(made, 3) for m in calls)
    assert sequences(made, 3) == [[72, 72], [72, 8, 72], [8, 8], [64, 8, 64]]


def test_a_tile_of_many_chunks_gets_a_neighbour():
    """Chunks of 2 rows: a shard of a tile's 16 rows, a chunk more and a row."""
    made = schedule(policy="chunk = 2 along M, buffers = 1")
    assert largest(made.ops[0], 4096, 1, 2) == 2 * (16 + 2 + 1)
    shard = Geometry.of(38, False, 16, {}, 2)
    awaited = [list(chunks) for _, _, chunks, _ in shard.blocks(made.ops[0].launches[0])]
    assert awaited == [[*range(8)], [8, 9]]


def test_chunks_by_count_are_of_many_tiles_or_of_few_rows():
    """Where two hundred chunks a shard make too many transfers, shards are a tile and a row."""
    few, many = (schedule(policy=f"chunk = {n} per shard, buffers = 1") for n in (2, 200))
    assert largest(few.ops[0], 4096, 1, 2) == 2 * (3 * 16 + 1)
    assert largest(many.ops[0], 4096, 1, 2) == 2 * (3 * 16 + 1)
    assert largest(many.ops[0], 4096, 1, 8) == 8 * (16 + 1)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 40), st.integers(0, 100), st.integers(1, 9), st.integers(1, 20), st.sampled_from([1, 2]))
def test_every_call_is_one_that_the_range_allows(low, more, step, world, buffers):
    high = max(1, -(-low // step) * step) + more
    made = schedule(f"{low}..{high} step {step}", f"chunk = 8 along M, buffers = {buffers}")
    (dim,) = made.ranges
    found = sequences(made, world)
    stands_in = -(-low // step) * step > 25 * world  # for shapes larger than are proven
    assert all(dim.holds(m) or (stands_in and 0 < m < low) for calls in found for m in calls)
    assert all(len(calls) in (buffers + 1, buffers + 2) for calls in found) and len(found) <= 6
    assert found[0] == [max(m for calls in found for m in calls)] * (buffers + 1)


def test_a_range_that_begins_far_up_is_proven_at_smaller_shapes_of_the_same_kind():
    assert sequences(schedule("1000000..2000000"), 2) == [[50, 50], [49, 50, 49]]


# ---- why not equal calls alone


def without_signals_of_empty_chunks(plan):
    """The fault of a call that signals nobody for what it does not send."""
    silent = {s for t in plan.tasks if t.kind == "move" and not t.accesses for s in t.signals}
    kept = {old: new for new, old in enumerate(i for i in range(len(plan.signals)) if i not in silent)}
    tasks = tuple(
        replace(
            t,
            signals=tuple(kept[s] for s in t.signals if s in kept),
            waits=tuple(kept[s] for s in t.waits if s in kept),
        )
        for t in plan.tasks
    )
    return replace(plan, tasks=tasks, signals=tuple(plan.signals[i] for i in kept))


def test_an_empty_call_that_exchanges_no_signals_races_with_two_buffers_and_equal_calls_hide_it():
    made = schedule("0..64", "chunk = 16 along M, buffers = 2, side = push")
    op = made.ops[0]
    found = {}
    for calls in call_sequences(made, op, 2):
        plan = without_signals_of_empty_chunks(unroll(made, op, 2, calls))
        found[tuple(c["M"] for c in calls)] = sorted({r.code for r in prove(plan, programs=1)})
    assert found[64, 64, 64] == [] and found[0, 0, 0] == []
    assert found[64, 0, 64] == ["CD401"]


def test_the_first_refutation_ends_the_proof(monkeypatch):
    made = schedule()
    made = replace(made, ops=(replace(made.ops[0], closing=False),))
    seen = []

    def counted(*args):
        seen.append(args[3])
        return unroll(*args)

    monkeypatch.setattr(worlds, "unroll", counted)
    (verdict,) = prove_worlds(made, [3])
    assert not verdict.proven and len(seen) == 1


@pytest.mark.parametrize("world", [1, 2, 8, 16, 24])
def test_a_sound_schedule_is_proven(world):
    (verdict,) = prove_worlds(schedule("0..4096", "chunk = 2 per shard, buffers = 2"), [world])
    assert verdict.proven
