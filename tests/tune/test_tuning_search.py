"""What is tried, in which order, when it ends and what is best: on a clock that knows all times beforehand."""

from dataclasses import replace

import pytest
from tuned_specs import CALLS, SPEC, Table, empty, found

from chunkdsl.cost.transports import text_of
from chunkdsl.ir.policy import ChunkBytes, ChunkCount, Place
from chunkdsl.pipeline import check_source
from chunkdsl.source import Source
from chunkdsl.tune.scores import ranking
from chunkdsl.tune.search import next_jobs, progress, search
from chunkdsl.tune.space import schedule_of, spaces, unchosen, value_of


def run(clock, tuned=None, limit=1000):
    """Results of a search that measures at most `limit` settings."""
    left, tuned = [limit], tuned or empty()
    spaces = list(found().values())

    def may_go_on(job, done):
        left[0] -= 1
        return left[0] >= 0

    for more in search(spaces, tuned, 2, clock.measure, may_go_on):
        tuned = more
    return tuned


def by_chunk(op, setting, rows):
    """8 MiB gathers are fastest; small tiles fail."""
    if setting.get(("product", "tile")) == "128x128x64":
        return None
    chunk = setting.get(("all_gather", "chunk"), "")
    return rows / (10 if chunk == "8 MiB" else 8), rows / 9


def tried(spaces, key):
    return {text for _, parts in spaces["up"].options for part in parts for k, text in part if k == key}


def test_what_is_tried_is_legal_open_and_differs():
    for space in found().values():
        made = [schedule_of(space, space.base)]
        for label, parts in space.options:
            for part in parts:
                setting = tuple(sorted([*(s for s in space.base if s[0] != label), *((label, *p) for p in part)]))
                made.append(schedule_of(space, setting))
        assert None not in made and len({unchosen(m) for m in made}) == len(made) == space.count
    keys = {(label, key) for label, parts in found()["mlp"].options for part in parts for key, _ in part}
    products = {(label, key) for label in ("product", "product 2") for key in ("tile", "stages", "warps", "compute")}
    mine = {"all_gather": {"chunk", "side"}, "reduce_scatter": {"add", "order", "place", "route", "side", "via"}}
    assert keys <= {(label, key) for label, of in mine.items() for key in of} | products
    assert {("all_gather", "chunk"), ("reduce_scatter", "place"), ("product", "tile"), ("product 2", "compute")} <= keys

    tiles = tried(found(), "tile")
    assert "128x128x64" in tiles and "128x256x64" not in tiles, "that of the rules is no other"


def test_of_two_ranks_one_order_of_peers_is_tried(monkeypatch):
    """With a model so bad that all of its predictions are tried, whatever its error is today."""
    monkeypatch.setattr("chunkdsl.tune.space.margin", lambda name: 9.0)
    assert tried(found.__wrapped__(4), "route") == {"swizzle", "direct", "ring"}
    assert tried(found.__wrapped__(2), "route") == {"swizzle", "ring"}


@pytest.mark.parametrize(
    ("ranks", "policy", "tried_too"),
    ((4, "", {"one_shot"}), (2, "", {"two_shot"}), (2, ", algorithm = two_shot", set())),
)
def test_the_other_algorithm_is_tried_where_the_spec_leaves_it_open(monkeypatch, ranks, policy, tried_too):
    monkeypatch.setattr("chunkdsl.tune.space.margin", lambda name: 9.0)
    fixed = f"chunk = 4 MiB, route = swizzle, via = ldst, place = co_located, buffers = 1{policy}"
    text = SPEC[: SPEC.index("op ")].replace("x : bf16[M @ tp, 4096]", "x : bf16[M, 8192 @ tp]")
    op = f"op up(x, v) -> y {{ y = all_reduce(x @ v.T) with {{ {fixed} }} }}\n"
    made = check_source(Source("ar.chunk", text + op))
    assert not made.report.failed
    (space,) = spaces(made.program, ranks, {"up": CALLS})[1]
    assert tried({"up": space}, "algorithm") == tried_too
    assert (("all_reduce", "algorithm", "one_shot") in space.base) == (tried_too == {"two_shot"})


def test_the_library_s_products_have_the_transports_of_the_rules():
    """What is best for tiles, small chunks that programs carry, is not for calls of the library."""
    space = found()["mlp"]
    label, parts = next(option for option in space.options if option[0] == "product 2")
    best = (("all_gather", "chunk", "8 MiB"), ("product", "stages", "3"), ("reduce_scatter", "place", "own_sms(16)"))
    by_library, *others = space.step([name for name, _ in space.options].index(label), best)
    assert parts[0] == (("compute", "library"),)
    assert by_library == (("product", "stages", "3"), ("product 2", "compute", "library"))
    assert all(set(best) <= set(setting) for setting in others if setting)


