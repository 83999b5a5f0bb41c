"""A log is compared with the plan of the same calls. Every kind of difference is planted in one or the other and told.

The log is a real one, of a gather by stores and of one by copy engines; what is planted in it are events as the
simulator writes them.
"""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from chunkdsl.pipeline import check_source
from chunkdsl.plan.unroll import unroll
from chunkdsl.render.module import render_module
from chunkdsl.sim.conformance import compare
from chunkdsl.sim.log import Copy, Read, Signal, Wait, Write
from chunkdsl.sim.world import World
from chunkdsl.source import Source
from chunkdsl.verify.inputs import cut
from chunkdsl.verify.verify import load

SPEC = """mesh tp[2] over nvlink
dim M = 1..32
tensor x : f32[M @ tp, 24]
tensor w : f32[48 @ tp, 24]
op proj(x, w) -> y { y = all_gather(x) @ w.T with { tile = 16x16x16, chunk = 8 along M, %s } }
"""
CALLS = [{"M": 29}, {"M": 1}, {"M": 32}]


class Run:
    """One simulated run of three calls: its log, the plan, and the op's schedule."""

    def __init__(self, policy, folder):
        checked = check_source(Source("a.chunk", SPEC % policy))
        assert not checked.report.failed, checked.report.diagnostics
        self.op = checked.schedule.ops[0]
        module = load(render_module(checked.schedule, (2,)), folder, "made").A
        g = torch.Generator().manual_seed(0)
        w = torch.randn(48, 24, generator=g)
        xs = [torch.randn(c["M"], 24, generator=g) for c in CALLS]

        def host(machine):
            m = module(machine=machine)
            for x, c in zip(xs, CALLS, strict=True):
                m.proj(cut(x, 0, 2, machine.rank), cut(w, 0, 2, machine.rank), **c)
            m.check()

        world = World(2, seed=1, log=True)
        world.run(host)
        self.log = world.log
        self.plan = unroll(checked.schedule, self.op, 2, CALLS, {"M": 32})

    def compare(self, log=None, plan=None):
        return compare(log or self.log, plan or self.plan, self.op)

    def edited(self, kind, change, which=lambda origin, event: True):
        """The log with the first event of this kind changed: another event, or None to leave it out."""
        log = deepcopy(self.log)
        for trail in log.trails:
            for i, event in enumerate(trail.events):
                if trail.origin.call and isinstance(event, kind) and which(trail.origin, event):
                    made = change(event)
                    trail.events[i : i + 1] = [made] if made is not None else []
                    return log
        raise AssertionError(f"no {kind.__name__} to change")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return Run("via = ldst, place = co_located", tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    return Run("via = copy_engine, side = push", tmp_path_factory.mktemp("engines"))


def arrived(origin, event):
    return event.at.buffer == "proj_x_gathered_arrived"


def gathered(origin, event):
    return event.at.buffer == "proj_x_gathered"


def told(findings, *words):
    assert findings
    assert any(all(w in f for w in words) for f in findings), findings[:5]


def test_a_run_that_does_what_the_plan_says_has_no_differences(stores, engines):
    assert stores.compare() == []
    assert engines.compare() == []


# ---- the log is wrong


def test_a_signal_that_was_not_given(stores):
    told(
        stores.compare(stores.edited(Signal, lambda e: None, arrived)),
        "signals proj_x_gathered_arrived[",
        "0 times, the plan 1",
    )


def test_a_signal_given_twice(stores):
    log = deepcopy(stores.log)
    trail = next(t for t in log.trails for e in t.events if isinstance(e, Signal) and arrived(None, e))
    trail.events.append(next(e for e in trail.events if isinstance(e, Signal) and arrived(None, e)))
    told(stores.compare(log), "2 times, the plan 1")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"value": 7}, ("with 7; the epoch is",)),
        ({"sem": "relaxed"}, ("relaxed at sys scope, not release at sys",)),
        ({"scope": "gpu"}, ("at gpu scope, not release at sys",)),
        ({"index": 40}, ("signals proj_x_gathered_arrived[40]", "1 times, the plan 0")),
    ],
)
def test_a_signal_with_another_value_order_scope_or_word(stores, change, words):
    told(stores.compare(stores.edited(Signal, lambda e: replace(e, **change), arrived)), *words)


def test_a_signal_to_another_rank(stores):
    log = stores.edited(Signal, lambda e: replace(e, at=replace(e.at, owner=1 - e.at.owner)), arrived)
    told(stores.compare(log), "of rank 0 ", "times, the plan")


def test_a_wait_that_was_not_done_is_told_and_so_is_the_read_behind_it(stores):
    log = deepcopy(stores.log)
    for trail in log.trails:
        if trail.origin.call == 1 and trail.origin.rank == 0:
            trail.events[:] = [
                e for e in trail.events if not (isinstance(e, Wait) and arrived(None, e) and e.index >= 2)
            ]
    findings = stores.compare(log)
    told(findings, "rank 0, call 0", "the plan waits for proj_x_gathered_arrived[")
    told(findings, "reads proj_x_gathered of rank 0", "without waiting for proj_x_gathered_arrived[")


