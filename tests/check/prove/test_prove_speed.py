"""The proof of a large plan takes work in proportion to its tasks. Calls are counted, as a clock tells more of the
machine: 64 ranks (50,000 tasks, 127 calls for each) take about 4 s of one core."""

import cProfile
import pstats

from proof_plans import gemm_rs, tp_mlp

from chunkdsl.check.prove import prove


def calls_per_task(plan):
    profile = cProfile.Profile()
    assert profile.runcall(prove, plan) == []
    return pstats.Stats(profile).total_calls / len(plan.tasks)


def test_gemm_rs_on_more_ranks():
    small, large = (calls_per_task(gemm_rs(w, chunks=4, tiles=4, merged=True)) for w in (8, 24))
    assert large < 1.2 * small < 190, (small, large)


def test_mlp_in_more_chunks():
    small, large = (calls_per_task(tp_mlp(8, chunks)) for chunks in (1, 4))
    assert large < 1.2 * small < 160, (small, large)
