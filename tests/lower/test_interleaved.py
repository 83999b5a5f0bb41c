"""`order = interleaved`: which tiles come when, what is proven, and what is refused."""

import pytest

from chunkdsl.check.worlds import prove_worlds
from chunkdsl.pipeline import check_source
from chunkdsl.plan.plan import Act
from chunkdsl.plan.unroll import unroll
from chunkdsl.source import Source

SPEC = """mesh tp[4] over nvlink
dim M = 1..300
dim H = 64
dim K = 128
tensor x : bf16[M, K @ tp]
tensor w : bf16[H, K @ tp]
tensor s : bf16[M @ tp, K]
tensor v : bf16[H, K]
op f(x, w) -> y { y = reduce_scatter(x @ w.T, M) with { tile = 16x16x16, chunk = 32 along M, order = interleaved } }
"""


def checked(*changes):
    """(schedule, codes of what is wrong) of the spec with these changes."""
    text = SPEC
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    made = check_source(Source("t.chunk", text))
    return made.schedule, [d.code for d in made.report.diagnostics]


def test_the_shards_of_all_ranks_take_turns_chunk_by_chunk_the_own_one_last():
    schedule, codes = checked()
    assert codes == []
    made = unroll(schedule, schedule.ops[0], 4, [{"M": 4 * 70}], {"M": 300})
    found = [t.accesses[-1] for t in made.tasks if t.kind == "tile" and t.rank == 1]
    assert all(a.act is Act.PUT for a in found)
    order = [(a.region.rank, a.origin[0] - 70 * a.region.rank, a.region.row1 - a.region.row0) for a in found]
    band, last = ([(owner, row, rows) for owner in (2, 3, 0, 1) for row, rows in of] for of in (
        [(0, 32)], [(32, 32), (64, 6)],
    ))  # fmt: skip
    assert order == band + last, "70 rows are 5 blocks: two a band, and three in the last one"


@pytest.mark.parametrize(("total", "more"), [
    ("reduce_scatter(x @ w.T, M)", ", side = pull, route = direct, buffers = 2"),
    ("all_reduce(x @ w.T)", ", via = tma"),
])  # fmt: skip
def test_it_is_proven(total, more):
    schedule, codes = checked(("reduce_scatter(x @ w.T, M)", total), ("interleaved", f"interleaved{more}"))
    assert codes == [] and schedule.ops[0].launches[0].interleaved
    for verdict in prove_worlds(schedule, (2, 4, 8)):
        assert verdict.proven, verdict


SUM = "reduce_scatter(x @ w.T, M)"
REFUSED = {
    "programs carry shard by shard": ("CD601", ("interleaved", "interleaved, place = own_sms(2)")),
    "a ring": ("CD601", ("interleaved", "interleaved, route = ring, place = co_located")),
    "to every rank": ("CD601", (SUM, "all_reduce(x @ w.T)"), ("interleaved", "interleaved, algorithm = one_shot")),
    "a gather": ("CD601", ("f(x, w)", "f(s, v)"), (SUM, "all_gather(s) @ v.T")),
    "an all_to_all": ("CD601", ("f(x, w)", "f(s)"), (SUM, "all_to_all(s, M -> K)"), ("tile = 16x16x16, ", "")),
    "by the library": ("CD361", ("tile = 16x16x16", "compute = library")),
    "of what arrives": (
        "CD603", ("f(x, w)", "f(s, w)"), ("x @ w.T", "(all_to_all(s, M -> K) with { order = arrival }) @ w.T"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_other_tiles_keep_their_order(what):
    code, *changes = REFUSED[what]
    assert checked(*changes)[1] == [code]
