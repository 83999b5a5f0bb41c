"""Gates: one size and one fallback for an op, or a refusal."""

import pytest

from chunkdsl.ir.policy import FuseFrom
from chunkdsl.lower.gates import settle_gate
from chunkdsl.pipeline import check_source
from chunkdsl.plan.settled import Gate, Settled, Settlement
from chunkdsl.source import Source

HEAD = """mesh tp[2] over nvlink
dim M = 1..4096
dim N = 1..4096
dim H = 64
dim F = 64
tensor x : bf16[M @ tp, H]
tensor w : bf16[F @ tp, H]
tensor v : bf16[N @ tp, H]
tensor c : bf16[H, F @ tp]
"""
TWO = HEAD + """op f(x, w, c) -> y {
    h = all_gather(x) @ w.T              with { %s }
    y = reduce_scatter(h @ c.T, M)       with { %s }
}
"""


def gate(text):
    checked = check_source(Source("t.chunk", text))
    assert checked.report.diagnostics == ()
    return checked.schedule.ops[0].gate


def finding(text):
    (found,) = check_source(Source("t.chunk", text)).report.diagnostics
    return found


@pytest.mark.parametrize("first, second, expected", [
    ("", "", FuseFrom(0)),
    ("fuse_from = always", "", FuseFrom(0)),
    ("fuse_from = 512 along M", "", FuseFrom(512, "M")),
    ("fuse_from = 512 along M", "fuse_from = 1024 along M", FuseFrom(1024, "M")),   # the strictest
    ("fuse_from = 512 along M", "fuse_from = always", FuseFrom(512, "M")),
    ("fuse_from = never", "", FuseFrom(None)),
    ("fuse_from = 512 along M", "fuse_from = never", FuseFrom(None)),
])  # fmt: skip
def test_one_gate_of_two_statements(first, second, expected):
    found = gate(TWO % (first, second))
    assert (found.fuse_from.count, found.fallback) == (expected.count, "nccl")
    assert found.fuse_from.dim == expected.dim or not expected.count


@pytest.mark.parametrize("along, count", [("16 along H", 0), ("64 along H", 0), ("65 along H", None)])
def test_a_gate_along_a_fixed_dim_is_decided(along, count):
    """A gate along a dim of the collective that is 64 for ever."""
    text = HEAD + f"op f(x, w) -> y {{ y = all_gather(x) @ w.T with {{ fuse_from = {along} }} }}\n"
    checked = check_source(Source("t.chunk", text))
    assert checked.report.diagnostics == () and checked.schedule.ops[0].gate.fuse_from == FuseFrom(count)


def test_gates_along_two_dims_are_refused_at_the_second():
    text = HEAD + """op f(x, w, v) -> y, z {
    y = all_gather(x) @ w.T with { fuse_from = 16 along M }
    z = all_gather(v) @ w.T with { fuse_from = 32 along N }
}
"""
    found = finding(text)
    assert found.code == "CD603" and "two dims" in found.message
    assert text[found.span.start : found.span.end].startswith("fuse_from = ")


@pytest.mark.parametrize("first, second, captured, eager", [
    ("fuse_from = 512 along M", "", FuseFrom(512, "M"), FuseFrom(512, "M")),          # one key is for both
    ("fuse_from = 512 along M", "eager_from = 64 along M", FuseFrom(512, "M"), FuseFrom(64, "M")),
    ("eager_from = never", "", FuseFrom(0), FuseFrom(None)),
    ("eager_from = 64 along M", "eager_from = 128 along M", FuseFrom(0), FuseFrom(128, "M")),
    ("fuse_from = never", "eager_from = always", FuseFrom(None), FuseFrom(0)),
    ("fuse_from = 64 along M", "eager_from = 64 along M", FuseFrom(64, "M"), FuseFrom(64, "M")),
])  # fmt: skip
def test_calls_outside_of_graphs_may_have_a_gate_of_their_own(first, second, captured, eager):
    found = gate(TWO % (first, second))
    assert (found.of(True).at(2), found.of(False).at(2)) == (captured, eager)
    assert (found.eager is None) == (captured == eager)


def test_what_was_settled_of_eager_calls_yields_to_what_the_spec_says():
    checked = check_source(Source("t.chunk", TWO % ("", "")))
    (op,) = checked.program.ops
    settled, record = Settlement(), []
    settled[op, "eager_from"] = Settled(Gate(FuseFrom(96, "M"), "nccl", ((2, FuseFrom(96, "M")),)), "96 along M", "so")
    found = settle_gate(op, checked.program, checked.report, record, settled)
    assert found.of(True).at(2) == FuseFrom(0) and found.of(False).at(2) == FuseFrom(96, "M")
    assert ("eager_from", "96 along M", "so") in [(c.key, c.value, c.why) for c in record]
    for said, eager in (("fuse_from = 8 along M", FuseFrom(8, "M")), ("eager_from = 9 along M", FuseFrom(9, "M"))):
        checked, record = check_source(Source("t.chunk", TWO % (said, ""))), []
        (written,) = checked.program.ops
        settled[written, "eager_from"] = settled[op, "eager_from"]
        found = settle_gate(written, checked.program, checked.report, record, settled)
        assert found.of(False).at(2) == eager and "eager_from" not in [c.key for c in record]


def test_two_fallbacks_are_refused():
    found = finding(TWO % ("fallback = exact", "fallback = none"))
    assert found.code == "CD603" and "two fallbacks" in found.message


@pytest.mark.parametrize("value", ["nccl", "exact", "none"])
def test_the_fallback_of_any_statement_is_that_of_the_op(value):
    assert gate(TWO % ("", f"fallback = {value}")).fallback == value
    assert gate(TWO % (f"fallback = {value}", f"fallback = {value}")).fallback == value


def test_choices_say_what_was_left_out():
    def keys(first):
        ops = check_source(Source("t.chunk", TWO % (first, ""))).schedule.ops
        return [(c.key, c.value) for c in ops[0].choices if c.where == "f: op"]

    assert keys("") == [("fuse_from", "always"), ("fallback", "nccl")]
    assert keys("fallback = exact") == [("fuse_from", "always")]
    assert keys("fuse_from = never") == [("fallback", "nccl")]
