"""What an unrolled plan holds: who sends which shard to whom in which order, chunks, signals, empty shards."""

import itertools

import pytest

from chunkdsl.pipeline import check_source
from chunkdsl.plan.dump import dump, load
from chunkdsl.plan.plan import Act, Region
from chunkdsl.plan.unroll import unroll
from chunkdsl.source import Source

HEAD = """mesh tp[4] over nvlink
dim M = 1..64
dim H = 64
dim F = 64
"""
GATHER = HEAD + """tensor x : bf16[M @ tp, H]
tensor w : bf16[F @ tp, H]
op f(x, w) -> y { y = all_gather(x) @ w.T with { tile = 16x16x16, %s } }
"""
SCATTER = HEAD + """tensor x : bf16[M, F @ tp]
tensor w : bf16[H, F @ tp]
op f(x, w) -> y { y = reduce_scatter(x @ w.T, M) with { tile = 16x16x16, %s } }
"""
REDUCE = SCATTER.replace("reduce_scatter(x @ w.T, M)", "all_reduce(x @ w.T)")
ONE_CHUNK = "chunk = 1 per shard"


def plan(text, policy, world=4, calls=({"M": 64},), bounds=None):
    checked = check_source(Source("t.chunk", text % policy))
    assert not checked.report.failed, checked.report.diagnostics
    return unroll(checked.schedule, checked.schedule.ops[0], world, list(calls), bounds or {"M": 64})


