"""Keys of a policy that no step of the plan takes are refused; and which world sizes a plan holds on is said."""

import pytest

from chunkdsl.check.worlds import prove_op
from chunkdsl.diagnostics import Report
from chunkdsl.lower.program import lower
from chunkdsl.lower.schedule import schedule_program
from chunkdsl.source import Source
from chunkdsl.syntax.parse import parse

HEAD = """mesh tp[4] over nvlink
dim M = 1..256
dim K = 64
dim N = 128
tensor x : bf16[M @ tp, K]
tensor w : bf16[N @ tp, K]
tensor o : bf16[M, K @ tp]
tensor v : bf16[N, K]
plan q(t) : all_gather over tp { for i in range(1, tp) { send t[rank] to (rank + i) mod tp%s } }
plan d(t) : all_to_all over tp {
    for i in range(1, tp) { send t[(rank + i) mod tp] to (rank + i) mod tp into t[rank] with { chunk = 8 per shard } }
}
"""
GATHER = "op f(x, w) -> y { y = all_gather(x) @ w.T with { route = q, %s } }\n"
DEAL = "op f(o, v) -> y { y = all_to_all(o, K -> M) @ v.T with { route = d, %s } }\n"
DOUBLING = """plan doubling(t) : all_gather over tp {
    for k in range(log2(tp)) { for j in range(pow2(k)) { send t[xor(rank, j)] to xor(rank, pow2(k)) } }
}
"""


def scheduled(text):
    """The schedule, (code, marked text) of each finding, and the report."""
    source = Source("idle.chunk", text)
    report = Report(source)
    program = lower(parse(source, report), source, report)
    made = schedule_program(program, report) if not report.diagnostics else None
    return made, [(d.code, text[d.span.start : d.span.end]) for d in report.diagnostics], report


@pytest.mark.parametrize(
    "step, op, idle",
    [
        ("chunk = 2 per shard", GATHER % "chunk = 4 per shard", "chunk = 4 per shard"),
        ("chunk = 2 per shard", GATHER % "chunk = 1 MiB", "chunk = 1 MiB"),
        ("chunk = 2 per shard", GATHER % "chunk = 2 per shard", None),
        ("chunk = 2 per shard", GATHER % "chunk = auto", None),
        ("via = tma", GATHER % "chunk = 4 per shard", None),
        ("via = copy_engine", GATHER % "via = tma", "via = tma"),
        ("via = copy_engine", GATHER % "via = copy_engine", None),
        ("", GATHER % "via = tma, chunk = 2 per shard", None),
        ("", DEAL % "chunk = 4 per shard", "chunk = 4 per shard"),
        ("", DEAL % "chunk = 8 per shard", None),
    ],
)
def test_a_key_that_every_step_says_itself_is_refused_at_the_op(step, op, idle):
    _, found, _ = scheduled(HEAD % (f" with {{ {step} }}" if step else "") + op)
    assert found == ([("CD265", idle)] if idle else [])


def test_a_step_that_says_nothing_takes_the_key():
    """One of two steps says its own `via`: the op's is for the other."""
    plan = " with { via = copy_engine } } if tp == 0 { send t[rank] to 0"
    assert scheduled(HEAD % plan + GATHER % "via = tma")[1] == []


def test_a_key_of_a_statement_may_be_for_another_collective_of_it():
    text = HEAD % " with { chunk = 2 per shard }" + "tensor u : bf16[K, N @ tp]\n"
    product = "(all_gather(x) with { route = q }) @ w.T"
    both = "op f(x, w, u) -> y {{ h = {}{}\n y = reduce_scatter(h @ u.T, M){} }}\n"
    inner = both.format(product, "", " with { chunk = 8 per shard }")
    assert scheduled(text + inner)[1] == []
    shared = "policy p { chunk = 8 per shard }\n" + both.format(product, " with p", " with p")
    assert scheduled(text + shared)[1] == []  # the reduction of the same op takes it
    alone = "policy p { chunk = 8 per shard }\n" + both.format(product, " with p", "")
    assert scheduled(text + alone)[1] == [("CD265", "chunk = 8 per shard")]


def test_a_plan_for_some_world_sizes_says_which():
    """Declared for a size that it does not fit, and proven for one."""
    said = "tried on 2, 3, 4, 6, 8 ranks, the plan holds on 2, 4, 8"
    _, found, report = scheduled(HEAD.replace("tp[4]", "tp[6]") % "" + DOUBLING)
    assert [code for code, _ in found] == ["CD340"] and said in report.diagnostics[0].help
    made, found, _ = scheduled(HEAD % "" + DOUBLING + (GATHER % "via = ldst").replace("= q", "= doubling"))
    assert found == []
    (refutation,) = prove_op(made, made.ops[0], 3).refutations
    assert refutation.code == "CD340" and said in refutation.counterexample


def test_a_plan_that_holds_nowhere_names_no_sizes():
    _, found, report = scheduled(HEAD % "" + "plan n(t) : all_gather over tp { send t[rank] to rank + 1 }\n")
    assert [code for code, _ in found] == ["CD340"] and "holds on" not in report.diagnostics[0].help