def test_a_wait_that_did_not_see_the_epoch_is_none(stores):
    log = deepcopy(stores.log)
    for trail in log.trails:
        old = [isinstance(e, Wait) and arrived(None, e) for e in trail.events]
        trail.events[:] = [replace(e, value=0) if o else e for e, o in zip(trail.events, old, strict=True)]
    told(stores.compare(log), "the plan waits for proj_x_gathered_arrived[")


@pytest.mark.parametrize(
    ("change", "words"),
    [({"scope": "gpu"}, "acquire at gpu scope, not acquire at sys"), ({"sem": "relaxed"}, "relaxed at sys scope, not")],
)
def test_a_wait_of_another_order_or_scope(stores, change, words):
    told(stores.compare(stores.edited(Wait, lambda e: replace(e, **change), arrived)), "waits for", words)


def test_a_wait_for_another_word(stores):
    log = stores.edited(Wait, lambda e: replace(e, index=40, value=3), arrived)
    told(stores.compare(log), "the kernel, not the plan, waits for proj_x_gathered_arrived[40]")


def test_a_write_elsewhere_or_not_at_all(stores):
    def moved(e):
        return replace(e, boxes=tuple(replace(b, row0=b.row0 - 20, row1=b.row1 - 20) for b in e.boxes))

    findings = stores.compare(stores.edited(Write, moved, gathered))
    told(findings, "writes proj_x_gathered of rank", "are the kernel's but not the plan's")
    findings = stores.compare(stores.edited(Write, lambda e: None, gathered))
    told(findings, "writes proj_x_gathered of rank", "are the plan's but not the kernel's")


def test_rows_that_nobody_read(stores):
    log = deepcopy(stores.log)
    for trail in log.trails:
        trail.events[:] = [e for e in trail.events if not (isinstance(e, Read) and gathered(None, e))]
    told(stores.compare(log), "reads proj_x_gathered of rank 0", "are the plan's but not the kernel's")


def test_a_flag_written_by_an_ordinary_store(stores):
    first = next(
        e for t in stores.log.trails if t.origin.call for e in t.events if isinstance(e, Write) and gathered(None, e)
    )
    flag = next(e for t in stores.log.trails for e in t.events if isinstance(e, Signal) and arrived(None, e))
    log = stores.edited(Write, lambda e: replace(first, at=flag.at), gathered)
    told(stores.compare(log), "writes proj_x_gathered_arrived with an ordinary store")


def test_a_copy_that_was_left_out_or_signals_another_epoch(engines):
    def data(origin, event):
        return event.value is None

    def signal(origin, event):
        return event.destination.buffer == "proj_x_gathered_arrived"

    log = engines.edited(Copy, lambda e: None, data)
    told(engines.compare(log), "writes proj_x_gathered of rank", "are the plan's but not the kernel's")
    told(engines.compare(engines.edited(Copy, lambda e: None, signal)), "0 times, the plan 1")
    log = engines.edited(Copy, lambda e: replace(e, value=9), signal)
    told(engines.compare(log), "a copy sets proj_x_gathered_arrived of rank", "to 9; the epoch is 1")


# ---- the plan is wrong


def changed(plan, pick, change):
    """The plan with the first task that `pick` takes replaced."""
    tasks = list(plan.tasks)
    at = next(i for i, t in enumerate(tasks) if pick(t))
    tasks[at] = change(tasks[at])
    return replace(plan, tasks=tuple(tasks))


def test_a_plan_that_asks_for_more_or_for_less(stores):
    every = replace(stores.plan, tasks=tuple(replace(t, waits=()) for t in stores.plan.tasks))
    told(stores.compare(plan=every), "the kernel, not the plan, waits for proj_x_gathered_arrived[")
    plan = changed(stores.plan, lambda t: t.kind == "move" and t.signals, lambda t: replace(t, signals=()))
    told(stores.compare(plan=plan), "1 times, the plan 0")


def test_a_plan_with_a_call_more_or_less(stores):
    tasks = tuple(t for t in stores.plan.tasks if t.call < 2)
    told(stores.compare(plan=replace(stores.plan, tasks=tasks)), "call 2", "times, the plan 0")
    log = deepcopy(stores.log)
    log.trails[:] = [t for t in log.trails if t.origin.call < 3]
    told(stores.compare(log), "call 2", "0 times, the plan 1")


def test_findings_name_the_line_of_the_spec(stores):
    told(stores.compare(stores.edited(Signal, lambda e: None, arrived)), "(a.chunk:5)")
    assert stores.plan.spec == "a.chunk"
