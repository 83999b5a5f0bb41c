"""Gates by what was measured: where they close, that they go by way of calling, and which sizes would tell more."""

import pytest
from tuned_specs import CALLS, Table, empty, found

from chunkdsl.ir.policy import FuseFrom
from chunkdsl.ir.types import DimRange
from chunkdsl.tune.evidence import Result
from chunkdsl.tune.gates import CAPTURED, EAGER, gate_of, gate_reason, next_size
from chunkdsl.tune.scores import ranking, score
from chunkdsl.tune.search import search

M = DimRange("M", 1, 16384)


def results(graph, eager=None):
    """Of the ratios to the library's time, by size."""
    made = []
    for size, ratio in graph.items():
        one = ((eager[size],), (1.0,)) if eager else ((), ())
        made.append(Result("f", 2, (("M", size),), (), (ratio,), (1.0,), "", *one))
    return made


def gate(graph, eager=None, how=(CAPTURED, EAGER)):
    return gate_of(empty().with_more(results(graph, eager)), "f", 2, how)


@pytest.mark.parametrize(
    ("ratios", "least"),
    [
        ({512: 0.9, 2048: 0.9, 4096: 0.9}, 512),
        ({512: 1.2, 2048: 0.9, 4096: 0.9}, 2048),
        ({512: 1.2, 2048: 1.009, 4096: 0.9}, 2048),
        ({512: 1.2, 2048: 1.011, 4096: 0.9}, 4096),
        ({512: 0.5, 2048: 1.2, 4096: 0.9}, 4096),
        ({512: 0.5, 2048: 0.5, 4096: 1.02}, None),
    ],
)
def test_fused_is_what_won_at_every_size_from_the_gate_on(ratios, least):
    """Also where the winner is not monotonic, and however much is won below."""
    assert gate(ratios) == FuseFrom(least, "M" if least else None)


def test_captured_and_eager_calls_have_gates_of_their_own_and_one_for_both_is_the_stricter():
    graph, eager = {512: 1.2, 2048: 0.9, 4096: 0.9}, {512: 2.0, 2048: 1.5, 4096: 0.9}
    assert gate(graph, eager, [CAPTURED]) == FuseFrom(2048, "M") and gate(graph, eager, [EAGER]) == FuseFrom(4096, "M")
    assert gate(graph, eager) == FuseFrom(4096, "M")
    tuned = empty().with_more(results(graph, eager))
    assert gate_reason(tuned, "f", 2, [EAGER]) == "tuned: the library is faster for M = 512; M = 2048"
    assert gate_reason(empty().with_more(results({512: 0.9})), "f", 2, [CAPTURED]).startswith("tuned: no slower")


def test_calls_one_by_one_must_have_won_in_graphs_too():
    """A host that keeps ahead of the device leaves what the device takes."""
    graph, eager = {512: 1.2, 2048: 0.9, 4096: 0.9}, {512: 0.6, 2048: 0.8, 4096: 0.9}
    assert gate(graph, eager, [EAGER]) == FuseFrom(2048, "M")


def test_a_size_that_was_measured_again_is_won_if_it_was_each_time_and_compares_no_settings():
    first = empty().with_more(results({512: 0.9, 2048: 0.9}, {512: 0.5, 2048: 0.9}))
    for ratio, least in ((0.99, 512), (1.6, 2048)):
        again = Result("f", 2, (("M", 512),), (), (0.9,), (1.0,), "", (ratio,), (1.0,), compared=False)
        tuned = first.with_more([again])
        assert gate_of(tuned, "f", 2, [EAGER]) == FuseFrom(least, "M")
        assert gate_of(tuned, "f", 2, [CAPTURED]) == FuseFrom(512, "M")
        assert ranking(tuned, "f", 2) == ranking(first, "f", 2)


def test_calls_that_were_not_measured_have_no_gate():
    assert gate({512: 0.9}, None, [EAGER]) is None and gate_of(empty(), "f", 2) is None


def test_of_two_dims_the_gate_goes_along_the_one_that_leaves_more_fused():
    """Whatever the other one is."""
    lost = {(512, 64), (512, 128)}
    sizes = [(m, n) for m in (512, 2048, 4096) for n in (64, 128)]
    made = [Result("f", 2, (("M", m), ("N", n)), (), (2.0 if (m, n) in lost else 0.9,), (1.0,)) for m, n in sizes]
    assert gate_of(empty().with_more(made), "f", 2) == FuseFrom(2048, "M")
    assert next_size({"M": M, "N": DimRange("N", 1, 256)}, made) is None


def test_an_op_without_sizes_is_fused_always_or_never():
    for ratio, least in ((0.9, 0), (1.1, None)):
        assert gate_of(empty().with_more([Result("f", 2, (), (), (ratio,), (1.0,))]), "f", 2) == FuseFrom(least)


@pytest.mark.parametrize(
    ("ratios", "size"),
    [
        ({1024: 1.2, 4096: 0.9}, 2048),  # between the last that is lost and the first that is won
        ({1024: 1.2, 2048: 0.9, 4096: 0.9}, None),
        ({1024: 0.9, 4096: 0.9}, 512),  # below, while it is won
        ({64: 0.9, 128: 0.9}, None),
        ({1024: 1.2, 4096: 1.2}, None),
    ],
)
def test_the_next_size_is_where_the_gate_may_yet_move(ratios, size):
    assert next_size({"M": M}, results(ratios)) == (None if size is None else (("M", size),))


def test_the_step_of_a_range_is_kept():
    assert next_size({"M": DimRange("M", 384, 16384, 384)}, results({768: 1.2, 6144: 0.9})) == (("M", 1920),)


def test_a_search_ends_with_the_gates_of_the_best_setting_alone():
    """Fused calls win from 300 rows on in graphs, from 3000 rows on one by one."""

    def times(op, setting, rows):
        fast = 0.8 if setting.get(("all_gather", "chunk")) == "8 MiB" else 0.95
        return fast if rows > 300 else 2.0, 1.0, fast if rows > 3000 else 2.0, 1.0

    clock, tuned = Table(times), empty()
    for more in search([found()["up"]], tuned, 2, clock.measure, lambda *_: True):
        tuned = more
    best = ranking(tuned, "up", 2)[0][1]
    assert ("all_gather", "chunk", "8 MiB") in best and {setting for _, setting, _ in clock.gates} == {best}
    assert {dict(sizes)["M"] for _, _, (sizes,) in clock.gates} == {512, 256, 2048}
    assert gate_of(tuned, "up", 2, [CAPTURED]) == FuseFrom(512, "M")
    assert gate_of(tuned, "up", 2, [EAGER]) == FuseFrom(4096, "M")
    assert {r.sizes for r in tuned.results if r.compared} == set(CALLS), "settings are compared at these alone"


def test_a_size_that_graphs_lose_is_not_won_one_by_one():
    """Below its gate an op takes the library's way, so a quick moment of the host says nothing of a setting."""
    def of(graph, eager):
        made = {r.sizes: r for r in results(graph, eager)}
        return score(made, made)[0]

    assert of({512: 1.3, 2048: 0.9}, {512: 0.6, 2048: 0.9}) == of({512: 1.3, 2048: 0.9}, {512: 1.4, 2048: 0.9})
    assert of({512: 0.9, 2048: 0.9}, {512: 0.6, 2048: 0.9}) < of({512: 0.9, 2048: 0.9}, {512: 0.9, 2048: 0.9})
