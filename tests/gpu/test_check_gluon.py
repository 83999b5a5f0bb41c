"""The check of kernels of specialised warps, without a GPU: what it instruments, and what it takes for a difference."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from check_gluon import SIGNAL, STORED, WAIT, WHOLE, differences, early, flags_at, instrumented, noted
from gluon_in_python import notes_of, within
from planned_words import planned_words, words_of

from chunkdsl import pipeline
from chunkdsl.parsing import parse_python
from chunkdsl.plan.tile_kernels import warp_tiles
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
    entry, _ = planned_words(spec, [1000], 2)
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
    wide, narrow = (entry["ranks"][1]["down_y_partial"] for entry in planned_words(str(path), [1000], 2))
    assert wide["tiles"] == [4, 4, 4, 4] and len(wide["signals"]) == 2 * len(wide["tiles"])
    assert narrow == {**wide, "tiles": [8, 8, 8, 8]}, "twice as many tiles, for the same words"


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


# ---- what instrumented kernels note, run as Python on two ranks: most of all own tiles that add up what others sent

SUMS = """mesh tp[2] over nvlink
dim M = 1..2048
dim F = 512
dim H = 328
tensor a : bf16[M, F @ tp]
tensor v : bf16[H, F @ tp]
policy wide { tile = 128x256x64, chunk = 200 along M, add = in_tiles, place = co_located, buffers = 2 }
op stays(a, v) -> y { y = reduce_scatter(a @ v.T, M) with wide }
op travels(a, v) -> y { y = all_reduce(a @ v.T) with wide { algorithm = two_shot } }
op behind(a, v) -> y { y = reduce_scatter(a @ v.T, M) with wide { add = behind } }
"""
ROWS = 900  # 450 of a shard: four tiles high, three chunks
WIDE, NARROW = (shape.columns for shape in warp_tiles().shapes)  # two tiles side by side, or three


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    """(schedule, text of the module, its class)."""
    path = tmp_path_factory.mktemp("sums") / "sums.py"
    schedule = pipeline.check_source(Source("sums.chunk", SUMS)).schedule
    path.write_text(render_module(schedule, (2,)))
    spec = importlib.util.spec_from_file_location("sums", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return schedule, path.read_text(), module.Sums


def said_of(sums, name, rows, plant="", change=lambda text: text, columns=WIDE):
    """What the comparison says of both ranks in a call of an op whose instrumented text is changed."""
    schedule, text, cls = sums
    op, dims = next(op for op in schedule.ops if op.name == name), {"M": rows}
    ranks = words_of(schedule, op, dims, 2, columns)
    entry = {"op": name, "dims": dims, "world": 2, "columns": columns, "ranks": ranks}
    said = []
    for rank, (kernel, operation, words) in enumerate(notes_of(cls, change(instrumented(text, plant)), entry)):
        assert words
        found = noted(words, [(kernel, len(words) // 4)], flags_at(operation, entry["ranks"][0], rank))
        said += differences(entry["ranks"][rank], found, 1)
    return said


@pytest.mark.parametrize("columns", [WIDE, NARROW])
@pytest.mark.parametrize("name", ["stays", "travels", "behind"])
@pytest.mark.parametrize("rows", [1, 129, ROWS])
def test_kernels_note_what_the_plan_says(sums, name, rows, columns):
    """Of 1 row the second rank has none, and of 129 it has half of a tile's."""
    assert said_of(sums, name, rows, columns=columns) == []


PLANTED = {  # and what is said of it
    ("stays", "wait"): "no wait for",
    ("travels", "wait"): "no wait for",
    ("stays", "early"): "is signalled after",
    ("travels", "early"): "is signalled after",
    ("behind", "early"): "is signalled after",
    ("stays", "add"): "behind the wait for nothing, 0 in the plan",
    ("travels", "add"): "behind the wait for nothing, 0 in the plan",
    ("stays", "last"): "behind the wait for nothing, 0 in the plan",
}


@pytest.mark.parametrize("columns", [WIDE, NARROW])
@pytest.mark.parametrize(("name", "plant"), PLANTED)
def test_what_is_planted_in_them_is_found(sums, name, plant, columns):
    said = said_of(sums, name, ROWS, plant, columns=columns)
    assert any(PLANTED[name, plant] in text for text in said), said


