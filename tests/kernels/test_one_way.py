"""A built-in product and a user's kernel go one way: the same product, written both ways, has one plan and one module
but for what fills a tile."""

import re
from dataclasses import fields, replace

import pytest
from evidence_table import PAGE
from kernel_specs import HEAD, ROOT, checked, gathered, reduced

from chunkdsl.check.prove import prove
from chunkdsl.plan.unroll import unroll
from chunkdsl.render.module import render_module

MOVED = {  # policy, the product of the language, the kernel of a user
    "gathered": ("chunk = 24 along M, via = ldst, place = own_sms(2), route = ring",
                 "op f_op(x, w) -> y {{ y = all_gather(x) @ w with {{ {policy}, tile = 32x32x32 }} }}", gathered),
    "reduced": ("chunk = 24 along M, side = pull, via = ldst, place = co_located, route = swizzle",
                "op f_op(a, v) -> y {{ y = reduce_scatter(a @ v, M) with {{ {policy}, tile = 32x32x32 }} }}", reduced),
}  # fmt: skip
OF_A_TILE = {"f_op_y_store", "f_op_y_partial_store", "halves", "narrow"}, {"matmul_2d", "program_number"}


@pytest.fixture(scope="module", params=MOVED)
def both(request):
    policy, product, kernel = MOVED[request.param]
    made = [checked(HEAD + product.format(policy=policy)), checked(kernel("matmul_2d", policy))]
    assert [d.message for c in made for d in c.report.diagnostics] == []
    return [c.schedule for c in made]


def without(value, *names):
    """The fields of a record but these."""
    return {f.name: getattr(value, f.name) for f in fields(value) if f.name not in names}


def test_transfers_staging_and_flags_are_the_same(both):
    ours, theirs = (s.ops[0].launches for s in both)
    assert len(ours) == len(theirs) and any(n.body for n in theirs) and not any(n.body for n in ours)
    for a, b in zip(ours, theirs, strict=True):
        assert [without(m, "line") for m in a.moves] == [without(m, "line") for m in b.moves]
        assert bool(a.staging) == bool(b.staging)
        assert not a.staging or without(a.staging, "line") == without(b.staging, "line")
        assert (a.destination, a.chunk_flags, a.walk) == (b.destination, b.chunk_flags, b.walk)


def test_plans_are_equal_task_by_task(both):
    """What runs, where, on what, after what; not how many programs make up a tile, and how it is called."""
    calls = [{"M": 256}, {"M": 256}]
    ours, theirs = (unroll(s, s.ops[0], 4, calls) for s in both)
    own = ("line", "name", "count")
    assert [without(t, *own) for t in ours.tasks] == [without(t, *own) for t in theirs.tasks]
    assert without(ours, "tasks", "spec") == without(theirs, "tasks", "spec")
    last = next(i for i, t in enumerate(theirs.tasks) if t.waits and t.name.startswith("rank 1"))
    broken = replace(theirs, tasks=tuple(replace(t, waits=()) if i == last else t for i, t in enumerate(theirs.tasks)))
    assert prove(theirs, programs=1) == [] and prove(broken, programs=1)


def test_modules_hold_the_same_functions_but_for_the_tile(both):
    ours, theirs = (functions(render_module(s, (2,))) for s in both)
    assert ours.keys() - theirs.keys() <= OF_A_TILE[0] | {"take"}  # without tickets where nobody waits for a tile
    assert theirs.keys() - ours.keys() <= OF_A_TILE[1] | {"matmul_2d_by_ticket"}
    shared = {name for name in ours.keys() & theirs.keys() if not name.startswith("f_op")}
    assert {"wait_flag", "set_flag"} <= shared
    assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}


def functions(module: str) -> dict[str, str]:
    found = re.split(r"^(?:@triton\.jit[^\n]*\n(?:    [^\n]*\n)*(?:\]\)\n)?)?def (\w+)", module, flags=re.MULTILINE)
    return {name: text.split("\n\n\n")[0] for name, text in zip(found[1::2], found[2::2], strict=True)}


def test_the_page_s_program_runs(tmp_path, monkeypatch):
    """What docs/kernels.md writes for those who live in code; modules go to a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.syspath_prepend(ROOT / "specs" / "kernels")
    (text,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    held = {}
    exec(text, held)
    assert held["C"].equal(held["A"] @ held["B"]) and len(held["fused"].modules) == 1
