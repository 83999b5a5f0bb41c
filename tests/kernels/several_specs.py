"""Specs that call kernels with several results."""

from kernel_specs import COPY, HEAD

PATH = "tests/kernels/kernel_zoo_several.py"
MATMUL = f"""
kernel f(A, B) -> C, G = "{PATH}" : matmul_and_gelu {{
    A = a_ptr : [m, k]
    B = b_ptr : [k, n]
    C = c_ptr : f32[m, n]
    G = act_ptr : [m, n]
    arg stride_am = A.stride(0)
    arg stride_bk = B.stride(0)
    grid = cdiv(m, BM), cdiv(n, BN)
    const BM = 32, BN = 32, BK = 32
}}
"""
NORM = f"""
kernel f(X, W, B) -> Y, MEAN, RSTD = "{PATH}" : layer_norm_forward {{
    X = x_ptr : [m, n]
    W = w_ptr : [n]
    B = b_ptr : [n]
    Y = y_ptr : [m, n]
    MEAN = mean_ptr : f32[m, 1]
    RSTD = rstd_ptr : f32[m, 1]
    arg stride = n
    arg N = n
    arg eps = 1e-5
    grid = m
    const BLOCK = 128
}}
"""
ATTENTION = f"""
kernel f(Q, KV) -> O, LSE = "{PATH}" : attention_and_sums {{
    Q = q_ptr : [s, d]
    KV = kv_ptr : [t, d]
    O = o_ptr : [s, d]
    LSE = lse_ptr : f32[s, 1]
    arg S = s
    arg T = t
    arg scale = 0.25
    grid = cdiv(s, BM)
    const D = 32, BM = 16, BN = 16
}}
"""
NEXT = f"""
kernel f(X) -> Y, S = "{PATH}" : scale_of_the_next {{
    X = x_ptr : [m, n]
    Y = y_ptr : [m, n]
    S = s_ptr : f32[m, 1]
    arg n_cols = n
    arg n_rows = m
    grid = m
    const BLOCK = 128
}}
"""
SPECS = {
    "a product and its activation": HEAD + MATMUL
    + f"op f_op(x, w) -> g, c {{ c, g = f(all_gather(x), w) with {{ {COPY} }} }}",
    "used by later statements": HEAD + MATMUL + "tensor u : bf16[N @ tp, K]\n"
    f"op f_op(x, w, u) -> y, c {{ c, g = f((all_gather(x) with {{ {COPY} }}), w)"
    " h = cast(c, bf16) * g y = reduce_scatter(h @ u, M) }",
    "norm": HEAD + NORM
    + f"op f_op(x, g, b) -> y, mean, rstd {{ y, mean, rstd = f(all_gather(x), g, b) with {{ {COPY} }} }}",
    "norm of own rows": HEAD + NORM
    + "op f_op(x, g, b) -> y, mean, rstd { h, mean, rstd = f(x, g, b) y = all_gather(h) }",
    "attention": HEAD + ATTENTION + f"op f_op(q, c) -> y, lse {{ y, lse = f(q, all_gather(c)) with {{ {COPY} }} }}",
}  # fmt: skip
REFUSED = {
    "stores rows of S in another program": HEAD + NEXT
    + f"op f_op(x) -> y, s {{ y, s = f(all_gather(x)) with {{ {COPY} }} }}",
    "`f` has 2 results": HEAD + MATMUL + "op f_op(x, w) -> y { y = f(all_gather(x), w) }",
    "`f` has 3 results": HEAD + NORM + "op f_op(x, g, b) -> y { y = gelu(f(all_gather(x), g, b)) }",
    "`k` is sharded, and the result does not have it": HEAD + MATMUL.replace("f32[m, n]", "f32[m, n] sum k")
    + "op f_op(a, v) -> c, g { c, g = f(a, v) }",
    "rows are not those of the first one": HEAD + NORM.replace("f32[m, 1]", "f32[n, 1]")
    + "op f_op(x, g, b) -> y { y, mean, rstd = f(all_gather(x), g, b) }",
}  # fmt: skip
