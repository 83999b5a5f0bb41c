"""Happens-before against the transitive closure, on random graphs of tasks; deadlock paths; what a task knows."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proof_plans import find, gemm_rs, one_shot

from chunkdsl.check.prove import graph as graph_module
from chunkdsl.check.prove import prove
from chunkdsl.check.prove.graph import Graph, refute_cycle
from chunkdsl.check.prove.order import Clocks, path_to
from chunkdsl.plan.plan import Lane, Plan, Signal, Task

LANES = (*(Lane(f"s{i}", True) for i in range(4)), Lane("tiles", False, "kernel"))


@st.composite
def graphs(draw) -> Plan:
    n, words = draw(st.integers(1, 14)), 5
    ranks = [draw(st.integers(0, 1)) for _ in range(n)]
    some = st.lists(st.sampled_from(range(words)), max_size=2, unique=True)
    tasks = []
    for t in range(n):
        same = [i for i in range(t) if ranks[i] == ranks[t]]
        after = draw(st.lists(st.sampled_from(same), max_size=2)) if same else []
        lane = draw(st.sampled_from([lane.name for lane in LANES]))
        waits, gives = tuple(draw(some)), tuple(draw(some))
        tasks.append(Task(f"t{t}", ranks[t], lane, 0, "tile", 1, (), tuple(after), waits, gives))
    given = {s for t in tasks for s in t.signals}  # the plan is well formed: no wait without a signal
    tasks = [replace(t, waits=tuple(s for s in t.waits if s in given)) for t in tasks]
    signals = tuple(Signal("f", 0, i, 0, 0) for i in range(words))
    return Plan("f", 2, ((),), (), LANES, signals, tuple(tasks))


@pytest.mark.parametrize("clocks", [128, 1])
@settings(max_examples=50, deadline=None)
@given(plan=graphs())
def test_before_is_the_transitive_closure(clocks, plan):
    with patch.object(graph_module, "LANES_WITH_CLOCKS", clocks):
        graph = Graph(plan)
    n = len(plan.tasks)
    before = [set() for _ in range(n)]  # by repeated union, to a fixed point; a cycle puts a task before itself
    for _ in range(n):
        for t in range(n):
            for cause, _ in graph.causes(t):
                before[t] |= {cause} | before[cause]
    blocked = {t for t in range(n) if any(x in before[x] for x in {t} | before[t])}
    assert set(graph.order) == set(range(n)) - blocked
    if blocked:
        return
    walk = Clocks(graph)
    for i, t in enumerate(graph.order):
        walk.enter(t)
        for a in graph.order[:i]:
            assert walk.before(a, t) == (a in before[t]), (a, t)


def test_cycle_is_told_as_a_round():
    tasks = [
        Task("a", 0, "tiles", 0, "tile", 3, (), (), (1,), (0,)),
        Task("b", 1, "s0", 0, "tile", 4, (), (), (0,)),
        Task("c", 1, "s0", 0, "tile", 5, (), (), (), (1,)),
        Task("outside", 0, "tiles", 0, "tile", 6, (), (0,)),
    ]
    signals = Signal("p", 1, 0, 0, 0), Signal("q", 0, 7, 1, 0, "rows 0..4")
    (found,) = refute_cycle(Graph(Plan("f", 2, ((),), (), LANES, signals, tuple(tasks))))
    assert found.counterexample.splitlines() == [
        "these tasks wait for each other for ever:",
        "  rank 0, call 0: a (line 3)",
        "    waits for rank 1, call 0: c (line 5): signal q[7] on rank 0 (rows 0..4)",
        "  rank 1, call 0: c (line 5)",
        "    waits for rank 1, call 0: b (line 4): order of lane s0",
        "  rank 1, call 0: b (line 4)",
        "    waits for rank 0, call 0: a (line 3): signal p[0] on rank 1",
    ]
    assert found.line == 3


def test_what_a_task_knows_of_a_rank():
    plan = one_shot(2, buffers=1)
    graph = Graph(plan)
    writer = find(plan, "publish block 0", 0, 1)
    path = path_to(graph, writer, 1)
    names = [(plan.tasks[t].rank, plan.tasks[t].call, plan.tasks[t].name) for t, _ in path]
    assert names == [
        (1, 0, "publish block 0"), (0, 0, "reduce block 0"), (0, 0, "end"), (0, 1, "start"), (0, 1, "publish block 0"),
    ]  # fmt: skip
    first = find(plan, "publish block 0", 0, 0)
    assert path_to(graph, first, 1) == [(first, "")]


def test_order_of_a_plan_that_lists_readers_first():
    plan = gemm_rs(3, reduce_first=True)
    graph = Graph(plan)
    assert sorted(graph.order) == list(range(len(plan.tasks))) != graph.order
    assert {r.code for r in prove(plan)} == {"CD304"}  # races and coverage do not mind
