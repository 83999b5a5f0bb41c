"""Random inputs: what each rank gets, put together again, is the whole; so are results."""

from types import SimpleNamespace

import pytest
import torch

from chunkdsl.ir.graph import Op, Param, Value
from chunkdsl.ir.types import DType, Partial, Replicate, Shard, TensorType
from chunkdsl.pipeline import check_source
from chunkdsl.plan.schedule import Extent, Parameter
from chunkdsl.source import Source, Span
from chunkdsl.verify.inputs import cut, draw, join

SPEC = """mesh tp[4] over nvlink
dim M = 0..64
dim H = 24
dim F = 32
tensor a   : bf16[M, F @ tp]
tensor w   : bf16[H, F @ tp]
tensor c   : bf16[H]
tensor res : bf16[M @ tp, H]
op rs(a, w, c, res) -> y { y = reduce_scatter(a @ w.T, M) + c + res }
op ar(a, w) -> z { z = all_reduce(a @ w.T) }
"""


@pytest.fixture(scope="module")
def checked():
    checked = check_source(Source("a.chunk", SPEC))
    assert not checked.report.failed, checked.report.diagnostics
    return checked


@pytest.mark.parametrize("rows", [0, 1, 3, 17, 64])
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_the_shards_of_all_ranks_are_the_whole(checked, rows, world):
    op, schedule = checked.program.ops[0], checked.schedule.ops[0]
    got = draw(op, schedule, {"M": rows}, world, 5, False)
    assert got.dims == {"M": rows} and list(got.whole) == ["a", "w", "c", "res"]
    for i, (name, dim) in enumerate((("a", 1), ("w", 1), ("c", None), ("res", 0))):
        parts = [got.shards[r][i] for r in range(world)]
        assert all(p.is_contiguous() for p in parts)
        assert parts[0].dtype is (torch.bfloat16)
        if dim is None:
            assert all(torch.equal(p.double(), got.whole[name]) for p in parts)
            assert len({p.data_ptr() for p in parts}) == world  # no rank sees another's memory
        else:
            assert torch.equal(torch.cat(parts, dim).double(), got.whole[name])


def test_shards_are_ceil_divided_and_the_last_ones_short_or_empty():
    whole = torch.arange(20).reshape(5, 4)
    assert [len(cut(whole, 0, 4, r)) for r in range(4)] == [2, 2, 1, 0]
    assert [cut(whole, 1, 3, r).shape[1] for r in range(3)] == [2, 2, 0]


def test_the_same_seed_gives_the_same_numbers_and_another_others(checked):
    op, schedule = checked.program.ops[0], checked.schedule.ops[0]
    one, two, other = (draw(op, schedule, {"M": 9}, 2, seed, False).whole["a"] for seed in (1, 1, 2))
    assert torch.equal(one, two) and not torch.equal(one, other)


def test_integers_are_small_and_of_every_kind(checked):
    op, schedule = checked.program.ops[0], checked.schedule.ops[0]
    got = draw(op, schedule, {"M": 64}, 2, 0, True)
    for tensor in got.whole.values():
        assert set(tensor.unique().tolist()) == {-1.0, 0.0, 1.0}


def test_a_partial_parameter_is_the_sum_of_what_the_ranks_pass():
    """No op takes one yet, so this one is made by hand."""
    f32 = TensorType(DType.F32, (8, 8), (Partial(),))
    span = Span(0, 0)
    param = Param("p", Value("param", (), f32, span), False, span)
    op = Op("f", (param,), (), (), span)
    schedule = SimpleNamespace(parameters=(Parameter("p", "f32", (Extent(8), Extent(8))),))
    got = draw(op, schedule, {}, 3, 0, True)
    parts = [shards[0] for shards in got.shards]
    assert not torch.equal(parts[0], parts[1])
    assert torch.equal(sum(p.double() for p in parts), got.whole["p"])


def test_results_are_joined_by_their_placement(checked):
    whole = torch.arange(12.0).reshape(6, 2)
    placements = [op.results[0][1].type.placements[0] for op in checked.program.ops]
    assert placements == [Shard(0), Replicate()]
    scattered, reduced = checked.program.ops
    assert torch.equal(join([cut(whole, 0, 4, r) for r in range(4)], scattered, 0, 4), whole.double())
    assert torch.equal(join([whole, whole + 1], reduced, 0, 2), whole.double())
