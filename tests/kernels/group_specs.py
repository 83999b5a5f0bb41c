"""Specs of grouped matrix products: which group's weights a block takes follows from its rows, or from a table."""

from kernel_specs import COPY, HEAD

GROUPS = "tests/kernels/kernel_zoo_groups.py"
TENSORS = """
tensor x2 : bf16[M @ tp, 64]
tensor experts : bf16[256, N @ tp]
tensor narrow : bf16[256, 32 @ tp]
tensor places : i32[16]
tensor addresses : i64[4]
"""
LOOP = f"""
kernel f(A, B) -> C = "{GROUPS}" : grouped_matmul {{
    A = a_ptr : [m, 64]
    B = b_ptr : [256, n]
    C = c_ptr : [m, n]
    arg M = m
    arg N = n
    arg EACH = 64
    grid = cdiv(m, BM) * cdiv(n, BN)
    const K = 64, G = 4, BM = 32, BN = 32, BK = 32, NUM_SM = 65536
}}
op f_op(x2, experts) -> y {{ y = f(all_gather(x2), experts) with {{ {COPY} }} }}
"""
TABLE = f"""
kernel f(A, B, T) -> C = "tests/kernels/kernel_zoo_more.py" : grouped_by_table {{
    A = a_ptr : [m, 64]
    B = b_ptr : [256, n]
    T = table_ptr : [t]
    C = c_ptr : [m, n]
    arg M = m
    arg N = n
    grid = cdiv(m, BM), cdiv(n, BN)
    const K = 64, BM = 32, BN = 16
}}
op f_op(x2, experts, places) -> y {{ y = f(all_gather(x2), experts, places) with {{ {COPY} }} }}
"""
POINTERS = f"""
kernel f(A, P) -> C = "{GROUPS}" : grouped_by_pointers {{
    A = a_ptr : [m, 64]
    P = pointers_ptr : [g]
    C = c_ptr : [m, 32]
    arg M = m
    arg N = 32
    arg EACH = 64
    grid = cdiv(m, BM)
    const K = 64, BM = 32, BN = 32
}}
op f_op(x2, addresses) -> y {{ y = f(all_gather(x2), addresses) with {{ {COPY} }} }}
"""
SIZES = f"""
kernel f(A, B, T) -> C = "{GROUPS}" : grouped_by_sizes {{
    A = a_ptr : [m, 64]
    B = b_ptr : [256, n]
    T = sizes_ptr : [t]
    C = c_ptr : [m, n]
    arg M = m
    arg N = n
    grid = cdiv(m, BM) + 4
    const K = 64, G = 4, BM = 32, BN = 32
}}
op f_op(x2, narrow, places) -> y {{ y = f(all_gather(x2), narrow, places) with {{ {COPY} }} }}
"""
SPECS = {"loop": HEAD + TENSORS + LOOP, "table": HEAD + TENSORS + TABLE}
REFUSED = {"pointers": HEAD + TENSORS + POINTERS, "sizes": HEAD + TENSORS + SIZES}
