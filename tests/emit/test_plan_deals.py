"""all_to_all along plans, of tensors and of products, as emitted: bits of `exact`, float64, conformance, races.

What tiles make is handed over and carried on, straight or over other ranks; blocks are sent or fetched.
"""

import pytest
from emitted import HEAD, failures, run

WHOLE = HEAD + "dim N = 40\ndim R = 41\n"
POLICY = "with {{ route = p, tile = 16x16x16, place = own_sms(1), {p} }}"
AROUND = "plan p(t) : all_to_all over tp {{\n    {body}\n}}\n"
TENSOR_ROWS = (
    WHOLE + "tensor x : bf16[M, H @ tp]\ntensor w : bf16[N, H]\n" + AROUND
    + f"op f(x, w) -> y {{{{ y = all_to_all(x, H -> M) @ w.T {POLICY} }}}}\n"
)
TENSOR_COLUMNS = (
    WHOLE + "tensor x : bf16[M @ tp, R]\n" + AROUND
    + "op f(x) -> y {{ y = all_to_all(x, M -> R) with {{ route = p, place = own_sms(1), {p} }} }}\n"
)
PRODUCT_ROWS = (
    WHOLE + "tensor x : bf16[M, H]\ntensor w : bf16[R @ tp, H]\ntensor r : bf16[M @ tp, R]\n" + AROUND
    + f"op f(x, w, r) -> y {{{{ y = all_to_all(x @ w.T, R -> M) + r {POLICY} }}}}\n"
)
PRODUCT_COLUMNS = (
    WHOLE + "tensor x : bf16[M @ tp, H]\ntensor w : bf16[F, H]\ntensor b : bf16[F]\n" + AROUND
    + f"op f(x, w, b) -> y {{{{ y = all_to_all(x @ w.T + b, M -> F) {POLICY} }}}}\n"
)
SPECS = {"x, H -> M": TENSOR_ROWS, "x, M -> H": TENSOR_COLUMNS, "a @ b, H -> M": PRODUCT_ROWS,
         "a @ b, M -> H": PRODUCT_COLUMNS}  # fmt: skip

BACKWARDS = "for i in range(1, tp) { send t[(rank - i) mod tp] to (rank - i) mod tp into t[rank] }"
# Each pair of ranks is served by the higher one, in halves.
MIXED = """for i in range(tp) { for h in range(2) {
        if i < rank {
            send t[i] part h of 2 to i into t[rank] part h of 2
            fetch t[rank] part h of 2 from i into t[i] part h of 2
        }
    } }"""
# What is for the one after the next goes by the next, which fetches it or gets it.
OVER_SENT = """let next = (rank + 1) mod tp
    send t[(rank + 2) mod tp] to next into t[tp + rank]
    send t[next] to next into t[rank]
    send t[tp + (rank + 2) mod tp] to next into t[(rank + 2) mod tp]"""
OVER_FETCHED = """let before = (rank + 2) mod tp
    fetch t[(rank + 1) mod tp] from before into t[tp + before]
    fetch t[rank] from before into t[before]
    fetch t[tp + (rank + 1) mod tp] from before into t[(rank + 1) mod tp]"""
ROWS, HALVES = "chunk = 10 along M", "chunk = 2 per shard"

CASES = [
    ("x, M -> H", MIXED, 3, f"{HALVES}, buffers = 2"),
    ("x, H -> M", OVER_FETCHED, 3, f"{ROWS}, buffers = 1"),
    ("a @ b, H -> M", MIXED, 2, f"{HALVES}, buffers = 2"),
    ("a @ b, M -> H", BACKWARDS, 4, f"{ROWS}, buffers = 1, order = local_first"),
    ("a @ b, H -> M", OVER_SENT, 3, f"{ROWS}, buffers = 2"),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_blocks_come_along_a_plan_as_it_says(number):
    kind, body, world, policy = CASES[number]
    text = SPECS[kind].replace("{body}", body.replace("{", "{{").replace("}", "}}")).format(p=policy)
    text = text.replace("mesh tp[2]", f"mesh tp[{world}]")
    rows = run(text, world, (37, 0, 1), number % 4, pointers=number % 2 == 1)
    assert failures(rows) == []
