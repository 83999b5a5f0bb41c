"""`add = in_tiles`: the bits of `exact` and the events of the plan, on ranks with ragged and with empty shards."""

import pytest
from emitted import HEAD, REDUCE, SCATTER, SMALL, failures, run

RESIDUAL = (
    HEAD + "tensor x : {t}[M, F @ tp]\ntensor w : {t}[H, F @ tp]\ntensor b : {t}[M @ tp, H]\n"
    "op f(x, w, b) -> y {{ y = gelu(reduce_scatter(x @ w.T, M) + b) with {{ {p} }} }}\n"
)
CASES = {
    "scatter on 2, one buffer": (SCATTER, 2, "route = swizzle, buffers = 1"),
    "scatter on 3, by tma": (SCATTER, 3, "route = direct, via = tma, buffers = 2"),
    "scatter with a residual on 4": (RESIDUAL, 4, "route = swizzle, buffers = 2"),
    "scatter with a residual on 2, addends in f32": (RESIDUAL, 2, "route = direct, wire = f32, buffers = 2"),
    "reduce on 2": (REDUCE, 2, "route = swizzle, buffers = 2"),
    "reduce on 3, one buffer": (REDUCE, 3, "route = direct, buffers = 1"),
    "reduce on 4, by tma": (REDUCE, 4, "route = swizzle, via = tma, buffers = 2"),
}


@pytest.mark.parametrize("case", CASES)
def test_own_tiles_add_up_to_the_bits_of_the_launch_that_adds(case):
    """37 rows leave the last shard short; of 1 row all ranks but the first have none, and of 0 nobody has any."""
    text, world, policy = CASES[case]
    seed = list(CASES).index(case)
    rows = run(text.format(t="bf16", p=f"{SMALL}{policy}, add = in_tiles"), world, (37, 1, 0, 33), seed, seed % 2 == 1)
    assert failures(rows) == []
    assert {r.check.split(" ")[0] for r in rows} >= {"simulation", "conformance", "y"}
