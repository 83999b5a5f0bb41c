"""Specs that call the kernels of `kernel_zoo`, and what is found of each."""

from pathlib import Path

from chunkdsl.pipeline import check_source
from chunkdsl.source import Source

ROOT = Path(__file__).parents[2]
PATH = "tests/kernels/kernel_zoo.py"
HEAD = """
mesh tp[2]
dim M = 1..256
dim K = 96
dim N = 160
dim D = 32
tensor x : bf16[M @ tp, K]
tensor w : bf16[K, N @ tp]
tensor wt : bf16[N @ tp, K]
tensor a : bf16[M, K @ tp]
tensor v : bf16[K @ tp, N]
tensor g : bf16[K]
tensor b : bf16[K]
tensor q : bf16[M, D]
tensor c : bf16[M @ tp, D]
"""
GEMM = """
kernel f(A, B) -> C = "{path}" : {name} {{
    A = a_ptr : [m, k]
    B = b_ptr : [{b}]
    C = c_ptr : [m, n] sum k
    arg stride_am = A.stride(0)
    arg {stride} = B.stride(0)
    arg stride_cm = C.stride(0)
    grid = {grid}
    const BM = 32, BN = 32, BK = 32{more}
}}
"""
ROWS = """
kernel f(X{more}) -> Y = "{path}" : {name} {{
    X = {x} : [m, n]
{tensors}    Y = {y} : [m, {n}]
{args}    grid = {grid}
    const BLOCK = {block}
}}
"""
GATHERED = "op f_op(x, w) -> y {{ y = f(all_gather(x), w) with {{ {policy} }} }}"
REDUCED = "op f_op(a, v) -> y {{ y = reduce_scatter(f(a, v), M) with {{ {policy} }} }}"
COPY = "chunk = 24 along M, via = copy_engine"


def gemm(name, grid, more="", b="k, n", stride="stride_bk"):
    return GEMM.format(path=PATH, name=name, grid=grid, more=more, b=b, stride=stride)


def rows(name, *, x="x_ptr", y="y_ptr", more="", tensors="", args="", grid="m", block=128, n="n"):
    given = dict(x=x, y=y, more=more, tensors=tensors, args=args, grid=grid, block=block, n=n)
    return ROWS.format(path=PATH, name=name, **given)


TILES = "cdiv(m, BM) * cdiv(n, BN)"
STRIDES = "    arg stride_x = X.stride(0)\n    arg stride_y = Y.stride(0)\n"
KERNELS = {
    "matmul_2d": gemm("matmul_2d", "cdiv(m, BM), cdiv(n, BN)"),
    "matmul_persistent": gemm("matmul_persistent", "3", ", GROUP = 4, PROGRAMS = 3"),
    "matmul_descriptor": gemm("matmul_descriptor", TILES, b="n, k", stride="stride_bn"),
    "matmul_blocks": gemm("matmul_blocks", TILES),
    "rms_norm": rows("rms_norm", more=", W", tensors="    W = w_ptr : [n]\n",
                     args=STRIDES + "    arg n_cols = n\n    arg eps = 1e-6\n"),
    "layer_norm": rows("layer_norm", more=", W, B", tensors="    W = w_ptr : [n]\n    B = b_ptr : [n]\n", block=32,
                       args="    arg stride = n\n    arg N = n\n    arg eps = 1e-5\n"),
    "softmax": rows("softmax", x="in_ptr", y="out_ptr", grid="4",
                    args="    arg in_stride = X.stride(0)\n    arg out_stride = Y.stride(0)\n"
                         "    arg n_rows = m\n    arg n_cols = n\n"),
    "gated": ROWS.format(path=PATH, name="gated", x="a_ptr", y="c_ptr", more="", tensors="", block=32, n="48",
                         grid="m, cdiv(48, BLOCK)", args="    arg stride_a = X.stride(0)\n"
                         "    arg stride_c = Y.stride(0)\n    arg n_cols = 48\n"),
}  # fmt: skip
ATTENTION = f"""
kernel f(Q, KV) -> O = "{PATH}" : attention_rows {{
    Q = q_ptr : [s, d]
    KV = kv_ptr : [t, d]
    O = o_ptr : [s, d]
    arg S = s
    arg T = t
    arg scale = 0.25
    grid = cdiv(s, BM)
    const D = 32, BM = 16, BN = 16
}}
op f_op(q, c) -> y {{ y = f(q, all_gather(c)) with {{ {COPY} }} }}
"""
WIDER = rows("doubled", args="    arg n_cols = n\n", grid="cdiv(n, 2 * BLOCK), 2, m", block=32) + (
    f"op f_op(x) -> y {{ y = f(all_gather(x)) with {{ {COPY} }} }}"
)  # two programs for each 64 of 96 columns
SEVERAL = {
    "attention_kv": f"""
kernel f(Q, K, V) -> O = "{PATH}" : attention_kv {{
    Q = q_ptr : [s, d]
    K = k_ptr : [t, d]
    V = v_ptr : [t, d]
    O = o_ptr : [s, d]
    arg S = s
    arg T = t
    arg scale = 0.25
    grid = cdiv(s, BM)
    const D = 32, BM = 16, BN = 16
}}
tensor e : bf16[M @ tp, D]
op f_op(q, c, e) -> y {{ y = f(q, all_gather(c), all_gather(e)) with {{ {COPY} }} }}
""",
    "add_norm": f"""
kernel f(X, R, W) -> Y = "{PATH}" : add_norm {{
    X = x_ptr : [m, n]
    R = r_ptr : [m, n]
    W = w_ptr : [n]
    Y = y_ptr : [m, n]
    arg n_cols = n
    arg eps = 1e-6
    grid = m
    const BLOCK = 128
}}
tensor r : bf16[M @ tp, K]
op f_op(x, r, g) -> y {{ y = f(all_gather(x), all_gather(r), g) with {{ {COPY} }} }}
""",
}  # behind several gathers
CALLS = {
    "matmul_descriptor": "op f_op(x, wt) -> y {{ y = f(all_gather(x), wt) with {{ {policy} }} }}",
    "rms_norm": "op f_op(x, g) -> y {{ y = f(all_gather(x), g) with {{ {policy} }} }}",
    "layer_norm": "op f_op(x, g, b) -> y {{ y = f(all_gather(x), g, b) with {{ {policy} }} }}",
    "softmax": "op f_op(x) -> y {{ y = f(all_gather(x)) with {{ {policy} }} }}",
    "gated": "op f_op(x) -> y {{ y = f(all_gather(x)) with {{ {policy} }} }}",
}


def gathered(name, policy=COPY):
    """The kernel behind a gather of its first argument."""
    return HEAD + KERNELS[name] + CALLS.get(name, GATHERED).format(policy=policy)


def reduced(name, policy="chunk = 24 along M"):
    """The kernel before a reduce-scatter."""
    return HEAD + KERNELS[name] + REDUCED.format(policy=policy)


def refused(name, more=""):
    """A row-wise kernel behind a gather that cannot be fused."""
    tensors = "    I = i_ptr : [m, 1]\n" if more else ""
    args = "    arg n_cols = n\n"
    head = HEAD + "tensor i : bf16[M, 1]\n" + rows(name, more=more, tensors=tensors, args=args)
    call = "f(all_gather(x), i)" if more else "f(all_gather(x))"
    return head + f"op f_op(x, i) -> y {{ y = {call} with {{ {COPY} }} }}"


def checked(text):
    """The stages up to the schedule. Paths of kernels are relative to the repository."""
    return check_source(Source(str(ROOT / "zoo.chunk"), text))
