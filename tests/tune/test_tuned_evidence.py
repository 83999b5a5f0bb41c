"""The file of measurements: what is written is read, and nothing else is."""

import json

import pytest

from chunkdsl.tune.evidence import Malformed, Origin, Result, Tuned, dump, load

ORIGIN = Origin("ab12", "NVIDIA H200", (("chunkdsl", "0.1.0"), ("torch", "2.11.0")))
SETTING = (("all_gather", "chunk", "4 MiB"), ("all_gather", "route", "ring"), ("reduce_scatter", "buffers", "2"))
TUNED = Tuned(ORIGIN, (
    Result("f", 2, (("M", 64), ("K", 8)), SETTING, (5.0, 6.5, 5.5), (8.0, 8.0, 7.0)),
    Result("f", (2, 4), (), (), failed="no room"),
    Result("f", 2, (("M", 128),), (), (5.0,), (8.0,), "", (12.0,), (10.0,), compared=False),
))  # fmt: skip


def test_what_is_written_is_read():
    assert load(dump(TUNED)) == TUNED
    assert dump(load(dump(TUNED))) == dump(TUNED) and len(dump(TUNED).splitlines()) == 11


def test_a_ratio_is_of_medians_and_endless_where_it_failed():
    never = float("inf")
    assert [r.ratio for r in TUNED.results] == [5.5 / 8, never, 5 / 8]
    assert [r.ratios for r in TUNED.results] == [(5.5 / 8,), (never, never), (5 / 8, 12 / 10)]


def changed(*path, to):
    data = json.loads(dump(TUNED))
    at = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = to
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        (dump(TUNED)[:-20], "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "does not say"),
        (changed("format", to="a plan"), "does not say"),
        (changed("version", to=1), "it has version 1 of the format, this reads 2"),
        (changed("spec", to=None), '"spec" is missing'),
        (changed("rehearsal", to=0), '"rehearsal"'),
        (changed("versions", "torch", to=2), '"versions"'),
        (changed("results", to={}), '"results"'),
        (changed("results", 0, to=3), "a result is not an object"),
        (changed("results", 0, "world", to=[0]), '"world" is out of range'),
        (changed("results", 0, "world", to=[2, 2, 2]), "no world size"),
        (changed("results", 0, "world", to=[]), "no world size"),
        (changed("results", 0, "us", 1, to=0), '"us" is out of range'),
        (changed("results", 0, "us", 1, to=True), '"us" is out of range'),
        (changed("results", 0, "us", to=[5.0]), "rounds without times of both"),
        (changed("results", 2, "eager_us", to=[5.0, 6.0]), "rounds without times of both"),
        (changed("results", 0, "compared", to=1), '"compared"'),
        (changed("results", 0, "failed", to="but it did not"), "neither times nor a failure"),
        (changed("results", 1, "failed", to=""), "neither times nor a failure"),
        (changed("results", 0, "setting", to={"all_gather": "ring"}), '"setting"'),
        (changed("results", 0, "sizes", "M", to="64"), '"sizes"'),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_the_reason(text, why):
    with pytest.raises(Malformed, match=None) as found:
        load(text)
    assert why in str(found.value)
