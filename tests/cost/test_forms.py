"""`algorithm` and `add` of reductions behind products: what was measured as faster is taken where it was measured, all
else stays; and what was chosen may be written down."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "bench"))
from layer_rows import rankings

from chunkdsl.cost import choose_transport, forms
from chunkdsl.cost.choose import choose, trials_of
from chunkdsl.diagnostics import Report
from chunkdsl.lower.schedule import schedule_program
from chunkdsl.pipeline import check_source
from chunkdsl.source import Source

SPEC = """mesh tp[2] over nvlink
dim M = 1..8192
tensor a : bf16[M, 8192 @ tp]
tensor w : bf16[4096, 8192 @ tp]
op f(a, w) -> y { y = SUM with { fuse_from = alwaysMORE } }
"""
SCATTER, REDUCE = "reduce_scatter(a @ w.T, M)", "all_reduce(a @ w.T)"
BY_RULE = {SCATTER: (None, "behind"), REDUCE: ("two_shot", "behind")}


def settled(total, more="", *changes):
    """(what the model found, the op with it); `changes` of the spec."""
    text = SPEC.replace("SUM", total).replace("MORE", more)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    checked = check_source(Source("f.chunk", text))
    assert not checked.report.failed, [d.message for d in checked.report.diagnostics]
    found = choose(checked.program, checked.schedule)
    (op,) = schedule_program(checked.program, Report(checked.report.source), found).ops
    return {key: s for (_, key), s in found.items()}, op


def form(op):
    """(algorithm, add) of an op of one reduction."""
    one_shot = any(n.destination.everyone for n in op.launches)
    algorithm = "one_shot" if one_shot else "two_shot" if op.launches[-1].destination.kind == "local" and any(
        n.destination.kind == "broadcast" for n in op.launches) else None  # fmt: skip
    return algorithm, "in_tiles" if any(n.within for n in op.launches) else "behind"


def test_two_ranks_of_one_nvlink_get_what_was_measured_as_fastest():
    found, op = settled(SCATTER)
    assert form(op) == (None, "in_tiles")
    assert (found["add"].value, found["add"].runner_up) == ("in_tiles", "behind") and found["add"].margin > 0
    assert "faster than the rule on 2 x h200" in found["add"].why
    found, op = settled(REDUCE)
    assert form(op) == ("one_shot", "behind") and found["algorithm"].runner_up == "two_shot"
    assert "add" not in found, "nobody asks who adds up in one shot"
    assert form(settled(REDUCE, ", algorithm = two_shot")[1]) == ("two_shot", "in_tiles")
    assert form(settled(REDUCE, ", add = in_tiles")[1]) == ("two_shot", "in_tiles")


@pytest.mark.parametrize("total", [SCATTER, REDUCE])
@pytest.mark.parametrize(
    ("more", "changes"),
    [
        ("", [("tp[2]", "tp[4]")]),  # nobody measured it, and specialised warps add up for two ranks
        ("", [("nvlink", "pcie")]),
        ("", [("nvlink", "xgmi")]),
        (", tile = 128x128x64", []),  # Triton's kernel
        ("", [("bf16[M,", "f32[M,"), ("bf16[4096", "f32[4096")]),
        ("", [("8192 @", "256 @")]),  # a depth that Triton's kernel has
        (", place = own_sms(16)", []),
        (", side = pull, add = behind", []),
        (", order = interleaved", []),
        (", route = ring", []),
        (", compute = library", []),
    ],
)
def test_elsewhere_the_rules_stand(total, more, changes):
    if total == REDUCE and "pull" in more:
        more += ", algorithm = two_shot"
    assert form(settled(total, more, *changes)[1]) == BY_RULE[total]


@pytest.mark.parametrize("total", [SCATTER, REDUCE])
@pytest.mark.parametrize("more", ["", ", add = in_tiles", ", chunk = 2 MiB", ", buffers = 2", ", route = direct"])
def test_what_was_chosen_may_be_written_down_and_nothing_else_changes(total, more):
    found, op = settled(total, more)
    told = {key: s.shown for key, s in found.items()}
    assert told.keys() & {"algorithm", "add"} or "add" in more
    for keys in ([key] for key in told):
        again, written = settled(total, more + "".join(f", {key} = {told[key]}" for key in keys))
        assert written.launches == op.launches and written.buffers == op.buffers, keys
        assert {key: s.shown for key, s in again.items()} == {k: v for k, v in told.items() if k not in keys}


def test_a_form_that_goes_with_no_chosen_transport_has_its_own():
    """Triton's tiles leave sending to programs there, which cannot leave own tiles to add up."""
    more, place = ", tile = 128x128x64", "own_sms"
    assert settled(SCATTER, more, ("8192 @", "1024 @"))[0]["place"].shown.startswith(place)
    found, op = settled(SCATTER, f"{more}, add = in_tiles", ("8192 @", "1024 @"))
    assert ("place", "co_located") in {(c.key, c.value) for c in op.choices}
    assert form(op) == (None, "in_tiles") and "chunk" in found and not {"add", "place"} & found.keys()


def test_nothing_is_taken_that_is_not_predicted_faster(monkeypatch):
    few = ("1..8192", "1..256")
    found, op = settled(SCATTER, "", few)
    assert form(op) == (None, "behind") and found["add"].value is None and found["add"].runner_up == "in_tiles"
    assert found["add"].margin > 0
    margin = choose_transport.margin
    monkeypatch.setattr(choose_transport, "margin", lambda name: 0.5 if name == "form" else margin(name))
    assert form(settled(SCATTER)[1]) == (None, "behind")


def test_another_machine_than_the_measured_one_is_told_by_its_kernel(monkeypatch):
    monkeypatch.setattr(forms, "warp_shape", lambda *_: None)
    assert form(settled(SCATTER)[1]) == BY_RULE[SCATTER] and form(settled(REDUCE)[1]) == BY_RULE[REDUCE]


def test_the_form_that_is_taken_is_the_one_that_tuning_measured_as_faster():
    """Of each layer that was tuned, the values of the rules against those that differ from them in the form alone."""
    compared = 0
    for r in rankings():
        if r.op.startswith("gather"):
            continue
        ruled = "chunk = 4 MiB, place = co_located, route = swizzle" if "the rules" not in r.settings else "the rules"
        taken = "algorithm = one_shot" if r.op.startswith("reduce") else "add = in_tiles"
        at = {name: i for i, name in enumerate(r.settings)}
        assert r.measured[at[taken]] < r.measured[at[ruled]] and r.predicted[at[taken]] < r.predicted[at[ruled]], r.op
        compared += 1
    assert compared == 6


def test_tuning_weighs_transports_with_the_form_that_was_chosen():
    checked = check_source(Source("f.chunk", SPEC.replace("SUM", SCATTER).replace("MORE", "")))
    ((_, trials),) = trials_of(checked.program, checked.schedule)
    (v,) = trials.collectives
    values = [x for _, x in trials.tried(v)]
    assert values[0]["add"] == "in_tiles" and {x["place"].kind for x in values if "add" not in x} == {"own_sms"}
