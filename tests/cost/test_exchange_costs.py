"""Small all-reduces as predicted: sums of latencies that can be worked out by hand, waves of blocks, two tiers."""

from dataclasses import replace

import pytest
from plans import KINDS, predicted

from chunkdsl.cost.baseline import collective_us
from chunkdsl.cost.constants import machine
from chunkdsl.cost.lanes import covered, lane_times
from chunkdsl.cost.predict import predict
from chunkdsl.pipeline import timeline

H200 = machine("h200", "nvlink")
K, WORD = H200.kernels, H200.link.word_us
START = K.null_us + K.exchange_us


def least(kind, world=2):
    """Of a payload of one row, 4 KiB, with links and memory that cost nothing."""
    free = dict.fromkeys(("programs", "pair_gbs"), float("inf"))
    gpu = replace(H200.gpu, cache_gbs=float("inf"))
    return predicted(KINDS[kind], world, 1, replace(H200, gpu=gpu, link=replace(H200.link, **free))).total


def test_a_few_words_cost_the_sum_of_their_latencies():
    assert least("words") == pytest.approx(START + WORD)
    assert least("marks twice") == pytest.approx(START + 2 * WORD + K.empty_us)
    closing = K.fence_us + WORD
    assert least("flags, one buffer") == pytest.approx(START + K.fence_us + WORD + K.read_us + closing)


def test_every_further_rank_is_read_too():
    assert least("words", 4) == pytest.approx(least("words", 2) + 2 * K.source_us)


def test_blocks_of_one_program_repeat_what_flags_cost_and_hide_what_words_cost():
    """512 KiB are a block for each program, 4 MiB are eight of them."""
    def growth(kind):
        small, large = (predicted(KINDS[kind], 2, rows) for rows in (128, 1024))
        sent = 1e-3 * 7 * 512 * 1024 / H200.link.programs
        return large.total - small.total, sent

    more, sent = growth("words")
    assert sent < more < 1.2 * sent  # the link is busy all the time
    more, sent = growth("flags, one buffer")
    assert more > sent + 7 * 2 * (K.fence_us + WORD)


def test_all_ranks_end_at_the_same_time():
    p = predicted(KINDS["words"], 4, 256)
    ends = {round(max(x.end for x in lane_times(p) if x.rank == rank), 6) for rank in range(4)}
    assert len(ends) == 1
    starts = [s.end for t, s in zip(p.plan.tasks, p.spans, strict=True) if t.kind == "move"]
    assert max(starts) < 1.35 * min(starts)  # none is served first


def test_lane_times_are_those_of_the_spans():
    for kind in ("copies", "words", "tma scatter"):
        p = predicted(KINDS[kind])
        found = lane_times(p)
        assert max(x.end for x in found) == p.total and {x.rank for x in found} == set(range(4))
        for x in found:
            assert 0 <= x.busy <= x.end + 1e-9 and x.exposed >= 0
    assert covered([(0, 2), (1, 3), (5, 6), (5.5, 5.8)]) == 4


def test_a_slow_outer_link_is_felt_and_only_by_what_crosses_it():
    _, (p,) = timeline("specs/two_tier_gather.chunk", None, "h200", {"M": 16384})
    assert [link.name for link in p.machine.links] == ["rdma", "nvlink"] and p.machine.inner == 4
    op, plan = p.op, p.plan
    faster = replace(p.machine, outer=replace(p.machine.outer, programs=1e6, program_gbs=1e6, pair_gbs=1e6))
    assert predict(op, plan, faster).total < 0.9 * p.total
    slower = replace(p.machine, outer=replace(p.machine.outer, flag_us=200.0))
    assert predict(op, plan, slower).total > p.total + 150
    crossing = [s for t, s in zip(plan.tasks, p.spans, strict=True) if t.kind == "move" and "to rank 4" in t.name
                and t.rank == 0]  # fmt: skip
    inside = [s for t, s in zip(plan.tasks, p.spans, strict=True) if t.kind == "move" and "to rank 1" in t.name
              and t.rank == 0 and s.bytes == crossing[0].bytes]  # fmt: skip
    assert min(s.end - s.start for s in crossing) > 4 * min(s.end - s.start for s in inside)


def test_the_library_on_two_nodes_sends_each_byte_to_a_node_once():
    flat, two = machine("h200", "rdma"), machine("h200", "nvlink", outer="rdma", inner=4)
    size = 1 << 30
    assert collective_us(size, 8, 1, two) == pytest.approx(1e-3 * size / 2 / 4 / two.outer.library_gbs, rel=0.1)
    assert collective_us(size, 8, 1, two) < 0.3 * collective_us(size, 8, 1, flat)
