"""Specs of kernels in the manner of libraries (`kernel_zoo_libraries`), and of one that knows no rows."""

from kernel_specs import COPY, HEAD

PATH = "tests/kernels/kernel_zoo_libraries.py"
ITEM = f"""
kernel f(X, W) -> Y = "{PATH}" : norm {{
    X = x_ptr : [m, n]
    W = w_ptr : [n]
    Y = y_ptr : [m, n]
    arg n_rows = m
    arg n_cols = n
    arg eps = 1e-6
    grid = cdiv(m, EACH), 2
    const EACH = 4, BLOCK = 128
}}
"""
NORM = HEAD + ITEM + f"op f_op(x, g) -> y {{ y = f(all_gather(x), g) with {{ {COPY} }} }}"
# Numbers are written into the call here.
BY_TICKET = NORM.replace(COPY, "chunk = 24 along M, via = ldst, place = own_sms(2)")
ELEMENTS = HEAD + """
tensor e : bf16[4 @ tp, M, 80]
kernel f(X) -> Y = "specs/kernels/add.py" : add_flat_kernel {
    X = x_ptr : [e, m, n]
    Y = y_ptr : [m, n] sum e
    arg elements = m * n
    grid = cdiv(m * n, BLOCK)
    const BLOCK = 64
}
op f_op(e) -> y { y = reduce_scatter(f(e), M) }
"""
