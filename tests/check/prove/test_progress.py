"""Progress with few resident programs: queues of a launch, own communication programs, launches that compete."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proof_plans import Build, direct_gather, gemm_rs, ring_gather, tp_mlp

from chunkdsl.check.prove import least_programs, prove, resident
from chunkdsl.plan.plan import Lane


def codes(plan, programs):
    return [r.code for r in resident(plan, programs)]


def test_reduce_programs_first_need_a_program_more():
    """Two reduces wait before the tiles of each rank: with three programs the tiles get one."""
    plan = gemm_rs(3, chunks=2, reduce_first=True)
    assert [codes(plan, n) for n in (1, 2, 3, 132)] == [["CD304"], ["CD304"], [], []]


def test_counterexample_is_a_round():
    (found,) = resident(gemm_rs(2, [2], reduce_first=True), 1)
    assert found.kind == "residency"
    assert found.counterexample.splitlines() == [
        "with 1 resident program on each rank:",
        "  rank 0, call 0: reduce chunk 0 (line 7)",
        "    waits (signal chunk[0] on rank 0) for rank 0, call 0: tile 0 of chunk 0 for rank 0 (line 6)",
        "  rank 0, call 0: tile 0 of chunk 0 for rank 0 (line 6)",
        "    starts after rank 0, call 0: tile 0 of chunk 0 for rank 1 (line 6)",
        "  rank 0, call 0: tile 0 of chunk 0 for rank 1 (line 6)",
        "    needs the program held by rank 0, call 0: reduce chunk 0 (line 7)",
    ]


def tiles_then_moves(programs=2, count=1):
    """Moves on `programs` own programs wait for tiles of the same launch."""
    b = Build("f", 1, 1, [], [Lane("moves", False, "kernel", programs), Lane("tiles", False, "kernel")])
    done = [b.signal("done", 0, i, 0, 0) for i in range(4)]
    for i in range(4):
        b.task(f"move {i}", 0, "moves", 0, "move", waits=[done[i]], line=1)
        b.task(f"tile {i}", 0, "tiles", 0, "tile", signals=[done[i]], line=2, count=count)
    return b.plan()


def test_own_programs_and_one_more():
    plan = tiles_then_moves()
    assert least_programs(plan) == 3
    assert [codes(plan, n) for n in (1, 2, 3)] == [["CD304"], ["CD304"], []]
    assert prove(plan) == []
    assert [r.code for r in prove(plan, programs=2)] == ["CD304"]


def test_a_serial_lane_of_a_launch_holds_one_program():
    plan = ring_gather(3, lanes=2)
    assert least_programs(plan) == 3
    assert [codes(plan, n) for n in (1, 2, 3)] == [[], [], []]  # sends wait for nothing of their own launch


def test_programs_pass_on_when_a_lane_is_through():
    """One program: the moves come first and do not wait, then the tiles get it."""
    b = Build("f", 1, 1, [], [Lane("moves", False, "kernel", 4), Lane("tiles", False, "kernel")])
    arrived = b.signal("arrived", 0, 0, 0, 0)
    b.task("tile", 0, "tiles", 0, "tile", waits=[arrived])
    b.task("move", 0, "moves", 0, "move", signals=[arrived])
    assert codes(b.plan(), 1) == []


@pytest.mark.parametrize(("count", "expected"), [(1, []), (2, ["CD304"]), (500, ["CD304"])])
def test_a_task_of_many_tiles_takes_as_many_programs(count, expected):
    b = Build("f", 1, 1, [], [Lane("tiles", False, "kernel")])
    s = b.signal("s", 0, 0, 0, 0)
    b.task("waits", 0, "tiles", 0, "tile", waits=[s], count=count)
    b.task("gives", 0, "tiles", 0, "tile", signals=[s], count=3)
    assert codes(b.plan(), 2) == expected


def test_many_tiles_pass_one_program_one_after_another():
    assert codes(tiles_then_moves(programs=1, count=100), 2) == []
    assert codes(gemm_rs(4, chunks=2, tiles=50, merged=True), 1) == []


def competing(ordered: bool):
    """Two launches; what the second gives the first waits for."""
    b = Build("f", 1, 1, [], [Lane("main", True), Lane("a", False, "first"), Lane("b", False, "second")])
    s = b.signal("s", 0, 0, 0, 0)
    given = b.task("gives", 0, "b", 0, "tile", signals=[s], line=1)
    event = b.task("event", 0, "main", 0, "barrier", after=[given])
    b.task("waits", 0, "a", 0, "tile", waits=[s], line=2, after=[event] if ordered else [])
    return b.plan()


def test_launches_that_nothing_orders_share_the_programs():
    """In the plan's own order it goes through; the other one may come first and does not."""
    assert codes(competing(False), 1) == ["CD304"]
    assert codes(competing(False), 2) == []
    assert codes(competing(True), 1) == []


