"""A user's kernel as predicted: its programs by what they were seen to do."""

from types import SimpleNamespace

import pytest

from chunkdsl.cost.constants import machine
from chunkdsl.cost.work import body_us, program_us
from chunkdsl.ir.types import DimRef
from chunkdsl.plan.extents import Extent

H200 = machine("h200", "nvlink")


def body(flops, loads, k_sharded):
    result = SimpleNamespace(dtype="bf16", dims=(DimRef("m"), DimRef("n")))
    sizes = (("m", Extent(DimRef("M"), False)), ("k", Extent(4096, k_sharded)), ("n", Extent(2048, not k_sharded)))
    return SimpleNamespace(flops=flops, loads=loads, tensors=(result,), sizes=sizes)


def test_a_program_takes_as_long_as_its_products_or_its_loads():
    flops, loads = 2 * 128 * 128 * 4096, 2 * 256 * 4096
    rate = H200.gpu.gflops["bf16"] * H200.gpu.inner_loop / H200.gpu.multiprocessors
    assert program_us(flops, 0, "bf16", H200) == pytest.approx(1e-3 * flops / rate)
    share = H200.gpu.cache_gbs / H200.gpu.multiprocessors
    assert program_us(0, loads, "bf16", H200) == pytest.approx(1e-3 * loads / share)
    assert program_us(flops, loads, "bf16", H200) == max(
        program_us(flops, 0, "bf16", H200), program_us(0, loads, "bf16", H200)
    )


def test_a_size_that_is_added_over_is_only_the_rank_s_part_and_one_of_the_result_is_whole():
    whole = body_us(body(1 << 30, 0, False), 1, H200)
    assert body_us(body(1 << 30, 0, False), 4, H200) == whole  # columns are cut: fewer programs, each the same
    assert body_us(body(1 << 30, 0, True), 4, H200) == pytest.approx(whole / 4)