def moves(made):
    """(source rank, destination rank, shard) of each transfer, by the rank that issues it, in order of issue."""
    found = {rank: [] for rank in range(made.world)}
    for task in made.tasks:
        for access in task.accesses:
            if task.kind == "move" and access.act is Act.COPY:
                at = access.region if access.source.buffer == "x" else access.source  # a parameter has one shard
                found[task.rank].append((access.source.rank, access.region.rank, at.row0 // 16))
    return found


# ---- routes


@pytest.mark.parametrize("route, side, expected", [
    ("direct", "pull", {0: [(1, 0, 1), (2, 0, 2), (3, 0, 3)], 1: [(0, 1, 0), (2, 1, 2), (3, 1, 3)],
                        2: [(0, 2, 0), (1, 2, 1), (3, 2, 3)], 3: [(0, 3, 0), (1, 3, 1), (2, 3, 2)]}),
    ("direct", "push", {0: [(0, 1, 0), (0, 2, 0), (0, 3, 0)], 1: [(1, 0, 1), (1, 2, 1), (1, 3, 1)],
                        2: [(2, 0, 2), (2, 1, 2), (2, 3, 2)], 3: [(3, 0, 3), (3, 1, 3), (3, 2, 3)]}),
    ("swizzle", "pull", {0: [(1, 0, 1), (2, 0, 2), (3, 0, 3)], 1: [(2, 1, 2), (3, 1, 3), (0, 1, 0)],
                         2: [(3, 2, 3), (0, 2, 0), (1, 2, 1)], 3: [(0, 3, 0), (1, 3, 1), (2, 3, 2)]}),
    ("swizzle", "push", {0: [(0, 1, 0), (0, 2, 0), (0, 3, 0)], 1: [(1, 2, 1), (1, 3, 1), (1, 0, 1)],
                         2: [(2, 3, 2), (2, 0, 2), (2, 1, 2)], 3: [(3, 0, 3), (3, 1, 3), (3, 2, 3)]}),
    ("ring", "push", {0: [(0, 1, 0), (0, 1, 3), (0, 1, 2)], 1: [(1, 2, 1), (1, 2, 0), (1, 2, 3)],
                      2: [(2, 3, 2), (2, 3, 1), (2, 3, 0)], 3: [(3, 0, 3), (3, 0, 2), (3, 0, 1)]}),
])  # fmt: skip
def test_transfers_of_an_all_gather(route, side, expected):
    vias = ["copy_engine", "ldst", "tma"] if route != "ring" else ["ldst", "tma"]
    for via in vias:
        place = "" if via == "copy_engine" else ", place = own_sms(2)"
        made = plan(GATHER, f"{ONE_CHUNK}, route = {route}, side = {side}, via = {via}{place}")
        assert moves(made) == expected, via


@pytest.mark.parametrize("route, expected", [
    ("direct", {0: [(0, 1, 1), (0, 2, 2), (0, 3, 3)], 1: [(1, 0, 0), (1, 2, 2), (1, 3, 3)],
                2: [(2, 0, 0), (2, 1, 1), (2, 3, 3)], 3: [(3, 0, 0), (3, 1, 1), (3, 2, 2)]}),
    ("swizzle", {0: [(0, 1, 1), (0, 2, 2), (0, 3, 3)], 1: [(1, 2, 2), (1, 3, 3), (1, 0, 0)],
                 2: [(2, 3, 3), (2, 0, 0), (2, 1, 1)], 3: [(3, 0, 0), (3, 1, 1), (3, 2, 2)]}),
    # rank r begins with the shard of r - 1, which travels all the way round; each hop adds its own sum
    ("ring", {0: [(0, 1, 3), (0, 1, 2), (0, 1, 1)], 1: [(1, 2, 0), (1, 2, 3), (1, 2, 2)],
              2: [(2, 3, 1), (2, 3, 0), (2, 3, 3)], 3: [(3, 0, 2), (3, 0, 1), (3, 0, 0)]}),
])  # fmt: skip
@pytest.mark.parametrize("via", ["ldst", "tma"])
def test_transfers_of_a_reduce_scatter(route, via, expected):
    made = plan(SCATTER, f"{ONE_CHUNK}, route = {route}, via = {via}, place = own_sms(2)")
    assert moves(made) == expected


def partials(made):
    """(rank that computes, rank whose memory gets the addend, shard) in order of the tiles."""
    found = {rank: [] for rank in range(made.world)}
    for task in made.tasks:
        for a in task.accesses:
            if task.kind == "tile" and a.act is Act.PUT:
                found[task.rank].append((task.rank, a.region.rank, a.origin[0] // 16))
    return found


def test_tiles_that_push_store_into_the_owners_memory():
    found = partials(plan(SCATTER, f"{ONE_CHUNK}, route = swizzle, via = ldst, place = co_located"))
    assert found[1] == [(1, 2, 2), (1, 3, 3), (1, 0, 0), (1, 1, 1)]
    assert moves(plan(SCATTER, f"{ONE_CHUNK}, place = co_located"))[1] == []


def test_tiles_that_publish_keep_addends_for_the_owners_to_pull():
    made = plan(SCATTER, f"{ONE_CHUNK}, route = direct, via = ldst, side = pull")
    assert partials(made)[1] == [(1, 1, 0), (1, 1, 2), (1, 1, 3), (1, 1, 1)]
    sums = [t for t in made.tasks if t.kind == "reduce" and t.rank == 1]
    assert [a.source.rank for t in sums for a in t.accesses] == [0, 1, 2, 3]


def test_a_one_shot_all_reduce_sends_every_addend_to_every_rank():
    made = plan(REDUCE, f"{ONE_CHUNK}, algorithm = one_shot")
    assert [to for _, to, _ in partials(made)[2]] == [0, 1, 2, 3]


def test_a_two_shot_all_reduce_adds_at_the_owner_and_sends_totals():
    made = plan(REDUCE, f"{ONE_CHUNK}, algorithm = two_shot, route = direct")
    (total,) = [t for t in made.tasks if t.kind == "reduce" and t.rank == 2]
    assert [a.act for a in total.accesses] == [Act.COPY, Act.ADD, Act.ADD, Act.ADD, *[Act.COPY] * 3]
    assert [a.region.rank for a in total.accesses] == [2, 2, 2, 2, 0, 1, 3]


# ---- order of tiles


@pytest.mark.parametrize("policy, expected", [
    ("route = swizzle, via = copy_engine, side = pull", [1, 2, 3, 0]),
    ("route = swizzle, via = ldst, side = push", [1, 0, 3, 2]),
    ("route = direct, via = ldst", [1, 0, 2, 3]),
    ("route = ring, via = ldst", [1, 0, 3, 2]),
    ("route = ring, via = ldst, order = local_first", [1, 2, 3, 0]),
])  # fmt: skip
def test_tiles_of_rank_1_follow_arrival(policy, expected):
    made = plan(GATHER, f"{ONE_CHUNK}, {policy}")
    tiles = [t for t in made.tasks if t.kind == "tile" and t.rank == 1]
    assert [t.accesses[0].origin[0] // 16 for t in tiles] == expected
    assert [len(t.waits) for t in tiles] == [0, 1, 1, 1]  # the own shard was staged before the launch


# ---- chunks


def chunk_rows(made, rank, shard):
    """Rows of the chunks of a shard that arrive on a rank, in order."""
    return [
        (a.region.row0, a.region.row1) for t in made.tasks if t.kind == "move" for a in t.accesses
        if a.region.rank == rank and a.source.rank == shard
    ]  # fmt: skip


@pytest.mark.parametrize("chunk, rows, expected", [
    ("6 along M", 64, [(16, 22), (22, 28), (28, 32)]),                  # no multiple of the tile; the last is short
    ("512 B", 64, [(16, 20), (20, 24), (24, 28), (28, 32)]),            # 128 bytes a row
    ("3 per shard", 64, [(16, 22), (22, 28), (28, 32)]),                # ceil(16 / 3) rows
    ("32 along M", 64, [(16, 32)]),                                     # more than a shard
    ("6 along M", 57, [(16, 22), (22, 28), (28, 31)]),                  # shards of 15 rows, kept every 16
])  # fmt: skip
def test_chunks_of_shard_1(chunk, rows, expected):
    made = plan(GATHER, f"chunk = {chunk}, via = ldst, route = direct, side = pull", calls=[{"M": rows}])
    assert chunk_rows(made, 0, 1) == expected


def test_a_tile_of_many_chunks_waits_for_each():
    made = plan(GATHER, "chunk = 4 along M, via = ldst")
    tile = next(t for t in made.tasks if t.kind == "tile" and t.rank == 0 and t.waits)
    assert [made.signals[s].label for s in tile.waits] == ["(3, 0)", "(3, 1)", "(3, 2)", "(3, 3)"]


def test_a_chunk_is_signalled_by_all_its_tiles():
    """Two row blocks of two column blocks: one task that stands for all four, or the signal would come early."""
    made = plan(SCATTER, "chunk = 32 along M, place = co_located", world=2)
    givers = {}
    for task in made.tasks:
        for s in task.signals:
            if task.kind == "tile":
                givers.setdefault(s, []).append(task.count)
    assert givers and set(map(tuple, givers.values())) == {(2 * 4,)}


@pytest.mark.parametrize("rows", [0, 1, 3, 9])
@pytest.mark.parametrize("text, policy", [
    (GATHER, "via = copy_engine"), (GATHER, "via = ldst, place = co_located"), (GATHER, "route = ring"),
    (SCATTER, "place = co_located"), (SCATTER, "via = tma, place = own_sms(2)"), (SCATTER, "route = ring"),
    (REDUCE, "algorithm = one_shot"), (REDUCE, "algorithm = two_shot, side = pull"),
])  # fmt: skip
def test_short_and_empty_shards_exchange_the_same_signals(text, policy, rows):
    """Every chunk is signalled on every rank that waits for it, with rows or without: nobody is left waiting."""
    whole, part = (
        plan(text.replace("1..64", "0..64"), f"{policy}, chunk = 4 along M", calls=[{"M": m}]) for m in (4, rows)
    )
    for made in (whole, part):
        given = {s for t in made.tasks for s in t.signals}
        assert given == set(range(len(made.signals))) and {s for t in made.tasks for s in t.waits} <= given
    assert all(a.region.row0 < a.region.row1 for t in part.tasks for a in t.accesses)
    if rows != 9:  # 4 rows are one on each rank, and so are fewer: as many chunks, of which some are empty
        names = [{(s.flags, s.owner, s.label, s.signaller) for s in made.signals} for made in (whole, part)]
        assert names[0] == names[1]


# ---- calls


def test_calls_alternate_between_the_slots_and_write_results_of_their_own():
    made = plan(GATHER, "buffers = 2, via = ldst", calls=[{"M": 64}, {"M": 3}, {"M": 64}])
    used = {t.call: set() for t in made.tasks}
    for t in made.tasks:
        used[t.call] |= {(a.region.buffer, a.region.slot) for a in t.accesses if a.region.buffer != "y"}
    assert used == {0: {("f_x_gathered", 1)}, 1: {("f_x_gathered", 0)}, 2: {("f_x_gathered", 1)}}
    results = {(t.call, a.region.slot) for t in made.tasks for a in t.accesses if a.region.buffer == "y"}
    assert results == {(0, 0), (1, 1), (2, 2)}
    assert [b.slots for b in made.buffers if b.name in ("f_x_gathered", "y")] == [2, 3]


def test_buffers_and_words_are_sized_by_the_bounds():
    small = plan(GATHER, "chunk = 4 along M, via = ldst", calls=[{"M": 9}], bounds={"M": 64})
    large = plan(GATHER, "chunk = 4 along M, via = ldst", calls=[{"M": 64}])
    assert small.buffers == large.buffers
    words = {(s.flags, s.label): s.index for s in large.signals if s.label.startswith("(")}
    assert all(words[s.flags, s.label] == s.index for s in small.signals if s.label.startswith("("))
    assert {s.index for s in large.signals if s.label == "(3, 0)"} == {12}


def test_without_bounds_the_largest_call_is_the_bound():
    checked = check_source(Source("t.chunk", GATHER % "via = ldst"))
    op = checked.schedule.ops[0]
    calls = [{"M": 9}, {"M": 40}]
    assert unroll(checked.schedule, op, 2, calls) == unroll(checked.schedule, op, 2, calls, {"M": 40})


def test_one_rank_moves_nothing_and_computes_everything():
    for text, policy in itertools.product((GATHER, SCATTER, REDUCE), ("route = ring, via = ldst", "route = direct")):
        made = plan(text, policy, world=1)
        assert not [t for t in made.tasks if t.kind == "move"]
        needs = [a for t in made.tasks for a in t.accesses if a.act is Act.NEED and a.region.buffer == "y"]
        assert [a.region for a in needs] == [Region("y", 0, 0, 0, 64, 0, 64)]


def test_a_plan_saves_and_loads():
    made = plan(REDUCE, "chunk = 6 along M, route = ring", calls=[{"M": 64}, {"M": 3}])
    assert load(dump(made)) == made


def test_a_copy_engine_starts_behind_the_entry_barrier_and_is_joined():
    made = plan(GATHER, "via = copy_engine, side = pull")
    tasks = {t.name: i for i, t in enumerate(made.tasks)}
    copies = [t for t in made.tasks if t.lane.startswith("copies") and t.rank == 0]
    begin = made.tasks[copies[0].after[0]]
    barrier = next(t for t in made.tasks if t.kind == "barrier" and t.rank == 0)
    assert tasks[barrier.name] < tasks[begin.name] and len(barrier.waits) == 4
    (join,) = [t for t in made.tasks if t.rank == 0 and t.name.endswith("copy lanes join")]
    assert join.after == (tasks[copies[-1].name],)
    assert not any(t.waits for t in copies)  # copy engines cannot wait


# ---- launches side by side


@pytest.mark.parametrize("text, beside", [(SCATTER, ["f_y_sum"]), (REDUCE, ["f_y_sum", "f_y_out"])])
def test_sums_start_beside_the_product_and_end_behind_it(text, beside):
    made = plan(text, f"{ONE_CHUNK}, route = swizzle, place = co_located" + ", algorithm = two_shot" * (text is REDUCE))
    words = [t.name.partition(": ")[2] for t in made.tasks if t.rank == 0 and t.lane == "main"]
    order = ["f_y_partial", *beside]
    at = words.index("f_y_partial begins")
    assert words[at : at + 2 * len(order)] == [f"{n} begins" for n in order] + [f"{n} ends" for n in order]
    assert [lane.behind for lane in made.lanes if lane.launch in order] == ["", *order[:-1]]


@pytest.mark.parametrize("policy", ["route = ring, place = own_sms(2)", "route = swizzle, place = own_sms(2)"])
def test_sums_of_what_moves_carry_start_when_these_have_ended(policy):
    assert not any(lane.behind for lane in plan(SCATTER, f"{ONE_CHUNK}, {policy}").lanes)
