"""Every rule of plans (CD3) and the fault that is planted for it, in a plan that is right.

Rules about a plan's text are given specs whose text is changed in one place, and `check` must give that code. Those
about the explicit plan are given what is unrolled from a spec, with a task changed, and the proof must give that code.
Faults of templates, helpers and schedules, and what catches each, are in tests/mutants.
"""

from dataclasses import replace

import pytest

from chunkdsl.check.explain import load_rules
from chunkdsl.check.prove import prove
from chunkdsl.pipeline import check_source
from chunkdsl.plan.plan import Act
from chunkdsl.plan.unroll import unroll
from chunkdsl.source import Source

HEAD = "mesh tp[4]\ndim M = 1..256\n"
GATHERED = HEAD + "tensor x : bf16[M @ tp, 64]\ntensor w : bf16[64, 64 @ tp]\n"
SUMMED = HEAD + "tensor x : bf16[M, 64 @ tp]\ntensor w : bf16[64 @ tp, 64]\n"
POLICY = "with { route = p, tile = 16x16x16, chunk = 16 along M, place = own_sms(1), buffers = 2 } }\n"


def gather(body):
    return f"{GATHERED}plan p(t) : all_gather over tp {{ {body} }}\nop f(x, w) -> y {{ y = all_gather(x) @ w {POLICY}"


def scatter(body):
    plan = f"plan p(t) : reduce_scatter over tp {{ {body} }}\n"
    return f"{SUMMED}{plan}op f(x, w) -> y {{ y = reduce_scatter(x @ w, M) {POLICY}"


def reduce(body):
    return f"{SUMMED}plan p(t) : all_reduce over tp {{ {body} }}\nop f(x, w) -> y {{ y = all_reduce(x @ w) {POLICY}"


RING = gather("for i in range(tp - 1) { send t[(rank - i) mod tp] to (rank + 1) mod tp }")
LANES = gather("lane 0 { for i in range(tp - 1) { send t[(rank - i) mod tp] to (rank + 1) mod tp } }")
ENGINE = gather(
    "send t[rank] to (rank + 1) mod tp with { via = copy_engine } send t[(rank - 1) mod tp] to (rank + 1) mod tp "
    "send t[(rank - 2) mod tp] to (rank + 1) mod tp"
).replace("buffers = 2", "buffers = 1")
SUMS = scatter("for i in range(1, tp) { send t[(rank + i) mod tp] to (rank + i) mod tp adding }")
SUM_RING = scatter("for i in range(tp - 1) { fetch t[(rank - i - 2) mod tp] from (rank - 1) mod tp adding }")
EXCHANGE = reduce("for k in range(log2(tp)) { for s in range(tp) { send t[s] to xor(rank, pow2(k)) adding } }")
LIBRARY = f"{SUMMED}op f(x, w) -> y {{ y = reduce_scatter(x @ w, M) with {{ compute = library }} }}\n"

ELEMENTS = """mesh tp[4]
dim M = 1..256
tensor x : bf16[4 @ tp, M, 96]
kernel add(X) -> Y = "specs/kernels/add.py" : add_flat_kernel {
    X = x_ptr : [e, m, 96]
    Y = y_ptr : [m, 96] sum e
    arg elements = m * 96
    grid = cdiv(m * 96, BLOCK)
    const BLOCK = 32
}
op f(x) -> y { y = reduce_scatter(add(x), M) }
"""  # three programs store a row

IN_TEXTS = {  # rule: (what is planted, a right spec, text in it, text instead)
    "CD321": ("passes on what has not come", RING, "(rank - i)", "(rank + i)"),
    "CD322": ("a round too many", RING, "range(tp - 1)", "range(tp)"),
    "CD323": ("a round too few", RING, "range(tp - 1)", "range(tp - 2)"),
    "CD324": ("a round too many of a sum", SUM_RING, "range(tp - 1)", "range(tp)"),
    "CD325": ("additions that nothing orders", SUMS, "for i in range(1, tp) { send t[(rank + i) mod tp] to (rank + i) "
              "mod tp adding }", "for d in range(tp) { if d != rank { send t[d] to d adding } }"),
    "CD326": ("pairs that are none", EXCHANGE, "xor(rank, pow2(k))", "(rank + pow2(k)) mod tp"),
    "CD327": ("chunks of one step alone", ENGINE, "via = copy_engine", "chunk = 4 per shard"),
    "CD340": ("a rank that is not there", RING, "to (rank + 1) mod tp", "to rank + 1"),
    "CD341": ("a division by 0", RING, "to (rank + 1) mod tp", "to (rank + 1) mod (tp - 4)"),
    "CD342": ("a step to itself", RING, "to (rank + 1) mod tp", "to rank mod tp"),
    "CD343": ("shards cut too finely", RING, "t[(rank - i) mod tp]", "t[(rank - i) mod tp] part 0 of 65"),
    "CD344": ("a copy engine that passes on", ENGINE, "t[(rank - 2) mod tp] to (rank + 1) mod tp",
              "t[(rank - 2) mod tp] to (rank + 1) mod tp with { via = copy_engine }"),
    "CD355": ("a tile that ends inside a row", ELEMENTS, "BLOCK = 32", "BLOCK = 128"),
    "CD360": ("a tile of the library's", LIBRARY, "= library", "= library, tile = 16x16x16"),
    "CD361": ("a ring of the library's addends", LIBRARY, "= library", "= library, route = ring"),
    "CD362": ("more than the library's product", LIBRARY, "(x @ w,", "(x @ w * 2,"),
}  # fmt: skip


