"""Specs that call the kernels of `kernel_zoo_descriptors`."""

from kernel_specs import COPY, HEAD

PATH = "tests/kernels/kernel_zoo_descriptors.py"
PRODUCT = f"""
kernel f(A, B) -> C = "{PATH}" : matmul_host {{
    A = a_desc[BM, BK] : [m, k]
    B = b_desc[BN, BK] : [n, k]
    C = c_desc[BM, BN] : [m, n] sum k
    grid = cdiv(m, BM) * cdiv(n, BN)
    const BM = 32, BN = 32, BK = 32, GROUP = 4
}}
"""
PERSISTENT = (
    PRODUCT.replace("matmul_host", "matmul_host_persistent").replace("GROUP = 4", "PROGRAMS = 3")
    .replace("c_desc[BM, BN]", "c_desc[BM, BN / 2]").replace("grid = cdiv(m, BM) * cdiv(n, BN)", "grid = 3")
)  # fmt: skip
ATTENTION = f"""
kernel f(Q, KV) -> O = "{PATH}" : attention_host {{
    Q = q_desc[BM, D] : [s, d]
    KV = kv_desc[BN, D] : [t, d]
    O = o_desc[BM, D] : [s, d]
    arg scale = 0.25
    grid = cdiv(s, BM)
    const D = 32, BM = 16, BN = 16
}}
op f_op(q, c) -> y {{ y = f(q, all_gather(c)) with {{ {COPY} }} }}
"""
SENT = "tensor vt : bf16[N, K @ tp]\n"


def gathered(kernel=PRODUCT, policy=COPY):
    return HEAD + kernel + f"op f_op(x, wt) -> y {{ y = f(all_gather(x), wt) with {{ {policy} }} }}"


def reduced(kernel=PRODUCT, policy="chunk = 24 along M"):
    return HEAD + SENT + kernel + f"op f_op(a, vt) -> y {{ y = reduce_scatter(f(a, vt), M) with {{ {policy} }} }}"


SPECS = {
    "gathered": gathered(),
    "gathered, two slots": gathered(policy="chunk = 24 along M, via = ldst, place = own_sms(2), buffers = 2"),
    "gathered, persistent": gathered(PERSISTENT),
    "reduced": reduced(),
    "reduced by a ring": reduced(PERSISTENT, "chunk = 24 along M, route = ring"),
    "attention": HEAD + ATTENTION,
}
