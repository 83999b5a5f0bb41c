"""Plans played out: limits that can be worked out by hand, and what must never happen."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import KINDS, plan_of, predicted

from chunkdsl.cost.constants import machine, without_communication, without_compute
from chunkdsl.cost.predict import ending
from chunkdsl.cost.servers import Links, Programs
from chunkdsl.cost.simulate import Stuck, simulate
from chunkdsl.plan.plan import Act

H200 = machine("h200", "nvlink")


@pytest.mark.parametrize("kind", KINDS)
def test_no_task_starts_before_what_it_waits_for(kind):
    op, plan = plan_of(KINDS[kind], 4, 1500)
    spans = simulate(op, plan, H200)
    assert [s.task for s in spans] == list(range(len(plan.tasks)))
    given_at = {}
    for task, span in zip(plan.tasks, spans, strict=True):
        assert 0 <= span.idle_from <= span.start <= span.end and 0 <= span.idle <= 1
        for s in task.signals:
            given_at[s] = max(given_at.get(s, 0.0), span.end)
    for task, span in zip(plan.tasks, spans, strict=True):
        adds_at_its_end = task.kind == "tile" and any(a.act is Act.ADD for a in task.accesses)
        assert all((span.end if adds_at_its_end else span.start) > given_at[s] for s in task.waits)
        assert all(span.start >= spans[t].end for t in task.after)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_a_faster_machine_is_never_slower(kind, data):
    op, plan = plan_of(KINDS[kind], 4, data.draw(st.sampled_from([1, 900, 3000])))
    part = data.draw(st.sampled_from(["link", "kernels", "gpu"]))
    rates = {
        "link": ["copy_pull", "copy_push", "programs", "tile_stores", "warp_stores", "program_gbs", "pair_gbs"],
        "kernels": ["store_gbs"],
        "gpu": ["memory_gbs", "inner_loop", "warps_loop", "cache_gbs"],
    }[part]
    key, factor = data.draw(st.sampled_from(rates)), data.draw(st.floats(1.0, 20.0))
    found = getattr(H200, part)
    faster = replace(H200, **{part: replace(found, **{key: getattr(found, key) * factor})})
    before, after = simulate(op, plan, H200), simulate(op, plan, faster)
    assert all(a.end <= b.end + 1e-6 for a, b in zip(after, before, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_no_plan_beats_the_ideal_and_none_is_slower_than_one_after_the_other(kind):
    p = predicted(KINDS[kind])
    assert p.total >= p.ideal - 1e-6
    assert p.total <= p.compute + p.communication + 1e-6
    assert 0 <= p.hidden <= 1 and p.exposed <= p.communication + 1e-6


def test_small_chunks_and_free_flags_come_down_to_the_longer_of_the_two():
    text = KINDS["copies"].replace("256 along M", "64 along M").replace("w : bf16[4096", "w : bf16[32768")
    text = text.replace("v : bf16[2048, 4096", "v : bf16[2048, 32768")
    free = dict.fromkeys(("kernel_us", "first_tile_us", "ticket_us", "copy_us", "copy_flag_us", "join_us"), 0.0)
    on = replace(H200, link=replace(H200.link, flag_us=0.0), kernels=replace(H200.kernels, **free))
    p = predicted(text, rows=8192, on=on)
    assert p.total <= 1.05 * max(p.compute, p.communication)


def test_both_limits_are_the_machines_without_a_part():
    op, plan = plan_of(KINDS["tma scatter"], 4, 4096)
    p = predicted(KINDS["tma scatter"])
    assert p.compute == ending(simulate(op, plan, without_communication(H200)))
    assert p.communication == ending(simulate(op, plan, without_compute(H200)))


def test_a_broken_wait_changes_the_prediction():
    """A plan whose tiles do not wait for their chunks is a faster one: the model sees the edge."""
    op, plan = plan_of(KINDS["copies"], 4, 4096)
    torn = replace(plan, tasks=tuple(replace(t, waits=()) if t.kind == "tile" else t for t in plan.tasks))
    slow = replace(H200, link=replace(H200.link, copy_pull=40.0))
    tiles = [i for i, t in enumerate(plan.tasks) if t.kind == "tile"]
    whole, broken = simulate(op, plan, slow), simulate(op, torn, slow)
    assert max(broken[i].end for i in tiles) < 0.7 * max(whole[i].end for i in tiles)


def test_a_busy_copy_lane_gets_its_next_copy_ready_meanwhile():
    """Starting costs what follows an idle lane, and no chunk behind another one."""
    op, plan = plan_of(KINDS["copies"], 4, 4096)
    slow = replace(H200, kernels=replace(H200.kernels, copy_us=1000.0))
    spans = simulate(op, plan, slow)
    copies = [s for t, s in zip(plan.tasks, spans, strict=True) if t.rank == 0 and t.lane.startswith("copies")]
    assert len(copies) > 3
    assert copies[0].end > 1000 > copies[-1].end - copies[0].end


def test_a_plan_that_cannot_end_is_said():
    op, plan = plan_of(KINDS["copies"], 4, 4096)
    looped = [replace(t, waits=t.signals) if t.kind == "move" and t.rank == 0 else t for t in plan.tasks]
    with pytest.raises(Stuck, match=r"rank \d, call 0: "):
        simulate(op, replace(plan, tasks=tuple(looped)), H200)


def test_calls_outside_a_graph_pay_for_the_cpu():
    captured, eager = predicted(KINDS["copies"]), predicted(KINDS["copies"], on=machine("h200", "nvlink", False))
    assert eager.total > captured.total + 50
    fewer = predicted(KINDS["copies"].replace("256 along M", "1 per shard"), on=machine("h200", "nvlink", False))
    assert fewer.total < eager.total


def test_programs_serve_waves():
    programs = Programs(4)
    ends = []
    for since, count in programs.take(10):
        programs.give(since + 5.0, count)
        ends.append((since + 5.0, count))
    assert ends == [(5.0, 4), (10.0, 4), (15.0, 2)]
    assert sorted(programs.free) == [(10.0, 2), (15.0, 2)]


def test_links_are_shared_by_those_who_send_to_one_rank():
    def of(**rates):
        return Links(replace(H200, link=replace(H200.link, programs=100.0, copy_pull=50.0, **rates)))

    links = of(pair_gbs=100.0)
    assert links.carry(0.0, 0, 3, 100_000, "programs") == 1.0
    assert links.carry(0.0, 1, 3, 100_000, "programs") == 2.0  # rank 3 receives one after the other
    assert links.carry(0.0, 1, 2, 100_000, "programs") == 2.0  # and rank 1 sends so
    assert links.carry(5.0, 0, 2, 100_000, "copy_pull") == 7.0
    assert of(pair_gbs=10.0).carry(0.0, 0, 1, 100_000, "programs") == 10.0


def test_links_of_two_tiers_do_not_slow_each_other():
    m = machine("h200", "nvlink", outer="rdma", inner=2)
    links = Links(replace(m, link=replace(m.link, programs=100.0), outer=replace(m.outer, programs=10.0)))
    assert links.carry(0.0, 0, 2, 100_000, "programs") == 10.0  # to the other node
    assert links.carry(0.0, 0, 1, 100_000, "programs") == 1.0  # beside it, within the node
    assert links.carry(0.0, 3, 2, 100_000, "programs") == 1.0
    assert links.carry(0.0, 1, 2, 100_000, "programs") == 20.0  # what comes in from outside queues at rank 2
