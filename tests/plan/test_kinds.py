"""The kinds of launches, of statements that become one of each."""

from pathlib import Path

import pytest

from chunkdsl.pipeline import check_source
from chunkdsl.plan.kinds import kind_of
from chunkdsl.source import Source

KERNEL = Path(__file__).resolve().parents[2] / "specs" / "kernels" / "matmul.py"
HEAD = f"""mesh tp[2] over nvlink
dim M = 0..64
dim H = 32
dim K = 64
tensor x : bf16[M @ tp, H]
tensor r : bf16[M, H]
tensor w : bf16[H, K]
tensor u : bf16[H @ tp, K]
kernel mm(A, B) -> C = "{KERNEL}" : matmul_kernel {{
    A = a_ptr : [m, k]
    B = b_ptr : [k, n]
    C = c_ptr : [m, n] sum k
    arg stride_am = A.stride(0)
    arg stride_ak = A.stride(1)
    arg stride_bk = B.stride(0)
    arg stride_bn = B.stride(1)
    arg stride_cm = C.stride(0)
    arg stride_cn = C.stride(1)
    grid = cdiv(m, BM) * cdiv(n, BN)
    const BM = 32, BN = 32, BK = 32, GROUP = 8, num_warps = 4, num_stages = 2
}}
"""
KINDS = {
    "f(x, w) -> y { y = all_gather(x) @ w": "product",
    "f(x, w) -> y { y = all_gather(x) @ w with { compute = library }": "library",
    "f(r, w) -> y { y = mm(r, w)": "kernel",
    "f(r) -> y { y = r.T @ r": "over_rows",
    "f(r, u) -> y { y = r @ all_gather(u)": "ahead",
    "f(r) -> y { y = relu(r)": "elements",
}


@pytest.mark.parametrize("body", KINDS)
def test_kinds(body):
    made = check_source(Source("f.chunk", f"{HEAD}op {body} }}\n"))
    assert not made.report.failed, made.report.diagnostics
    (launch,) = made.schedule.ops[0].launches
    assert kind_of(launch) == KINDS[body]
