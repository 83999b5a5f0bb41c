"""Large plans in bounded time: the limits are for a busy machine of CI, several times what one core needs."""

import time

from proof_plans import gemm_rs, tp_mlp

from chunkdsl.check.prove import prove


def seconds(plan):
    begun = time.process_time()
    assert prove(plan) == []
    return time.process_time() - begun


def test_gemm_rs_on_64_ranks():
    plan = gemm_rs(64, chunks=4, tiles=4, merged=True)
    assert len(plan.tasks) > 50_000
    assert seconds(plan) < 5


def test_mlp_on_8_ranks_with_32_chunks():
    plan = tp_mlp(8, 4)  # four in each shard
    assert min(seconds(plan) for _ in range(3)) < 0.3
