"""Shards, chunks, row blocks and walks: explicit numbers, and what must hold for all of them."""

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkdsl.interp import interpreting
from chunkdsl.ir.policy import ChunkCount, ChunkRows
from chunkdsl.ir.types import DimRef
from chunkdsl.pipeline import check_source
from chunkdsl.plan.geometry import Geometry, local_size, nominal_size
from chunkdsl.plan.routes import Walk
from chunkdsl.plan.schedule import Extent
from chunkdsl.runtime import device
from chunkdsl.source import Source

M = DimRef("M")
SPEC = """mesh tp[2] over nvlink
dim M = 1..4096
dim H = 64
dim N = 64
tensor x : bf16[M @ tp, H]
tensor w : bf16[H, N @ tp]
op f(x, w) -> y {{ y = all_gather(x) @ w with {{ tile = {bm}x64x32, chunk = {chunk}, via = ldst }} }}
"""


def gather_launch(chunk, bm):
    checked = check_source(Source("t.chunk", SPEC.format(bm=bm, chunk=chunk)))
    assert not checked.report.failed
    return checked.schedule.ops[0].launches[0]


def geometry(rows, world, pad=16):
    return Geometry.of(rows, False, pad, {}, world)


# ---- shards


@pytest.mark.parametrize("rows, world, shard, stride, heights", [
    (64, 4, 16, 16, [16, 16, 16, 16]),
    (61, 4, 16, 16, [16, 16, 16, 13]),   # a short shard
    (65, 4, 17, 32, [17, 17, 17, 14]),   # kept every 32 rows, whole tiles
    (9, 4, 3, 16, [3, 3, 3, 0]),         # an empty one
    (2, 4, 1, 16, [1, 1, 0, 0]),         # fewer rows than ranks
    (0, 4, 1, 16, [0, 0, 0, 0]),         # no rows: shards have one nominal row, so that chunks exist
    (5, 1, 5, 16, [5]),
])  # fmt: skip
def test_shards(rows, world, shard, stride, heights):
    g = geometry(rows, world)
    assert (g.shard, g.stride, [g.height(r) for r in range(world)]) == (shard, stride, heights)
    assert [local_size(Extent(rows, True), {}, world, r) for r in range(world)] == heights
    assert nominal_size(Extent(rows, True), {}, world) == heights[0]


def test_run_time_rows_and_the_whole_dim():
    g = Geometry.of(M, True, 16, {"M": 37}, 4)
    assert (g.rows, g.groups, g.shard, g.stride, g.height(0), g.height(1)) == (37, 1, 37, 48, 37, 0)
    assert local_size(Extent(M), {"M": 37}, 4, 3) == nominal_size(Extent(M), {"M": 37}, 4) == 37


# ---- chunks


@pytest.mark.parametrize("size, shard, rows, chunks", [
    (ChunkRows(8, "M"), 40, 8, 5),
    (ChunkRows(8, "M"), 41, 8, 6),
    (ChunkRows(512, "M"), 40, 40, 1),     # a chunk is at most a shard
    (ChunkCount(4), 40, 10, 4),
    (ChunkCount(4), 41, 11, 4),
    (ChunkCount(4), 9, 3, 3),             # three chunks of three: a fourth would be empty
    (ChunkCount(8), 3, 1, 3),
])  # fmt: skip
def test_chunks_of_a_shard(size, shard, rows, chunks):
    g = geometry(shard * 2, 2)
    assert (g.chunk(size), g.chunks(size)) == (rows, chunks)
    assert g.chunks(size) <= g.chunk_cap(size)


def test_a_chunk_in_bytes_is_whole_rows():
    """64 columns of bf16 are 128 bytes a row: 1 KiB are 8 rows, 200 bytes one, less than a row still one."""
    for text, rows in (("1 KiB", 8), ("200 B", 1), ("64 B", 1)):
        assert gather_launch(text, 16).chunk == ChunkRows(rows, "")


def blocks(chunk, bm, rows, world=2):
    return [
        (first, end, list(awaited)) for first, end, awaited, _ in geometry(rows, world).blocks(gather_launch(chunk, bm))
    ]


def test_a_chunk_of_many_tiles_is_one_run():
    assert blocks("64 along M", 16, 200) == [(0, 64, [0]), (64, 100, [1])]


def test_a_tile_of_many_chunks_waits_for_all():
    assert blocks("8 along M", 32, 100) == [(0, 32, [0, 1, 2, 3]), (32, 50, [4, 5, 6])]


def test_a_chunk_that_is_no_multiple_of_the_tile():
    assert blocks("24 along M", 16, 120) == [
        (0, 16, [0]), (16, 32, [0, 1]), (32, 48, [1]), (48, 60, [2]),
    ]  # fmt: skip


def test_no_rows_still_make_one_block_with_one_chunk():
    assert blocks("24 along M", 16, 0) == [(0, 1, [0])]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 200), st.integers(1, 5),
    st.one_of(st.integers(1, 70).map(lambda n: f"{n} along M"), st.integers(1, 9).map(lambda n: f"{n} per shard")),
    st.sampled_from([16, 32, 64]),
)  # fmt: skip
def test_blocks_cover_a_shard_and_await_exactly_the_chunks_that_they_touch(rows, world, chunk, bm):
    g, launch = geometry(rows, world), gather_launch(chunk, bm)
    size, at = g.chunk(launch.chunk), 0
    for first, end, awaited, signalled in g.blocks(launch):
        assert first == at and first < end and signalled == ()
        assert list(awaited) == sorted({row // size for row in range(first, end)})
        at = end
    assert at == g.shard and awaited[-1] == g.chunks(launch.chunk) - 1


# ---- walks

FIRST = {Walk.UP, Walk.DOWN, Walk.OWN_ASCENDING}
LAST = {Walk.UP_OWN, Walk.DOWN_OWN, Walk.ASCENDING_OWN}


def visits(walk, rank, world):
    return [walk.at(rank, step, world) for step in range(world)]


@pytest.mark.parametrize("walk", Walk)
def test_a_walk_visits_every_rank_once(walk):
    for world in range(1, 10):
        for rank in range(world):
            seen = visits(walk, rank, world)
            assert sorted(seen) == list(range(world))
            assert (seen[0] == rank) or walk not in FIRST
            assert (seen[-1] == rank) or walk not in LAST
    assert {*FIRST, *LAST, Walk.ASCENDING} == set(Walk)


def test_walks_of_rank_1_of_4():
    assert {w.name: visits(w, 1, 4) for w in Walk} == {
        "UP": [1, 2, 3, 0], "DOWN": [1, 0, 3, 2], "ASCENDING": [0, 1, 2, 3], "OWN_ASCENDING": [1, 0, 2, 3],
        "UP_OWN": [2, 3, 0, 1], "DOWN_OWN": [0, 3, 2, 1], "ASCENDING_OWN": [0, 2, 3, 1],
    }  # fmt: skip


@triton.jit
def walk_everywhere(out, WALK: tl.constexpr, W: tl.constexpr):
    for rank in range(W):
        for step in range(W):
            tl.store(out + rank * W + step, WALK(rank, step, W))


@pytest.mark.parametrize("walk", Walk)
def test_the_device_function_is_the_same_walk(walk):
    function = getattr(device, walk.value)
    with interpreting() as interpreter:
        for world in range(1, 10):
            out = torch.full((world, world), -1, dtype=torch.int32)
            interpreter.run(walk_everywhere, (1,), out=out, WALK=function, W=world)
            assert out.tolist() == [visits(walk, rank, world) for rank in range(world)], world
