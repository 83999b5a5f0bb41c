"""Rows of a simulated run: bits, numbers, gates, and the words in which a difference is told."""

from dataclasses import replace

import pytest
import torch

from chunkdsl.ir.policy import FuseFrom
from chunkdsl.pipeline import check_source
from chunkdsl.plan.schedule import Gate
from chunkdsl.source import Source
from chunkdsl.verify.inputs import draw
from chunkdsl.verify.reference import evaluate
from chunkdsl.verify.simulate import compare_results, differs, error, farthest, few, gated, same_bits

SPEC = """mesh tp[2] over nvlink
dim M = 1..64
tensor a : f32[M, 16 @ tp]
tensor w : f32[24, 16 @ tp]
op f(a, w) -> y { y = reduce_scatter(a @ w.T, M) }
"""


@pytest.fixture(scope="module")
def op():
    checked = check_source(Source("a.chunk", SPEC))
    return checked.program.ops[0], checked.schedule.ops[0]


def rows_of(op, change, integers=True, gate=None):
    """Rows for two calls of which `change(call, rank, fused, exact)` spoils what the ranks return."""
    typed, schedule = op
    schedule = schedule if gate is None else replace(schedule, gate=gate)
    inputs = [draw(typed, schedule, {"M": m}, 2, m, integers) for m in (9, 4)]
    results = [[], []]
    for call, x in enumerate(inputs):
        whole = evaluate(typed, x.whole)["y"].float()
        half = -(-x.dims["M"] // 2)
        for rank, part in enumerate((whole[:half], whole[half:])):
            fused, exact = part.clone(), part.clone()
            change(call, rank, fused, exact)
            results[rank].append(((fused,), (exact,)))
    return compare_results(schedule, typed, inputs, results, 2, "2 ranks", integers)


def test_what_is_equal_passes(op):
    made = rows_of(op, lambda *_: None)
    assert [(r.check, r.passed) for r in made] == [
        ("y = exact, bit by bit", True),
        ("y = float64 on small integers, equal", True),
    ]
    assert made[1].detail == "error 0.00e+00"


def test_one_bit_is_told_with_call_rank_and_place(op):
    def change(call, rank, fused, exact):
        if (call, rank) == (1, 1):
            exact[1, 2] += 0.5

    bits, numbers = rows_of(op, change)
    assert not bits.passed and numbers.passed
    assert bits.detail.startswith("call 1 (M = 4), rank 1: 1 of 48 elements, the first [1, 2] is ")


def test_a_lost_addend_fails_the_comparison_with_float64(op):
    def change(call, rank, fused, exact):
        for t in (fused, exact):
            t[0, 0] -= 1

    bits, numbers = rows_of(op, change)
    assert bits.passed and not numbers.passed
    assert "call 0 (M = 9): error" in numbers.detail and "allowed 0; farthest [0, 0]:" in numbers.detail


def test_a_small_error_passes_within_the_tolerance_and_only_there(op):
    def change(call, rank, fused, exact):
        fused *= 1 + 1e-6
        exact.copy_(fused)

    assert all(r.passed for r in rows_of(op, change, integers=False))
    assert not rows_of(op, change, integers=True)[1].passed


def test_what_was_never_written_fails(op):
    def change(call, rank, fused, exact):
        fused[0, 0] = exact[0, 0] = float("nan")

    bits, numbers = rows_of(op, change, integers=False)
    assert bits.passed and not numbers.passed and "error inf" in numbers.detail and "nan" in numbers.detail


@pytest.mark.parametrize(
    ("gate", "passed"),
    [(Gate(FuseFrom(5, "M"), "nccl"), True), (Gate(FuseFrom(5, "M"), "exact"), False), (None, False)],
)
def test_below_the_gate_only_fallback_exact_promises_bits(op, gate, passed):
    def change(call, rank, fused, exact):
        if call == 1:  # M = 4
            exact[0, 0] += 1e-6

    assert rows_of(op, change, integers=False, gate=gate)[0].passed is passed


def test_the_gate_is_the_spec_s(op):
    for gate, wanted in (
        (FuseFrom(0), [False] * 3),
        (FuseFrom(5, "M"), [True, False, False]),
        (FuseFrom(None), [True] * 3),
    ):
        apart = Gate(gate, "nccl", eager=Gate(FuseFrom(6, "M"), "nccl"))
        for captured, made in ((False, Gate(gate, "nccl")), (True, apart)):
            schedule = replace(op[1], gate=made)
            assert [gated(schedule, {"M": m}, captured) for m in (4, 5, 6)] == wanted
        assert [gated(schedule, {"M": m}) for m in (4, 5, 6)] == [True, True, False]


def test_only_the_first_findings_are_told():
    assert few(["a", "b"]) == "a\nb"
    assert few(["a", "b", "c", "d", "e"]) == "a\nb\nc\nand 2 more"


def test_bits_tell_zeros_and_nans_apart():
    zero, minus = torch.zeros(2), -torch.zeros(2)
    assert same_bits(zero, zero.clone()) and not same_bits(zero, minus) and not same_bits(zero, torch.zeros(3))
    assert differs(zero, minus) == "signs of zero or payloads of nan"
    assert differs(zero, torch.zeros(3)) == "shape (2,), not (3,)"
    assert differs(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0])) == "1 of 2 elements, the first [1] is 2, not 3"
    assert farthest(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 7.0])) == "farthest [1]: 2, not 7"
    assert error(torch.zeros(2), torch.zeros(3)) == float("inf") == error(torch.tensor([float("nan")]), torch.zeros(1))
