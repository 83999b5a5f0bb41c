"""Ranks of meshes: coordinates, subgroups, bindings, and shards nested as DTensor cuts them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkdsl.ir.meshes import (
    bindings,
    built_for,
    coordinates,
    declared,
    in_order,
    inner_of,
    of_rank,
    outside,
    ranks_of,
    scope,
    subgroup,
    subgroups,
    world_text,
)
from chunkdsl.ir.types import DimRef, Mesh, MeshAxis, Share, dims_in, evaluate, shard_first, shard_rows, shard_size

ONE = Mesh((MeshAxis("tp", 8, "nvlink"),))
TWO = Mesh((MeshAxis("node", 2, "rdma"), MeshAxis("gpu", 3, "nvlink")))


def test_ranks_count_row_by_row():
    assert [coordinates(r, (2, 3)) for r in range(6)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert coordinates(5, 8) == (5,)
    assert (ranks_of((2, 3)), ranks_of(8), world_text((2, 3)), world_text(8)) == (6, 8, "2x3", "8")
    assert (declared(ONE), declared(TWO), declared(Mesh(()))) == (8, (2, 3), 1)


def test_a_subgroup_has_the_ranks_that_differ_on_its_axes_alone():
    assert subgroups(TWO, ("gpu",), (2, 3)) == [(0, 1, 2), (3, 4, 5)]
    assert subgroups(TWO, ("node",), (2, 3)) == [(0, 3), (1, 4), (2, 5)]
    assert subgroups(TWO, ("node", "gpu"), (2, 3)) == [(0, 1, 2, 3, 4, 5)]
    assert subgroups(ONE, (), 4) == [(0, 1, 2, 3)]
    assert subgroup(TWO, ("node",), (2, 3), 4) == (1, 4)
    assert [scope(TWO, over, (2, 3)) for over in (("gpu",), ("node",), ("node", "gpu"))] == [3, 2, 6]


def test_bindings_say_where_a_subgroup_lies():
    assert bindings(ONE, 4) == {}
    assert bindings(TWO) == {"node": 2, "node.rank": 0, "gpu": 3, "gpu.rank": 0}
    assert outside(TWO, ("gpu",), (2, 3), 4) == {"node": 2, "node.rank": 1, "gpu": 3, "gpu.rank": 0}
    assert outside(ONE, (), 4, 2) == {}
    both = bindings(TWO)
    assert inner_of(("node", "gpu"), both) == 3 and inner_of(("gpu",), both) == 1
    assert of_rank(("node", "gpu"), both, 5)["node.rank"] == 1 and of_rank(("node", "gpu"), both, 5)["gpu.rank"] == 2
    assert of_rank(("gpu",), both, 5) is both


def test_modules_are_built_for_powers_of_two_on_each_axis():
    assert built_for(ONE) == list(range(1, 17)) and built_for(ONE, (1, 2)) == [1, 2]
    grids = built_for(TWO)
    assert (1, 16) in grids and (4, 4) in grids and all(ranks_of(g) <= 16 for g in grids)
    assert in_order([(2, 2), (1, 2), (2, 2), (4, 1)]) == [(1, 2), (2, 2), (4, 1)]


def test_a_share_is_what_the_rank_of_an_axis_holds():
    share = Share(DimRef("M"), "node")
    assert [evaluate(share, {"M": 7, "node": 3, "node.rank": r}) for r in range(3)] == [3, 3, 1]
    assert dims_in(share) == {"M"} and str(share) == "share(M, node)"


@pytest.mark.parametrize(("rows", "held"), [(9, [3, 2, 2, 2]), (5, [2, 1, 1, 1]), (1, [1, 0, 0, 0]), (0, [0, 0, 0, 0])])
def test_nested_shards_of_two_by_two_ranks(rows, held):
    assert [shard_rows(rows, 4, r, 2) for r in range(4)] == held


def nested(rows, outer, inner):
    """Rows of every rank, cut by torch.chunk as DTensor's Shard does, the outer axis first."""
    found = []
    for part in padded(torch.arange(rows), outer):
        found += padded(part, inner)
    return found


def padded(tensor, count):
    parts = list(tensor.chunk(count)) if tensor.numel() else []
    return parts + [tensor.new_empty(0)] * (count - len(parts))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 60), st.integers(1, 5), st.integers(1, 5))
def test_nested_shards_are_those_of_two_chunkings(rows, outer, inner):
    for rank, held in enumerate(nested(rows, outer, inner)):
        height, first = shard_rows(rows, outer * inner, rank, inner), shard_first(rows, outer * inner, rank, inner)
        assert height == held.numel() <= shard_size(rows, outer * inner)
        assert height == 0 or first == held[0]
