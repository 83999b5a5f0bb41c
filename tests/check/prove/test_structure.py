"""Form: one fault at a time, each named."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from proof_plans import find, gemm_rs, one_shot, rows, with_access, with_task

from chunkdsl.check.prove import prove
from chunkdsl.check.prove.structure import check_structure
from chunkdsl.plan.plan import Access, Act, Buffer, Lane, Region

GOOD = gemm_rs(2)
TILE = find(GOOD, "tile 0 of chunk 0 for rank 1", 0, 0)
REDUCE = find(GOOD, "reduce chunk 0", 0, 0)


def task(**changes):
    return with_task(GOOD, TILE, **changes)


def signal(**changes):
    return replace(GOOD, signals=(replace(GOOD.signals[0], **changes), *GOOD.signals[1:]))


FAULTS = {
    "rank": (task(rank=2), "outside the 2 ranks"),
    "call": (task(call=3), "call 3: tile 0"),
    "count": (task(count=0), "stands for 0 tiles"),
    "lane": (task(lane="other"), "runs on lane 'other'"),
    "no lane": (task(lane=""), "runs on lane ''"),
    "after itself": (task(after=(TILE,)), f"comes after task {TILE}, which is not an earlier task"),
    "after a later one": (task(after=(TILE + 1,)), "which is not an earlier task"),
    "after a negative one": (task(after=(-1,)), "comes after task -1"),
    "after another rank": (with_task(GOOD, find(GOOD, "start", 1, 0), after=(0,)), "joins and signals cross ranks"),
    "wait": (task(waits=(99,)), "names signal 99"),
    "signal": (task(signals=(-1,)), "names signal -1"),
    "buffer": (with_access(GOOD, TILE, 0, region=rows("nowhere", 1, 0, 0)), "buffer 'nowhere', which the plan"),
    "rows": (with_access(GOOD, TILE, 0, region=rows("stage", 1, 0, 11)), "outside the buffer, which has 12 rows"),
    "columns": (with_access(GOOD, TILE, 0, region=rows("stage", 1, 0, 0, 2, 9)), "outside the buffer"),
    "negative row": (with_access(GOOD, TILE, 0, region=rows("stage", 1, 0, -1)), "outside the buffer"),
    "slot": (with_access(GOOD, TILE, 0, region=rows("stage", 1, 2, 0)), "outside the buffer"),
    "region's rank": (with_access(GOOD, TILE, 0, region=rows("stage", 2, 0, 0)), "outside the buffer"),
    "source": (with_access(GOOD, REDUCE, 1, source=rows("stage", 0, 5, 0)), "slot 5"),
    "no source": (with_access(GOOD, REDUCE, 1, source=None), "has no source"),
    "needless source": (with_access(GOOD, TILE, 0, source=rows("stage", 1, 0, 0)), "has a source"),
    "shape": (with_access(GOOD, REDUCE, 1, source=rows("stage", 0, 0, 0, 1)), "differ in shape"),
    "empty source": (with_access(GOOD, REDUCE, 1, source=rows("stage", 0, 0, 0, 0)), "differ in shape"),
    "overlap": (with_access(GOOD, REDUCE, 1, source=GOOD.tasks[REDUCE].accesses[0].region), "the two boxes overlap"),
    "mask": (with_access(GOOD, TILE, 0, mask=4), "addends 0x4"),
    "negative mask": (with_access(GOOD, TILE, 0, mask=-1), "addends -0x1"),
    "signal's owner": (signal(owner=2), "outside the 2 ranks"),
    "signaller": (signal(signaller=-1), "outside the 2 ranks"),
    "signal's index": (signal(index=-1), "outside the 2 ranks"),
    "signal's call": (signal(call=3), "is of call 3 of 3"),
    "world": (replace(GOOD, world=0), "for 0 ranks"),
    "two buffers": (replace(GOOD, buffers=(*GOOD.buffers, GOOD.buffers[0])), "two buffers are named 'stage'"),
    "two lanes": (replace(GOOD, lanes=(*GOOD.lanes, Lane("main", False))), "two lanes are named 'main'"),
    "kind": (replace(GOOD, buffers=(*GOOD.buffers, Buffer("b", "shared", "f32", 1, 1))), "kind 'shared'"),
    "slots": (replace(GOOD, buffers=(*GOOD.buffers, Buffer("b", "local", "f32", 1, 1, 0))), "0 slots"),
    "programs": (replace(GOOD, lanes=(*GOOD.lanes, Lane("l", False, "", -1))), "has -1 programs"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault(fault):
    plan, says = FAULTS[fault]
    found = prove(plan)
    assert {r.code for r in found} == {"CD301"}
    assert {r.kind for r in found} == {"structure"}
    assert says in found[0].message


def test_good_plan_has_none():
    assert check_structure(GOOD) == []


def test_empty_boxes_may_lie_anywhere():
    """A chunk without rows: its box is empty, whatever its corners are."""
    empty = Region("stage", 1, 0, 99, 99, 0, 8)
    accesses = (*GOOD.tasks[TILE].accesses, Access(Act.PUT, empty, None, "y"), Access(Act.COPY, empty, empty))
    assert prove(with_task(GOOD, TILE, accesses=accesses)) == []


def test_a_join_has_no_lane_and_crosses_ranks():
    assert check_structure(one_shot(3, buffers=1, barrier="join")) == []


def test_rules_do_not_import_the_proof():
    """`check` without --world must not pay for it."""
    code = "import sys, chunkdsl.check.plans; sys.exit(any(m.startswith('chunkdsl.check.prove') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