def test_all_is_measured_once_at_all_sizes_and_the_fastest_wins():
    clock = Table(by_chunk)
    tuned = run(clock)
    assert len(clock.jobs) == len(set(clock.jobs)) == sum(s.count for s in found().values())
    assert all(sizes == CALLS for _, _, sizes in clock.jobs)
    for op in found():
        (ratio, _), best = ranking(tuned, op, 2)[0]
        assert ("all_gather", "chunk", "8 MiB") in best and ratio == pytest.approx(0.9)
    assert any(r.failed for r in tuned.results)


def test_later_collectives_are_tried_beside_the_best_of_the_earlier():
    clock = Table(by_chunk)
    run(clock)
    late = [setting for op, setting, _ in clock.jobs if op == "mlp"]
    base = [part for part in found()["mlp"].base if part[0] == "reduce_scatter"]
    late = [setting for setting in late if [part for part in setting if part[0] == "reduce_scatter"] not in ([], base)]
    assert base and late and all(("all_gather", "chunk", "8 MiB") in setting for setting in late)


@pytest.mark.parametrize("limit", [1, 5])
def test_a_search_goes_on_where_it_stopped(limit):
    whole, first, second = Table(by_chunk), Table(by_chunk), Table(by_chunk)
    wanted = run(whole)
    part = run(first, limit=limit)
    assert len(first.jobs) == limit and progress(list(found().values()), part, 2) == limit
    assert run(second, part) == wanted and first.jobs + second.jobs == whole.jobs


def test_time_that_runs_out_is_missed_by_all_ops_alike():
    clock = Table(by_chunk)
    run(clock, limit=6)
    count = {op: sum(job[0] == op for job in clock.jobs) / space.count for op, space in found().items()}
    assert abs(count["up"] - count["mlp"]) < 0.2


def test_a_new_size_is_measured_for_every_setting_and_nothing_again():
    tuned = run(Table(by_chunk))
    more = [replace(space, calls=(*CALLS, (("M", 2048),))) for space in found().values()]
    job, *_ = next_jobs(more, tuned, 2)
    assert job.setting == job.space.base and job.sizes == ((("M", 2048),),)


def test_where_the_library_is_faster_a_setting_is_not_judged():
    """Below the gate an op takes the library's way: only the larger size counts."""

    def times(op, setting, rows):
        fast = setting.get(("all_gather", "chunk")) == "8 MiB"
        return (5 if fast else 2, 1) if rows == 1024 else (0.8 if fast else 0.9, 1)

    (first, _), best = ranking(run(Table(times)), "up", 2)[0]
    assert ("all_gather", "chunk", "8 MiB") in best and first == pytest.approx(0.8**0.5)


@pytest.mark.parametrize(("gain", "stays"), [(1.01, True), (1.03, False)])
def test_the_op_without_tuning_stays_unless_it_is_clearly_beaten(gain, stays):
    def times(op, setting, rows):
        return (0.9 / gain if setting.get(("all_gather", "chunk")) == "8 MiB" else 0.9, 1)

    order = ranking(run(Table(times)), "up", 2)
    assert (order[0][1] == found()["up"].base) is stays


def test_nothing_is_best_where_everything_fails():
    tuned = run(Table(lambda op, setting, rows: None))
    assert ranking(tuned, "up", 2) == [] and next_jobs(list(found().values()), tuned, 2) == []


def test_results_of_other_ranks_are_other_results():
    tuned = run(Table(by_chunk))
    assert next_jobs(list(found(4).values()), tuned, 4)[0].setting == found(4)["up"].base
    moved = replace(tuned, results=tuple(replace(r, world=4) for r in tuned.results))
    assert ranking(moved, "up", 2) == [] and ranking(moved, "up", 4)


@pytest.mark.parametrize(
    ("key", "value"),
    [("chunk", ChunkBytes(4 << 20)), ("chunk", ChunkCount(8)), ("place", Place("own_sms", 16)), ("buffers", 2),
     ("place", Place("co_located")), ("route", "hierarchical(swizzle, ring)"), ("via", "copy_engine")],
)  # fmt: skip
def test_a_value_is_read_as_it_was_written(key, value):
    assert value_of(key, text_of(value)) == value


@pytest.mark.parametrize(
    ("key", "text"), [("chunk", "4"), ("chunk", "0 MiB"), ("place", "own_sms(0)"), ("buffers", "4"), ("tile", "1x1x1")]
)
def test_what_no_policy_says_is_no_value(key, text):
    assert value_of(key, text) is None