KEEP, LOAD, ADD = (f"{{}}_y_partial_{what}" for what in ("keep", "load", "add_piece"))
MUTANTS = {  # op, rows, function, text, other text, what is said
    "the storer of a lower half does not wait": (  # but that of the upper one does, for the same words
        "travels", ROWS, KEEP, "ok = travels", "ok = tl.cast(1, tl.int32) if SIDE else travels",
        "behind the wait for nothing"),
    "a storer adds what the multiplier has added": (
        "stays", ROWS, KEEP, "if following >= 0:", "if True:", "complete with 8 pieces added up"),
    "the lower half is not added up": (
        "travels", 129, KEEP, "if True:", "if SIDE == 0:", "complete with 0 pieces added up"),
    "a tile is complete before it is added up": (
        "travels", 129, KEEP, "for i in range(4):", "note(6, state, (row // BM * 1024 + col // BN) * 4 + SIDE, state)\n"
        "                for i in range(4):", "complete with 0 pieces added up"),
    "tiles without rows do not wait": (
        "stays", 1, LOAD, "ok = stays", "ok = tl.cast(1, tl.int32) if True else stays", "no wait for"),
    "sums count in the chunks of addends": (
        "travels", ROWS, KEEP, "counters = tl.where(owner == rank", "counters = tl.where(owner < 0", "is never whole"),
    "sums are signalled to one rank": (
        "travels", ROWS, KEEP, "tl.where(owner == rank, W, 1)", "1", "no signal"),
}  # fmt: skip


COUNTED = "tiles_of_chunk = (", "tiles_of_chunk = 0 * (columns := tl.cdiv(n, 256)) + ("
OF_NARROW = {  # the same; with nothing to say of tiles of the plan's columns
    "the producer counts tiles of the plan's columns": ("stays", 1, LOAD, *COUNTED, "is signalled after"),
    "storers count them": ("behind", ROWS, KEEP, *COUNTED, "is signalled after"),
    "storers of sums count them": ("travels", ROWS, KEEP, *COUNTED, "is signalled after"),
    "tickets end with those of the plan's tiles": (
        "behind", 129, LOAD, "tl.maximum(tl.cdiv(n, BN), 1)", "tl.maximum(tl.cdiv(n, 256), 1)", "is never whole"),
    "rows lie where the plan's tiles have them": (
        "behind", ROWS, KEEP, "columns = tl.maximum(tl.cdiv(n, BN), 1)", "columns = tl.maximum(tl.cdiv(n, 256), 1)",
        "1) 2 times"),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_fault_that_is_not_planted_is_found_too(sums, mutant):
    name, rows, function, old, new, expected = MUTANTS[mutant]
    said = said_of(sums, name, rows, change=within(function.format(name), old, new))
    assert any(expected in text for text in said), said


@pytest.mark.parametrize("mutant", OF_NARROW)
def test_a_fault_of_narrow_tiles_is_found(sums, mutant):
    name, rows, function, old, new, expected = OF_NARROW[mutant]
    change = within(function.format(name), old, new)
    said = said_of(sums, name, rows, change=change, columns=NARROW)
    assert any(expected in text for text in said), said
    assert said_of(sums, name, rows, change=change) == []


def test_what_has_no_place_in_kernels_that_add_up_is_refused(sums):
    text = sums[1]
    with pytest.raises(ValueError, match="begins at 0 places"):
        instrumented(text.replace("for strip in range(", "for piece_of in range("))
    with pytest.raises(ValueError, match="nothing says when"):
        instrumented(re.sub(r"elif ok != 0:.*", "elif ok == 1:", text))
    sent = text[: text.index("# ---- sums.chunk:9")]
    with pytest.raises(ValueError, match="nothing to plant a wrong last"):
        instrumented(text.replace("def stays_y_partial_multiply", "def stays_y_partial_multiplier"), "last")
    assert parse_python(instrumented(sent, "add"))


def test_halves_of_own_tiles_are_planned_by_what_they_wait_for(sums):
    """The second rank has 64 of 129 rows, the upper half of its two tiles, and none of 1 row."""
    schedule = sums[0]
    word = ["stays_y_arrived", 1, 0]
    for rows, added, kept in ((129, [[[word], 2]], [[[], 2], [[word], 2]]), (1, [], [[[word], 4]])):
        made = words_of(schedule, schedule.ops[0], {"M": rows}, 2)[1]["stays_y_partial"]
        assert (made["added"], made["kept"]) == (added, kept)
        assert made["waits"] == [word] and made["tiles"] == [2], "what it sends counts in a chunk of the first rank's"
    behind = words_of(schedule, schedule.ops[2], {"M": 129}, 2)[1]["behind_y_partial"]
    assert behind["added"] == behind["kept"] == [] and behind["tiles"] == [2, 2]
