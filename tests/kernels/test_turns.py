"""Loops over gathered rows that wait for them chunk by chunk: what is found, what is written, what runs; mutants."""

from functools import cache

import pytest
from kernel_specs import ROOT, checked
from loop_specs import LOOPS, TURNS, WHOLE, along_k, attention
from test_fused_kernels import failures

from chunkdsl.kernels.rewrite import by_ticket, definitions, original
from chunkdsl.kernels.source import KernelSource
from chunkdsl.kernels.turn_splices import TURN_MARK
from chunkdsl.kernels.turns import Turns, candidate_loops

HEAD = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef kernel(x_ptr, T, N):\n"
LOOP = "    for k in {}:  # rows\n        # a comment\n        tl.load(x_ptr + k)\n"
UNFIT = {
    "a bound that the body changes": "    for k in range(0, T, 2):\n        T = T - 1\n",
    "its variable read later": "    for k in range(0, T):\n        x = k\n    tl.store(x_ptr, k)\n",
    "on one line": "    for k in range(0, T): tl.load(x_ptr + k)\n",
    "warp-specialised": LOOP.format("tl.range(0, T, warp_specialize=True)"),
    "flattened": LOOP.format("tl.range(0, T, flatten=True)"),
    "in a flattened one": "    for i in tl.range(0, N, flatten=True):\n        for k in range(T):\n            y = k\n",
    "unrolled": LOOP.format("tl.static_range(0, 4)"),
    "not a range": LOOP.format("(1, 2, 3)"),
    "a bound by name": LOOP.format("tl.range(0, T, step=2)"),
}
FOUND = {
    "attention": (1, 16),
    "attention, loop in a helper": (1, 16),
    "attention, causal": (1, 16),
    "product along K": (1, 32),
    "product along K, ring": (32, 32),
}
BASE = along_k(policy="chunk = 40 along M, via = copy_engine")
AWAIT = "await_turn(i, 0, K, BK, arrivals)"
TURN = "for chunk_turn in range(0, turns_of(arrivals)):"
MUTANTS = {
    "no wait": ("if (source != rank) & wanted:", "if (source == W) & wanted:"),
    "the next chunk's wait": ("word = source * cap + c\n", "word = source * cap + (c + 1) % chunks\n"),
    "one round too many": ("there = value_at(last,", "there = value_at(last + each,"),
    "all waits in front": (TURN, f"for i in range(0, turns_of(arrivals)):\n        {AWAIT}\n    {TURN}"),
}
RUN = ("attention, causal", "product along K, ring")


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def source(text, function="kernel"):
    return KernelSource("k.py", ROOT / "k.py", text, function)


@cache
def body_of(text):
    made = checked(text)
    assert [d.message for d in made.report.diagnostics] == []
    return next(n.body for n in made.schedule.ops[0].launches if n.body)


@pytest.mark.parametrize(
    ("loop", "wait", "inner"),
    [
        ("range(T)", "0, T, 1", "range(chunk_from, chunk_to)"),
        ("range(1, T)", "1, T, 1", "range(chunk_from, chunk_to)"),
        ("tl.range(0, tl.cdiv(T, 2), N, num_stages=3)", "0, tl.cdiv(T, 2), N",
         "tl.range(chunk_from, chunk_to, N, num_stages=3)"),
    ],
)  # fmt: skip
def test_a_loop_is_cut_by_its_head_alone(loop, wait, inner):
    made = source(HEAD + LOOP.format(loop))
    ((name, text),) = by_ticket(made, (Turns("kernel", 7, 1, 1),))
    assert name == "kernel_waits_7_by_ticket" and original(name) == "kernel"
    assert text.splitlines()[2:] == [
        f"    for chunk_turn in range(0, turns_of(arrivals)):{TURN_MARK}",
        f"      chunk_from, chunk_to = await_turn(chunk_turn, {wait}, arrivals){TURN_MARK}",
        f"      for k in {inner}:  # rows{TURN_MARK}",
        "        # a comment",
        "        tl.load(x_ptr + k)",
    ]


@pytest.mark.parametrize("name", UNFIT)
def test_a_loop_that_must_keep_its_form_is_no_candidate(name):
    assert candidate_loops(source(HEAD + UNFIT[name])) == ()


def test_the_callers_of_a_helper_hand_the_arrivals_through():
    made = source((ROOT / LOOPS).read_text(), "fused_attention")
    (loop,) = candidate_loops(made)
    found = dict(by_ticket(made, (Turns(loop.function, loop.line, 1, 16),)))
    names = [f"{name}_waits_{loop.line}_by_ticket" for name in ("attend", "fused_attention")]
    assert list(found) == names
    assert found[names[1]].count("programs_2, arrivals, ") == 3  # its head, and a call for each stage
    before = dict(definitions(made))["attend"].splitlines()
    added = [line for line in found[names[0]].splitlines() if line not in before]
    assert len(added) == 4  # its head and the three lines of the loop


@pytest.mark.parametrize("name", FOUND)
def test_a_loop_over_gathered_rows_is_understood(name):
    body = body_of(TURNS[name])
    assert (body.fetched.gathered, [(t.lead, t.each) for t in body.turns]) == ("turns", [FOUND[name]])


@pytest.mark.parametrize("name", WHOLE)
def test_another_loop_waits_for_all_rows(name):
    body = body_of(WHOLE[name])
    assert (body.fetched.gathered, body.turns) == ("whole", ())


@pytest.mark.parametrize("name", RUN)
def test_a_kernel_that_waits_in_its_loop(name, tmp_path):
    assert failures(TURNS[name], tmp_path, 2, dims=(53, 1, 20)) == []


def test_persistent_programs_that_read_any_rows_keep_their_loop_over_tiles(tmp_path):
    """Told that there are more programs than tiles, while there is a ticket for each program, they lost tiles."""
    assert failures(attention("attend_flattened"), tmp_path, 2, dims=(53,)) == []


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_of_the_turns_is_caught(name, tmp_path):
    assert failures(BASE, tmp_path, 2, MUTANTS[name], (53,))


def test_the_base_of_the_mutants_is_right(tmp_path):
    assert failures(BASE, tmp_path, 2, dims=(53,)) == []
