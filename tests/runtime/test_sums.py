"""`follow_sums`: what a rank has of a shard after a plan's transfers, in every dtype, and what it leaves alone."""

import pytest
import torch

from chunkdsl.runtime.sums import follow_sums

# Two pairs exchange their addends, then the pairs their sums: (moment, holder, reader, part, adds).
EXCHANGE = [(0, 0, 1, 0, 1), (0, 1, 0, 0, 1), (0, 2, 3, 0, 1), (0, 3, 2, 0, 1),
            (1, 0, 2, 0, 1), (1, 2, 0, 0, 1), (1, 1, 3, 0, 1), (1, 3, 1, 0, 1)]  # fmt: skip
ROOTED = [(0, 1, 0, 0, 1), (0, 1, 0, 1, 1), (1, 2, 0, 0, 1), (1, 2, 0, 1, 1), (2, 0, 1, 0, 0), (3, 0, 1, 1, 0)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_those_of_one_moment_read_before_they_write(dtype):
    parts = torch.randn((4, 6, 8), generator=torch.Generator().manual_seed(0)).to(dtype)
    before = parts.clone()
    a, b, c, d = parts.float()
    want = ((a + b).to(dtype).float() + (c + d).to(dtype).float()).to(dtype).float()
    for own in range(4):
        assert torch.equal(follow_sums(parts, EXCHANGE, 6, own, True), want)
    assert torch.equal(parts, before)


def test_a_sum_that_replaces_and_parts_of_a_shard():
    parts = torch.randn((3, 5, 8), generator=torch.Generator().manual_seed(1)).bfloat16()
    a, b, c = parts.float()
    want = a + b + c
    assert torch.equal(follow_sums(parts, ROOTED, 3, 0, False), want)
    assert torch.equal(follow_sums(parts, ROOTED, 3, 1, False), want.bfloat16().float())  # as it was sent
    assert torch.equal(follow_sums(parts, ROOTED, 3, 0, True), want.bfloat16().float())
    assert torch.equal(follow_sums(parts, ROOTED, 3, 2, False), c)
