"""What a build takes from a file of measurements: values, gates, the words of `plan`, the module; and when nothing."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from tuned_specs import CALLS, SPEC, Table, checked, empty, found

from chunkdsl.cli import main
from chunkdsl.cost.choose import choose
from chunkdsl.diagnostics import Report
from chunkdsl.ir.policy import ChunkRows, FuseFrom
from chunkdsl.lower.schedule import schedule_program
from chunkdsl.render.module import render_module
from chunkdsl.tune.evidence import Result, dump
from chunkdsl.tune.search import search
from chunkdsl.tune.settle import settle_tuned


def times(op, setting, rows):
    """Gathers by 8 MiB are fastest; of 1024 rows the library is."""
    fast = setting.get(("all_gather", "chunk")) == "8 MiB"
    library = (0.5 if rows == 1024 else 1.0) * rows
    return (0.8 if fast else 0.9) * rows, library


@cache
def measured(world=2, clock=times):
    tuned = empty()
    for more in search([found(world)["up"]], tuned, world, Table(clock, world).measure, lambda *_: True):
        tuned = more
    return tuned


@cache
def by_model():
    return choose(checked().program, checked().schedule)


@pytest.fixture
def settled(tmp_path):
    """The stage of `build` and `plan` that settles what is open, with this file of results."""

    def read(results):
        (path := tmp_path / "open.tuned.json").write_text(results if isinstance(results, str) else dump(results))
        program, report = checked().program, Report(checked().program.source)
        settlement = settle_tuned(program, checked().schedule, by_model(), str(path), report)
        return SimpleNamespace(report=report, schedule=schedule_program(program, report, settlement))

    return read


def choices(made, op="up"):
    (made,) = (o for o in made.schedule.ops if o.name == op)
    return {(c.where.split(": ")[1], c.key): c for c in made.choices}


def codes(made):
    return [d.code for d in made.report.diagnostics]


def test_the_fastest_setting_is_taken_and_told(settled):
    made = settled(measured())
    op = made.schedule.ops[0]
    assert codes(made) == [] and op.launches[0].chunk == ChunkRows(1024, "")
    chunk = choices(made)["all_gather(x)", "chunk"]
    count = found()["up"].count
    assert chunk.value == "8 MiB" and chunk.why == f"tuned: 6.1 % faster than untuned, best of {count} settings"
    assert chunk.runner_up in ("2 MiB", "4 MiB", "16 MiB") and chunk.margin == pytest.approx((9 / 8) ** 0.5 - 1)
    via = choices(made)["all_gather(x)", "via"]
    assert via.value == "copy_engine" and via.why.startswith("tuned:")
    told = made.schedule.tuning.told
    assert told.startswith("on 2 x NVIDIA H200; M = 1024, 2048, 4096; 3 rounds of each; chunkdsl 0.1.0, torch 2.11.0")


def test_an_op_that_was_not_measured_is_as_the_model_has_it(settled):
    assert not any(c.why.startswith("tuned") for c in choices(settled(measured()), "mlp").values())


def test_gates_are_measured_for_the_ranks_that_were(settled):
    made = settled(measured())
    gate = made.schedule.ops[0].gate
    assert gate.at(2) == FuseFrom(2048, "M") and gate.at(4) == gate.fuse_from
    assert choices(settled(measured(4)))["op", "fuse_from"].value == "2048 along M"


def test_beside_the_library_s_products_is_told_what_the_rules_say_there(settled):
    by_library = (("product", "compute", "library"),)
    results = [Result("up", 4, CALLS[1], setting, (us,), (1.0,)) for setting, us in (((), 0.95), (by_library, 0.9))]
    made = settled(empty().with_more(results))
    told = choices(made)
    assert [n.library for n in made.schedule.ops[0].launches] == [True]
    assert told["product", "compute"].value == "library" and told["product", "compute"].runner_up == ""
    assert told["all_gather(x)", "chunk"].value == "1 per shard", "not the 4 MiB of tiles"
    assert ("product", "tile") not in told


def test_calls_one_by_one_have_a_gate_of_their_own(settled):
    results = [Result("up", 4, calls, (), (0.9,), (1.0,), "", (us,), (1.0,))
               for calls, us in zip(CALLS, (1.5, 0.9), strict=True)]  # fmt: skip
    made = settled(empty().with_more(results))
    gate, told = made.schedule.ops[0].gate, choices(made)
    assert gate.of(True).at(4) == FuseFrom(1024, "M") and gate.of(False).at(4) == FuseFrom(4096, "M")
    assert told["op", "eager_from"].why == "tuned: the library is faster for M = 1024"
    assert told["op", "fuse_from"].why == "tuned: no slower than the library where measured"


def test_results_for_the_ranks_of_the_mesh_go_first(settled):
    def other(op, setting, rows):
        return (0.8 if setting.get(("all_gather", "chunk")) == "2 MiB" else 0.9) * rows, rows

    both = measured().with_more(measured(4, other).results)
    made = settled(both)
    assert choices(made)["all_gather(x)", "chunk"].value == "2 MiB"
    assert " on 2 and 4 x NVIDIA H200;" in f" {made.schedule.tuning.told}"


def test_the_module_says_where_it_was_tuned_and_ranks_vote_on_it(settled):
    made = settled(measured())
    alone = replace(made.schedule, ops=made.schedule.ops[:1])
    text = render_module(alone, (2,))
    assert "\nTuned on 2 x NVIDIA H200; M = 1024, 2048, 4096;" in text
    assert f'    TUNED = "{made.schedule.tuning.digest}"\n' in text and len(made.schedule.tuning.digest) == 16
    again = settled(measured().with_more(measured(4).results))
    assert again.schedule.tuning.digest != made.schedule.tuning.digest
    assert "TUNED" not in render_module(replace(alone, tuning=None), (2,)).split("class Open(")[1]


def test_plan_shows_the_evidence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("open.chunk").write_text(SPEC)
    Path("open.tuned.json").write_text(dump(measured()))
    assert main(["plan", "open.chunk"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "tuned: 6.1 % faster than untuned, best of" in said
    assert "Tuned is what was measured on 2 x NVIDIA H200; M = 1024, 2048, 4096; 3 rounds of each;" in said


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"digest": "00"}, "CD035", "the spec has changed since"),
        ({"versions": (("chunkdsl", "9.9"),)}, "CD035", "measured with chunkdsl 9.9, this is 0.1.0"),
        ({"rehearsal": True}, "CD038", "its times are those of NVIDIA H200"),
    ],
)
def test_a_file_that_does_not_serve_is_named_and_not_used(settled, change, code, said):
    tuned = measured()
    made = settled(replace(tuned, origin=replace(tuned.origin, **change)))
    assert codes(made) == [code] and said in made.report.diagnostics[0].message
    assert not made.report.failed and made.schedule.tuning is None
    assert not any(c.why.startswith("tuned") for c in choices(made).values())


def test_a_best_setting_that_is_not_legal_is_not_used(settled):
    wrong = (("all_gather", "route", "ring"), ("all_gather", "via", "copy_engine"))
    made = settled(empty().with_more([Result("up", 2, CALLS[0], wrong, (1.0,), (2.0,))]))
    assert codes(made) == ["CD035"] and "up" in made.report.diagnostics[0].message
    assert {o.name for o in made.schedule.ops} == {"up", "mlp"}


def test_a_broken_file_stops_a_build(settled):
    made = settled(dump(measured())[:-9])
    assert codes(made) == ["CD034"] and made.report.failed
