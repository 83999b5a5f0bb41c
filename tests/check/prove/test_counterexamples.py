"""What a person reads: the text of a refutation, and the diagnostic made from it."""

from __future__ import annotations

from dataclasses import replace

from proof_plans import ROWS, drop_wait, find, gemm_rs, one_shot, ring_gather, rows, with_access

from chunkdsl.check import plans
from chunkdsl.check.prove import prove, to_diagnostic
from chunkdsl.diagnostics import Severity
from chunkdsl.source import Source

TEXT = "mesh tp[2]\n# two\n  x = all_reduce(h)  \nreduce here\n\nsix\nseven\neight\nnine"


def test_reuse_reads_as_a_path():
    (found,) = prove(one_shot(2, calls=2, buffers=1))
    assert found.message == (
        "rank 0, call 1 (publish block 0) writes payload of rank 0 while rank 1, call 0 (reduce block 0) reads it"
    )
    assert found.counterexample.splitlines() == [
        "on payload of rank 0, slot 0, rows 0..2, columns 0..8:",
        "  rank 1, call 0: reduce block 0 (line 4) reads it",
        "  rank 0, call 1: publish block 0 (line 3) writes it",
        "nothing orders the two. The last thing that rank 0, call 1 (publish block 0) knows of rank 1:",
        "    rank 1, call 0: publish block 0 (line 3)",
        "      -> signal arrived[1] on rank 0 ->",
        "    rank 0, call 0: reduce block 0 (line 4)",
        "      -> stream order ->",
        "    rank 0, call 0: end (line 9)",
        "      -> order of lane main ->",
        "    rank 0, call 1: start (line 1)",
        "      -> stream order ->",
        "    rank 0, call 1: publish block 0 (line 3)",
        "by then rank 1, call 0 (reduce block 0) need not be complete",
        "and 1 more like it",
    ]


def test_race_of_a_call_is_told_by_its_reader():
    """The reader is what should have waited, also where the plan lists it before the writer."""
    plan = gemm_rs(2, [2])
    (race,) = prove(drop_wait(plan, find(plan, "reduce chunk 0", 0, 0), 1))
    assert race.code == "CD302"
    assert race.message.startswith(
        "rank 0, call 0 (reduce chunk 0) reads stage of rank 0 while rank 1, call 0 (tile 0 of"
    )
    assert "Nothing on rank 1 is known to be complete before rank 0, call 0 (reduce chunk 0)." in race.counterexample


def test_content_tells_what_was_found_and_how_it_came():
    plan = ring_gather(3, calls=1)
    t = find(plan, "send shard 0, chunk 0", 1, 0)
    found = prove(with_access(plan, t, 0, source=rows("all", 1, 0, ROWS)))
    assert [r.code for r in found] == ["CD308"]
    assert found[0].counterexample.splitlines() == [
        "rank 2, call 0: tile of shard 0, chunk 0 (line 5)",
        "  needs x of call 0 from row 0, column 0 in all of rank 2, rows 0..2, columns 0..8 and finds x of call 0 from "
        "row 2, column 0",
        "  place: all of rank 2, slot 0, rows 0..2, columns 0..8",
        "  how it came there, the last first:",
        "    rank 1, call 0: send shard 0, chunk 0 (line 4)",
        "    rank 1, call 0: stage chunk 0 (line 3)",
        "    rank 1, call 0: start (line 1)",
    ]


def test_a_run_along_a_lane_is_told_by_its_ends():
    plan = gemm_rs(2, [2, 0, 2], empty_signals=False)
    (found,) = prove(plan)
    assert found.counterexample.splitlines()[6:11] == [
        "    rank 0, call 0: reduce chunk 0 (line 7)",
        "      -> stream order ->",
        "    rank 0, call 0: end (line 9)",
        "      -> order of lane main ->",
        "    rank 0, call 2: start (line 1)",
    ]


def test_names_that_say_their_rank_and_call_do_not_repeat_it():
    plan = one_shot(2, calls=2, buffers=1)
    tasks = tuple(replace(t, name=f"rank {t.rank}, call {t.call}: {t.name}") for t in plan.tasks)
    assert [str(r) for r in prove(replace(plan, tasks=tasks))] == [str(r) for r in prove(plan)]


def test_sum_names_the_missing_ranks():
    (found,) = prove(gemm_rs(4, [4], lost={(1, 0), (1, 3)}))
    assert found.kind == "coverage"
    assert "without the addend of ranks 0, 3" in found.message


def test_diagnostic_is_on_the_spec_line():
    source = Source("f.chunk", TEXT)
    (found,) = prove(one_shot(2, buffers=1))
    d = to_diagnostic(found, source)
    assert (d.code, d.name, d.severity) == ("CD401", "buffer-reused-too-early", Severity.ERROR)
    assert source.slice(d.span) == "x = all_reduce(h)"
    assert d.label == "writes it"
    assert [(source.slice(x.span), x.message) for x in d.labels] == [("reduce here", "reads it")]
    assert d.help.startswith("on payload of rank 0") and d.help.endswith("signal in every call")


def test_diagnostic_of_a_line_that_is_not_there():
    (found,) = prove(one_shot(2, buffers=1))
    d = to_diagnostic(found, Source("f.chunk", "one"))
    assert d.span is None and d.labels == ()


def test_every_code_makes_a_diagnostic():
    from example_plans import EXAMPLES

    source = Source("f.chunk", TEXT)
    for code, build in EXAMPLES.items():
        for found in prove(build(False)):
            d = to_diagnostic(found, source)
            assert (d.code, d.message) == (code, found.message)
            assert "\n" not in d.message and found.counterexample in d.help
    assert len(EXAMPLES) == len(plans._BY_CODE)
