"""The proof against all interleavings of tiny plans: good plans, single changes to them, and random plans."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from brute_force import Executor, stops_with_few_programs
from hypothesis import given, settings
from hypothesis import strategies as st
from proof_plans import drop_signal, drop_wait, gemm_rs, one_shot, ring_gather, with_access, with_task

from chunkdsl.check.prove import prove, resident
from chunkdsl.plan.plan import Access, Act, Buffer, Lane, Plan, Region, Signal, Task

# What may go well all the same: two writes of one content, a word that a later call sets in time. All else never does.
LUCK = {"CD302", "CD401", "CD403", "CD404"}
BASES = (
    lambda: one_shot(2, calls=1),
    lambda: one_shot(2, calls=2, buffers=2),
    lambda: one_shot(2, calls=2, buffers=1),
    lambda: one_shot(2, calls=2, buffers=1, barrier="join"),
    lambda: ring_gather(2, calls=1),
    lambda: gemm_rs(2, [2]),
    lambda: gemm_rs(1, [1, 0, 1], tiles=2),
)


@cache
def base(i: int) -> Plan:
    """A tiny plan with its boxes cut to one column, so that states stay few."""
    plan = BASES[i]()

    def thin(r):
        return r and replace(r, col1=min(r.col1, 1))

    tasks = [
        replace(t, accesses=tuple(replace(a, region=thin(a.region), source=thin(a.source)) for a in t.accesses))
        for t in plan.tasks
    ]
    return replace(plan, tasks=tuple(tasks))


def agree(plan: Plan) -> str:
    """What the proof says is what all interleavings say. Returns the verdict, "" where there are too many."""
    failures = Executor(plan).failures()
    if failures is None:
        return ""
    found = [r for r in prove(plan, programs=99) if r.code != "CD310"]
    if not found:
        assert failures == set()
        return "harmless"
    if not LUCK & {r.code for r in found}:
        assert failures, str(found[0])
    return "fails" if failures else "luck"


@st.composite
def changed(draw) -> Plan:
    """A tiny plan with one wait, signal, edge or access changed."""
    plan = base(draw(st.integers(0, len(BASES) - 1)))
    choices = []
    for t, task in enumerate(plan.tasks):
        choices += [("wait", t, i) for i in range(len(task.waits))]
        choices += [("signal", t, i) for i in range(len(task.signals))]
        choices += [("after", t, i) for i in range(len(task.after))]
        choices += [("access", t, i) for i in range(len(task.accesses))]
    kind, t, i = draw(st.sampled_from(choices))
    task = plan.tasks[t]
    if kind == "wait":
        return drop_wait(plan, t, i)
    if kind == "signal":
        return drop_signal(plan, t, i)
    if kind == "after":
        return with_task(plan, t, after=task.after[:i] + task.after[i + 1 :])
    access = task.accesses[i]
    part = draw(st.sampled_from(["region", "source", "mask", "slot", "drop"]))
    if part == "drop":
        return with_task(plan, t, accesses=task.accesses[:i] + task.accesses[i + 1 :])
    if part == "mask":
        return with_access(plan, t, i, mask=access.mask ^ 1)
    if part == "slot":
        slots = next(b.slots for b in plan.buffers if b.name == access.region.buffer)
        return with_access(plan, t, i, region=replace(access.region, slot=(access.region.slot + 1) % slots))
    region = access.source if part == "source" and access.source else access.region
    down = -1 if region.row0 else 1
    rows = next(b.rows for b in plan.buffers if b.name == region.buffer)
    if region.row1 + down > rows:
        region = replace(region, row0=region.row0 + 1)
        return with_access(plan, t, i, **{part: region}) if access.source is None and part == "region" else plan
    region = replace(region, row0=region.row0 + down, row1=region.row1 + down)
    return with_access(plan, t, i, **{"source" if part == "source" and access.source else "region": region})


@settings(max_examples=50, deadline=None)
@given(changed())
def test_one_change(plan):
    agree(plan)


def test_good_and_bad_plans_by_brute_force():
    """The executor tells the two apart, so that agreeing with it means something."""
    assert [agree(base(i)) for i in range(len(BASES))] == [
        "harmless", "harmless", "fails", "harmless", "harmless", "harmless", "harmless",
    ]  # fmt: skip


@st.composite
def tiny(draw) -> Plan:
    """Up to six tasks on two ranks with random effects, waits and signals: mostly wrong, some right."""
    n, words = draw(st.integers(2, 6)), draw(st.integers(0, 3))
    where = st.builds(
        lambda b, r, i, k: Region(b, r, 0, i, i + k, 0, 1),
        st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 1), st.integers(1, 1),
    )  # fmt: skip
    effect = st.one_of(
        st.builds(lambda r: Access(Act.PUT, r, None, "x", 1, (r.row0, 0)), where),
        st.builds(lambda r: Access(Act.NEED, r, None, "x", 1, (r.row0, 0)), where),
        st.builds(lambda r, s: Access(Act.COPY, r, s), where, where).filter(lambda a: a.region != a.source),
    )
    call = sorted(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    signaller = [draw(st.integers(0, 1)) for _ in range(words)]
    signals = tuple(Signal("f", 1 - r, i, r, 0) for i, r in enumerate(signaller))
    tasks = []
    for t in range(n):
        rank = draw(st.integers(0, 1))
        same = [i for i in range(t) if tasks[i].rank == rank]
        chosen = st.lists(st.sampled_from(range(words)), max_size=2, unique=True) if words else st.just([])
        after = draw(st.lists(st.sampled_from(same), max_size=1)) if same else []
        gives = [s for s in draw(chosen) if signaller[s] == rank]
        accesses = draw(st.lists(effect, max_size=2))
        lane = draw(st.sampled_from(["main", "tiles"]))
        tasks.append(Task(f"t{t}", rank, lane, call[t], "tile", t, tuple(accesses), tuple(after), tuple(draw(chosen)),
                          tuple(gives)))  # fmt: skip
    buffers = Buffer("a", "symmetric", "bf16", 2, 1), Buffer("b", "local", "bf16", 2, 1)
    return Plan("f", 2, ((), ()), buffers, (Lane("main", True), Lane("tiles", False, "k")), signals, tuple(tasks))


@settings(max_examples=60, deadline=None)
@given(tiny())
def test_random_plans(plan):
    agree(plan)


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(6)), st.integers(1, 4), st.integers(0, 99))
def test_residency_against_random_executions(order, programs, seed):
    """GEMM+RS on two ranks with the programs of rank 0 in any order. Whether it stops does not depend on luck."""
    plan = gemm_rs(2, [2], tiles=2)
    mine = [t for t, x in enumerate(plan.tasks) if x.rank == 0 and x.lane == "tiles"]
    tasks = list(plan.tasks)
    for t, k in zip(mine, [k for k in order if k < len(mine)], strict=True):
        tasks[t] = plan.tasks[mine[k]]
    plan = replace(plan, tasks=tuple(tasks))
    stops = bool(resident(plan, programs))
    assert stops == stops_with_few_programs(plan, programs, seed)