@pytest.mark.parametrize("behind, expected", [("second", []), ("", ["CD304"])])
def test_a_launch_beside_another_gets_the_programs_that_it_leaves(behind, expected):
    """The waiting tile would take the only program, unless it comes behind the launch that it waits for."""
    lanes = [Lane("main", True), Lane("b", False, "second"), Lane("a", False, "first", behind=behind)]
    b = Build("f", 1, 1, [], lanes)
    s = b.signal("s", 0, 0, 0, 0)
    b.task("gives", 0, "b", 0, "tile", signals=[s], line=1)
    b.task("waits", 0, "a", 0, "tile", waits=[s], line=2)
    assert codes(b.plan(), 1) == expected


def test_launches_in_stream_order_do_not_compete():
    for world in (1, 2, 5):
        plan = tp_mlp(world, 2)
        assert [codes(plan, n) for n in (1, 2, 5)] == [[], [], []]
    assert codes(direct_gather(4, side="pull"), 1) == []


def test_copy_lanes_need_no_program():
    plan = direct_gather(3, engines=2)
    assert least_programs(plan) == 1
    assert codes(plan, 1) == []


def test_a_launch_waits_for_the_gate_that_never_opens():
    """The stream before the second launch waits for a signal that the second launch gives: a cycle, told as one."""
    b = Build("f", 1, 1, [], [Lane("main", True), Lane("tiles", False, "kernel")])
    s = b.signal("s", 0, 0, 0, 0)
    gate = b.task("gate", 0, "main", 0, "barrier", waits=[s])
    b.task("tile", 0, "tiles", 0, "tile", signals=[s], after=[gate])
    assert codes(b.plan(), 4) == ["CD303"]


@st.composite
def launches(draw):
    """Two launches of two lanes each on one rank, with random waits of some tasks for any others."""
    lanes = [Lane("a", False, "one", draw(st.integers(0, 2))), Lane("b", False, "one"),
             Lane("c", draw(st.booleans()), "two", draw(st.integers(0, 2))), Lane("d", False, "two")]  # fmt: skip
    b = Build("f", 1, 1, [], [Lane("main", True), *lanes])
    n = draw(st.integers(2, 9))
    order = draw(st.permutations(range(n)))  # in which they can be done with enough programs
    for t in range(n):
        sooner = [k for k in range(n) if order[k] < order[t]]
        waits = draw(st.lists(st.sampled_from(sooner), max_size=2, unique=True)) if sooner else []
        lane = draw(st.sampled_from("abcd"))
        waits = [b.signal("f", 0, k, 0, 0) for k in waits]
        b.task(f"t{t}", 0, lane, 0, "tile", (), waits, [b.signal("f", 0, t, 0, 0)], count=draw(st.integers(1, 3)))
    return b.plan()


@settings(max_examples=60, deadline=None)
@given(launches())
def test_more_programs_never_hurt(plan):
    """So progress with the least number is progress with the real one."""
    outcomes = [set(codes(plan, n)) for n in range(1, 12)]
    if "CD303" not in outcomes[0]:
        goes = [not o for o in outcomes]
        assert goes == sorted(goes)


def test_a_later_launch_comes_only_when_the_earlier_one_stands_still():
    """Launch `one` may take every program for the tiles of its second task before `two` gets any."""
    b = Build("f", 1, 1, [], [Lane("a", False, "one"), Lane("b", False, "one"), Lane("c", False, "two")])
    s = [b.signal("f", 0, i, 0, 0) for i in range(3)]
    b.task("first", 0, "b", 0, "tile", waits=[s[0]], signals=[s[1]], count=2)
    b.task("second", 0, "b", 0, "tile", waits=[s[1], s[2]], count=3)
    b.task("late", 0, "c", 0, "tile", signals=[s[2]])
    b.task("early", 0, "a", 0, "tile", signals=[s[0]])
    assert [codes(b.plan(), n) for n in (1, 2, 3, 4)] == [["CD304"], ["CD304"], ["CD304"], []]


def test_no_programs_at_all():
    with pytest.raises(ValueError, match="0 resident programs"):
        resident(gemm_rs(2), 0)


def test_malformed_plan_is_told_first():
    plan = gemm_rs(2)
    assert set(codes(replace(plan, lanes=plan.lanes[:1]), 1)) == {"CD301"}
