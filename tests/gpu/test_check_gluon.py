"""The check of kernels of specialised warps, without a GPU: what it instruments, and what it takes for a difference."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from check_gluon import SIGNAL, STORED, WAIT, WHOLE, differences, early, instrumented, noted
from planned_words import planned_words

from chunkdsl import pipeline
from chunkdsl.parsing import parse_python
from chunkdsl.render.module import render_module
from chunkdsl.source import Source

SPEC = """mesh tp[2] over nvlink
dim M = 1..4096
dim F = 1024
dim H = 512
tensor a : bf16[M, F @ tp]
tensor v : bf16[H, F @ tp]
op down(a, v) -> y {
    y = reduce_scatter(a @ v.T, M) with { tile = 128x256x64, chunk = 256 along M, route = swizzle, place = co_located }
}
"""


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    path = tmp_path_factory.mktemp("gluon") / "down.chunk"
    path.write_text(SPEC)
    return str(path)


def test_every_wait_and_signal_of_an_instrumented_module_leaves_a_note(spec):
    text = render_module(pipeline.read_one(spec).schedule, (2,))
    right = instrumented(text)
    added = right.count("note(") - text.count("note(")
    assert added == 3 + 2 + 3 and parse_python(right), "waits, signals; the producer's, a storer's tiles"
    for line in ("bulk_wait(NVIDIA)", "elif ok != 0:"):
        after = right.split(line)[1].splitlines()
        assert f"note({STORED}, out_counters" in after[2], f"behind {line}"
    assert parse_python(instrumented(text, "early")) and instrumented(text, "early") != right
    with pytest.raises(ValueError, match="nothing says when"):
        instrumented(re.sub(r"bulk_wait\(NVIDIA\).*|elif ok != 0:.*|hopper.mbarrier.*", "pass", text))
    with pytest.raises(ValueError, match="nothing to plant"):
        instrumented(text, "wait")
    gather = SPEC.replace("reduce_scatter(a @ v.T, M)", "all_gather(a) @ v.T")
    for old, new in (("a : bf16[M, F @ tp]", "a : bf16[M @ tp, F]"), ("[H, F @ tp]", "[H @ tp, F]"),
                     ("place = co_located", "via = copy_engine")):  # fmt: skip
        gather = gather.replace(old, new)
    waits = render_module(pipeline.check_source(Source("gather.chunk", gather)).schedule, (2,))
    assert parse_python(instrumented(waits, "wait")) and instrumented(waits, "wait") != instrumented(waits)
    with pytest.raises(ValueError, match="is there 0 times"):
        instrumented(text.replace("(seen - epoch >= 0)", "(seen >= epoch)"))


def test_what_is_noted_is_compared_with_the_plan_word_by_word(spec):
    (entry,) = planned_words(spec, [1000], 2)
    plan = entry["ranks"][0]
    kernel, flags = "down_y_partial", "down_y_arrived"
    assert plan[kernel]["waits"] == [] and plan[kernel]["signals"] == [[flags, o, i] for o in (0, 1) for i in (0, 1)]
    places = [(1 << 33, (1 << 33) + 16, flags, 0), (1 << 34, (1 << 34) + 16, flags, 1)]

    def notes(*given):
        return [word for kind, address, epoch in given for word in (kind, address & 0xFFFFFFFF, address >> 32, epoch)]

    mine = [(SIGNAL, base + 4 * i, 1) for base in (1 << 33, 1 << 34) for i in (0, 1)]
    tiles = [(kind, 8 * c, 2) for c, n in enumerate(plan[kernel]["tiles"]) for kind in [STORED] * n + [WHOLE]]
    marks = [("open_call", 0), (f"{kernel}_warps", 4 + len(tiles))]
    assert differences(plan, noted(notes(*tiles, *mine), marks, places), 1) == []

    def said(*given):
        found = noted(notes(*tiles, *given), [(f"{kernel}_warps", len(tiles) + len(given))], places)
        return differences(plan, found, 1)

    assert said(*mine[:3]) == [f"{kernel}_warps: no signal ('{flags}', 1, 1, 1)"]
    assert said(*mine, mine[0]) == [f"{kernel}_warps: signals ('{flags}', 0, 0, 1) 2 times"]
    assert "is not in the plan" in said(*mine, (WAIT, 1 << 33, 1))[0]
    assert len(said(*mine[:3], (SIGNAL, mine[3][1], 7))) == 2, "an epoch of another call"
    assert "unknown" in said(*mine, (SIGNAL, 64, 1))[0]


def test_tiles_that_go_to_every_rank_are_counted_once(tmp_path):
    path = tmp_path / "every.chunk"
    every = ("reduce_scatter(a @ v.T, M) with {", "all_reduce(a @ v.T) with { algorithm = one_shot,")
    path.write_text(SPEC.replace(*every))
    (entry,) = planned_words(str(path), [1000], 2)
    plan = entry["ranks"][1]["down_y_partial"]
    assert plan["tiles"] == [4, 4, 4, 4] and len(plan["signals"]) == 2 * len(plan["tiles"])


def test_a_chunk_is_whole_when_each_storer_of_all_of_its_tiles_is_done():
    first, second = ([(STORED, counter, 1)] * 4 for counter in (8, 16))
    whole = [(WHOLE, 8, 1)], [(WHOLE, 16, 1)]
    assert early([*first, *second[:3], *whole[0], second[3], *whole[1]], [2, 2]) == []
    assert early([*first[:2], *whole[0], *first[2:], *second, *whole[1]], [2, 2]) == [
        "a chunk of 2 tiles is signalled after 1"
    ]
    assert early([*first, *whole[0], *second], [2, 2]) == ["a chunk of 2 tiles is never whole"]
    empty = [(STORED, 8, 2)]  # without rows: the producer's
    assert early([*empty, *first, *whole[0]], [3]) == []
    assert early([*first, *whole[0]], [3]) == ["chunks have [2.0] tiles, those of the plan [3]"]
