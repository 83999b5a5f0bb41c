"""Where one way of a communication gives way to another: data, and derived from the recorded rows."""

import sys
from pathlib import Path

from chunkdsl.cost.baseline import collective_us
from chunkdsl.cost.constants import machine
from chunkdsl.lower.crossovers import crossover, crossovers
from chunkdsl.pipeline import check_source
from chunkdsl.plan.unroll_exchange import form_of, payload_words
from chunkdsl.source import Source

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))
import model_errors

SMALL = """mesh tp[2] over nvlink
dim T = 1..4096
tensor p : bf16[T, 2048] sum tp
op f(p) -> y { y = all_reduce(p) with { algorithm = one_shot, validity = word } }
"""


def last_where(rows, faster):
    """The largest payload, in bytes, up to which it is the faster one in every row; they must not alternate."""
    won = [faster(r) for r in rows]
    count = won.index(False) if False in won else len(won)
    assert not any(won[count:]), "the two alternate: there is no crossover"
    return rows[count - 1]["kib"] * 1024 if count else 0


def test_the_crossovers_between_forms_are_the_measured_ones():
    """Of two ranks, where what a rank sends is its payload."""
    rows = model_errors.recorded()["forms"]
    assert crossover("mark") == last_where(rows, lambda r: r["word"] < r["mark"]) == 32 * 1024
    assert crossover("wide_mark") == last_where(rows, lambda r: r["mark"] < r["marks"]) == 512 * 1024
    assert crossover("wide_word") == last_where(rows, lambda r: r["word"] < r["words"]) == 512 * 1024


def test_one_round_is_the_faster_one_in_every_measured_row():
    rows = model_errors.recorded()["small"]
    assert last_where(rows, lambda r: r["marks"] < r["nccl"]) == rows[-1]["kib"] * 1024 < crossover("library")


def test_a_second_buffer_is_the_faster_one_in_every_measured_row():
    calls = model_errors.recorded()["calls"]["rows"]
    rows = sorted(({"kib": r["mib"] << 10} | r for r in calls), key=lambda r: r["kib"])
    assert last_where(rows, lambda r: r["two_us"] < r["one_us"]) == rows[-1]["kib"] * 1024 <= crossover("buffers")


def test_a_table_whose_ways_alternate_has_no_crossover():
    import pytest

    rows = [{"kib": k, "a": a} for k, a in ((4, 1), (8, 3), (16, 1))]
    with pytest.raises(AssertionError, match="alternate"):
        last_where(rows, lambda r: r["a"] < 2)


def test_every_crossover_says_where_it_comes_from():
    from test_constants import faults

    assert {name: faults(figure) for name, figure in crossovers().items() if faults(figure)} == {}


def test_the_form_follows_what_a_rank_sends():
    """The same on every rank: payload and world size alone decide."""
    exchange = check_source(Source("small.chunk", SMALL)).schedule.ops[0].exchange
    for world, most in ((2, 8), (3, 4), (5, 2), (9, 1)):  # rows of 4 KiB that fit 32 KiB in all
        for rows, name in ((most, "word"), (most + 1, "mark")):
            assert form_of(exchange, payload_words(exchange, {"T": rows}), world).name == name


def test_the_library_is_predicted_to_win_somewhere_above_its_crossover():
    """Eight ranks: one round sends seven payloads, the library's two rounds less than two."""
    from chunkdsl.cost.predict import predict
    from chunkdsl.plan.unroll import unroll

    schedule, m = check_source(Source("small.chunk", SMALL)).schedule, machine("h200", "nvlink")
    op = schedule.ops[0]

    def gain(rows):
        library = collective_us(4096 * rows, 8, 2, m, adds=True)
        return library / predict(op, unroll(schedule, op, 8, [{"T": rows}]), m).total

    at = crossover("library") // 7 // 4096
    assert gain(at) > 1 > gain(4096)
