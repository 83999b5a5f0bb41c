"""Bodies of plans: the steps that they make for a world size, and the parametric form of those that have one."""

import pytest

from chunkdsl.diagnostics import Report
from chunkdsl.lower.plan_form import NoForm, find_form
from chunkdsl.lower.program import lower
from chunkdsl.pipeline import check_source
from chunkdsl.plan.form import Affine
from chunkdsl.source import Source
from chunkdsl.syntax.parse import parse


def routing(body, contract="all_gather", mesh="tp[4]", over="tp"):
    body = body.replace("\n", "\n    ")
    source = Source("p.chunk", f"mesh {mesh}\ndim G = 2\nplan p(t) : {contract} over {over} {{\n    {body}\n}}\n")
    report = Report(source)
    program = lower(parse(source, report), source, report)
    assert report.diagnostics == (), [d.message for d in report.diagnostics]
    return program.plans["p"]


def steps(made, world):
    flows = made.trace(world).order
    return sorted((f.issuer, f.number, f.step.action, f.source, f.step.peer) for f in flows)


FORMS = {
    "ring": "for i in range(tp - 1) { let s = (rank - i) mod tp send t[s] to (rank + 1) mod tp }",
    "left ring": "for i in range(tp - 1) { send t[(rank + i) mod tp] to (tp + rank - 1) mod tp }",
    "swizzle": "for i in range(1, tp) { send t[rank] to (rank + i) mod tp }",
    "backwards": "for i in range(1, tp) { send t[tp_rank] to (rank - i) mod tp }",
    "pull": "for i in range(tp - 1) { fetch t[(rank + i + 1) mod tp] from (rank + 1 + i) mod tp }",
    "pulled ring": "for i in range(tp - 1) { fetch t[(rank - 1 - i) mod tp] from (rank - 1) mod tp }",
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_says_what_the_body_does(name):
    """At every world size: the kernel's formulas, also as text, against the steps that were carried out."""
    made = routing(FORMS[name])
    assert made.form is not None and not made.tabled
    for world in (1, 2, 3, 5, 8):
        form, found = made.form, steps(made, world)
        action = "fetch" if form.fetch else "send"
        want = [(r, s, action, form.shard.at(r, s, world), form.peer.at(r, s, world))
                for r in range(world) for s in range(world - 1)]  # fmt: skip
        assert found == want
        for rank in range(world):
            came = [form.arriving.at(rank, s, world) for s in range(world - 1)]
            assert made.visits(world, leaving=False)[rank] == (rank, *came)
            for s in range(world - 1):
                for affine in (form.shard, form.peer, form.arriving):
                    text = affine.text()
                    assert eval(text, {"rank": rank, "step": s, "W": world}) == affine.at(rank, s, world)
                    assert no_negative_remainder(text, rank, s, world), text


def no_negative_remainder(text, rank, step, world):
    """A kernel's `%` has the sign of its left operand."""
    inner = text.removesuffix(" % W")
    return inner == text or eval(inner, {"rank": rank, "step": step, "W": world}) >= 0


@pytest.mark.parametrize("affine", [Affine(-3, -1, -1), Affine(0, 0, 0), Affine(5, 1, -1), Affine(0, -1, 1)])
def test_texts_of_formulas(affine):
    for world in (1, 2, 7):
        for rank in range(world):
            for step in range(world):
                text = affine.text()
                assert eval(text, {"rank": rank, "step": step, "W": world}) == affine.at(rank, step, world)
                assert no_negative_remainder(text, rank, step, world)


TABLES = {
    "has a loop inside the loop": (
        "for i in range(1, tp) { for h in range(G) { send t[rank] part h of G to (rank + i) mod tp } }"
    ),
    "moves parts": "for i in range(1, tp) { send t[rank] part 0 of 1 to (rank + i) mod tp }",
    "has an `if`": "for i in range(1, tp) { if i < 9 { send t[rank] to (rank + i) mod tp } }",
    "is not one loop": "lane 1 { for i in range(1, tp) { send t[rank] to (rank + i) mod tp } }",
    "has a lane": "for i in range(1, tp) { lane 1 { send t[rank] to (rank + i) mod tp } }",
    "one step for each other rank": "for i in range(tp) { send t[0] to 0 }",
    "`xor` is not affine": "for i in range(1, tp) { send t[rank] to xor(rank, i) }",
    "by more than one": "for i in range(1, tp) { send t[rank] to (rank + 3 * i) mod tp }",
}


@pytest.mark.parametrize("why", TABLES)
def test_other_bodies_become_tables_and_say_why(why):
    if "other rank" in why:  # and is no route
        with pytest.raises(NoForm, match=why):
            find_form(parsed(TABLES[why]), {})
        return
    made = routing(TABLES[why])
    assert made.form is None and made.tabled and why in made.why_not, made.why_not


def parsed(body):
    source = Source("p.chunk", f"plan p(t) : all_gather over tp {{\n    {body}\n}}\n")
    return parse(source, Report(source)).items[0]


def test_two_axes_name_shards_and_ranks_by_both():
    made = routing(
        "for n in range(1, node) { send t[node_rank, gpu_rank] to ((node_rank + n) mod node, gpu_rank) }\n"
        "for g in range(1, gpu) { for n in range(node) {\n"
        "    fetch t[n, (gpu_rank + g) mod gpu] from (node_rank, (gpu_rank + g) mod gpu)\n} }",
        mesh="node[2], gpu[4]", over="(node, gpu)",
    )  # fmt: skip
    for world in ((2, 4), (3, 2), (1, 4), (4, 1)):
        assert made.breaches(world) == () and made.trace(world).route.axes == world


def test_what_is_proven_for_one_size_may_fail_for_another():
    body = "for k in range(log2(tp)) { for j in range(pow2(k)) { send t[xor(rank, j)] to xor(rank, pow2(k)) } }"
    made = routing(body)
    assert [w for w in range(1, 17) if not made.breaches(w)] == [1, 2, 4, 8, 16]
    (breach,) = made.breaches(6)
    assert breach.code == "CD340" and "rank 4 at k = 1, j = 0" in breach.message and breach.line == 4


UNDEFINED = [
    ("send t[rank] to rank + 1", "CD340", "there is no rank 4: there are 4", "take it `mod` the number"),
    ("send t[rank + 1] to (rank + 1) mod tp", "CD340", "there is no shard 4", "take it `mod` the number"),
    ("send t[rank] part 2 of 2 to 0", "CD340", "there is no part 2 of 2", "of n parts there are 0 to n - 1"),
    ("send t[rank] part 0 of 0 to 0", "CD340", "there is no part 0 of 0", "a shard is cut into 1 part or more"),
    ("lane 64 { send t[rank] to 0 }", "CD340", "there is no lane 64", "lanes are 0 to 63"),
    ("let s = rank mod (tp - 4)", "CD341", "`mod` by 0", "the divisor is 1 or more: take `max(1, ...)`"),
    ("let s = cdiv(tp, rank)", "CD341", "division by 0", "the divisor is 1 or more: take `max(1, ...)`"),
    ("let s = log2(rank)", "CD341", "log2(0) does not exist", "log2 takes 1 or more"),
    ("let s = pow2(rank - 1)", "CD341", "pow2(-1) does not exist", "pow2 takes 0 to 62"),
    ("let s = xor(rank - 1, 1)", "CD341", "xor(-1, 1) does not exist", "xor takes numbers of 0 or more"),
    ("let s = pow2(60) * pow2(60)", "CD341", "is too large", "numbers go to 2^62"),
    ("send t[rank] to 0", "CD342", "rank 0 is its own peer", "leave the step out there with `if`"),
    ("for i in range(1000000) { let s = i }", "CD343", "more than 400,000 statements", "the steps that there are"),
]


@pytest.mark.parametrize("body, code, why, mend", UNDEFINED)
def test_each_cause_has_its_own_help(body, code, why, mend):
    source = Source("p.chunk", f"mesh tp[4]\nplan p(t) : all_gather over tp {{ {body} }}\n")
    report = Report(source)
    lower(parse(source, report), source, report)
    (found,) = report.diagnostics
    assert (found.code, found.severity.value) == (code, "error") and why in found.message and mend in found.help
    assert found.message.startswith("plan p on 4 ranks: rank ") and "(line 2)" in found.help


def test_a_step_that_travels_as_it_cannot_is_shown_at_the_step():
    """Not where the op takes the plan, and for a named policy where the step takes that."""
    for use, shown in (("{ via = multimem }", "via = multimem"), ("fast", "with fast")):
        text = (
            "mesh tp[4]\ndim M = 1..4096\ntensor x : bf16[M @ tp, 512]\ntensor w : bf16[512, 512 @ tp]\n"
            "policy fast { via = multimem }\nplan p(t) : all_gather over tp {\n"
            f"    for i in range(1, tp) {{ send t[rank] to (rank + i) mod tp with {use} }}\n}}\n"
            "op f(x, w) -> y { y = all_gather(x) @ w with { route = p } }\n"
        )
        source = Source("p.chunk", text)
        (found,) = check_source(source).report.diagnostics
        assert found.code == "CD601" and source.slice(found.span) == shown and "via = multimem" in found.message


def test_a_step_may_leave_via_and_chunk_to_the_op():
    made = routing("for i in range(1, tp) { send t[rank] to (rank + i) mod tp with { via = auto, chunk = auto } }")
    assert made.vias == {None} and made.chunk is None