def unrolled(text, rows=201):
    checked = check_source(Source("p.chunk", text))
    assert checked.report.diagnostics == (), checked.report.diagnostics
    return unroll(checked.schedule, checked.schedule.ops[0], 4, [{"M": rows}, {"M": rows}])


def changed(plan, which, change):
    """The plan with the first task changed of which `which` is true, and for which `change` has something to change."""
    for i, t in enumerate(plan.tasks):
        if which(t):
            return replace(plan, tasks=(*plan.tasks[:i], change(t), *plan.tasks[i + 1 :]))
    raise AssertionError("no such task")


def carried(t):
    return t.kind == "move" and len(t.accesses) > 1 and t.waits


def adds(t):
    return t.kind == "reduce" and any(a.act is Act.ADD for a in t.accesses)


def needs(t):
    return t.kind == "tile" and any(a.act is Act.NEED for a in t.accesses)


def each(t, act, change):
    """A task with its accesses of a kind changed."""
    return replace(t, accesses=tuple(change(a) if a.act is act else a for a in t.accesses))


def moved(region, rows):
    return replace(region, row0=region.row0 + rows, row1=region.row1 + rows)


def beyond(plan):
    return changed(plan, carried, lambda t: each(t, Act.COPY, lambda a: replace(a, region=moved(a.region, 10**6))))


def no_wait(plan):
    return changed(plan, lambda t: carried(t) and len(t.waits) > 1, lambda t: replace(t, waits=t.waits[:1]))


def a_circle(plan):
    return changed(plan, carried, lambda t: replace(t, waits=(*t.waits, *t.signals)))


def later_first(plan):
    """Each rank's transfers in the opposite order, on the lane that carries them."""
    back = {}
    for rank in range(plan.world):
        at = [i for i, t in enumerate(plan.tasks) if t.kind == "move" and (t.rank, t.call) == (rank, 0)]
        back |= dict(zip(at, reversed(at), strict=True))
    swapped = [plan.tasks[back.get(i, i)] for i in range(len(plan.tasks))]
    after = [replace(t, after=tuple(back.get(i, i) for i in t.after)) for t in swapped]
    return replace(plan, tasks=tuple(after))


def not_staged(plan):
    return changed(plan, lambda t: t.kind == "stage", lambda t: replace(t, accesses=()))


def added_twice(plan):
    return changed(plan, adds, lambda t: replace(t, accesses=(*t.accesses, t.accesses[-1])))


def not_added(plan):
    return changed(plan, adds, lambda t: replace(t, accesses=tuple(a for a in t.accesses if a.act is not Act.ADD)))


def a_row_off(plan):
    def off(a):
        return replace(a, origin=(a.origin[0] + 1, a.origin[1]))

    return changed(plan, needs, lambda t: each(t, Act.NEED, off))


def another_tensor(plan):
    return changed(plan, needs, lambda t: each(t, Act.NEED, lambda a: replace(a, what="w")))


def written_again(plan):
    made = next(t for t in plan.tasks if t.kind == "reduce" and t.accesses)
    return changed(plan, lambda t: (t.rank, t.call) == (made.rank, made.call) and t.name.endswith("f_y_sum ends"),
                   lambda t: replace(t, accesses=(made.accesses[0],)))  # fmt: skip


IN_PLANS = {  # rule: (what is planted, a right spec, the plan with it)
    "CD301": ("rows beyond a buffer", SUM_RING, beyond),
    "CD302": ("a wait left out", SUM_RING, no_wait),
    "CD303": ("a transfer waits for its own signal", SUM_RING, a_circle),
    "CD304": ("transfers in the opposite order", LANES, later_first),
    "CD305": ("a shard that is not staged", LANES, not_staged),
    "CD306": ("an arrival added once more", SUM_RING, added_twice),
    "CD307": ("an arrival not added", SUM_RING, not_added),
    "CD308": ("rows one off", LANES, a_row_off),
    "CD309": ("another tensor", LANES, another_tensor),
    "CD310": ("rows stored again after the tiles", SUM_RING, written_again),
}


def test_every_rule_of_plans_has_a_planted_fault():
    rules = {code for code in load_rules() if code.startswith("CD3")}
    assert rules == {*IN_TEXTS, *IN_PLANS} and not {*IN_TEXTS} & {*IN_PLANS}
    planted = [what for what, *_ in (*IN_TEXTS.values(), *IN_PLANS.values())]
    assert len(set(planted)) == len(rules)


@pytest.mark.parametrize("code", IN_TEXTS)
def test_a_fault_in_the_text_of_a_plan_is_found(code):
    _, right, old, new = IN_TEXTS[code]
    assert check_source(Source("p.chunk", right)).report.diagnostics == ()
    assert right.count(old) == 1
    found = check_source(Source("p.chunk", right.replace(old, new))).report.diagnostics
    assert {d.code for d in found} == {code}


@pytest.mark.parametrize("code", IN_PLANS)
def test_a_fault_in_the_explicit_plan_is_found(code):
    _, spec, plant = IN_PLANS[code]
    right = unrolled(spec)
    assert prove(right, programs=1) == []
    assert code in {r.code for r in prove(plant(right), programs=1)}
