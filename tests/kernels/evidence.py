"""The kernels of docs/kernels.md: each in a spec, with the structure that it has. `evidence_table.py` runs them."""

from data_specs import programs_spec
from data_specs import spec as data_spec
from descriptor_specs import SPECS as DESCRIPTORS
from group_specs import REFUSED as GROUPS_REFUSED
from group_specs import SPECS as GROUPS
from kernel_specs import ATTENTION, COPY, HEAD, KERNELS, gathered, gemm, reduced, refused, rows
from kernel_specs import SEVERAL as KEYS_AND_VALUES
from library_forms import ELEMENTS, NORM
from loop_specs import PASSES, WEIGHTS, WHOLE, along_k, attention
from several_specs import REFUSED as SEVERAL_REFUSED
from several_specs import SPECS as SEVERAL
from test_fused_kernels import SPECS as CHOSEN
from tutorial_specs import SPECS as TUTORIALS

BY_L = "chunk = 24 along L, via = copy_engine"
MORE = "tests/kernels/kernel_zoo_more.py"
TENSORS = """
tensor x2 : bf16[M @ tp, 128]
tensor angles : bf16[M, 16]
tensor up : bf16[128, N @ tp]
tensor down : bf16[N @ tp, 32]
tensor wide : bf16[K, N]
tensor res : bf16[M, K]
tensor h : bf16[M, K @ tp]
"""
STRIDES = "    arg stride_x = X.stride(0)\n    arg stride_y = Y.stride(0)\n"
FULL_STRIDES = "".join(f"    arg stride_{t}{d} = {t.upper()}.stride({i})\n"
                       for t, dims in (("a", "mk"), ("b", "kn"), ("c", "mn")) for i, d in enumerate(dims))  # fmt: skip
TUTORIAL = f"""
kernel f(A, B) -> C = "specs/kernels/matmul.py" : matmul_kernel {{
    A = a_ptr : [m, k]
    B = b_ptr : [k, n]
    C = c_ptr : [m, n] sum k
{FULL_STRIDES}    grid = cdiv(m, BM) * cdiv(n, BN)
    const BM = 32, BN = 32, BK = 32, GROUP = 4
}}
"""
TWO_LAYERS = f"""
kernel f(X, W, V) -> Y = "{MORE}" : two_layers {{
    X = x_ptr : [m, 128]
    W = w_ptr : [128, n]
    V = v_ptr : [n, 32]
    Y = y_ptr : [m, 32] sum n
    arg M = m
    arg N = n
    grid = cdiv(m, BM)
    const K = 128, J = 32, BM = 16, BN = 16
}}
"""
ROTARY = f"""
kernel f(X, C, S) -> Y = "{MORE}" : rotary {{
    X = x_ptr : [m, 128]
    C = cos_ptr : [m, 16]
    S = sin_ptr : [m, 16]
    Y = y_ptr : [m, 128]
{STRIDES}    grid = m
    const HEADS = 4, HALF = 16
}}
"""
def more(text):
    """The same item with its kernel in `kernel_zoo_more`."""
    return text.replace("kernel_zoo.py", "kernel_zoo_more.py")


def op(call, parameters="x", policy=COPY):
    return f"op f_op({parameters}) -> y {{ y = {call} with {{ {policy} }} }}"


def without_strides(text):
    return "\n".join(line for line in text.splitlines() if "stride" not in line) + "\n"


SPLIT = without_strides(more(gemm("matmul_split_k", "cdiv(m, BM) * cdiv(n, BN), cdiv(k, BK)")))
NORM_ARGS = STRIDES + "    arg stride_r = R.stride(0)\n    arg n_cols = n\n    arg eps = 1e-6\n"
NORM_TENSORS = "    R = res_ptr : [m, n]\n    W = w_ptr : [n]\n"
ADD_NORM = more(rows("add_and_norm", more=", R, W", tensors=NORM_TENSORS, args=NORM_ARGS))
CROSS = more(rows("cross_entropy", args="    arg stride_x = X.stride(0)\n    arg n_cols = n\n", n="1", block=32))
DROPOUT = more(rows("dropout", args="    arg n_cols = n\n    arg p = 0.25\n    arg seed = 7\n"))
ADD = more(rows("vector_add", args="    arg n_elements = m * n\n", grid="cdiv(m * n, BLOCK)", block=64))
QUANTIZE = more(rows("quantize", args="    arg n_cols = n\n").replace("-> Y", "-> Y, S").replace(
    "    Y =", "    S = s_ptr : [m, 1]\n    Y ="))  # fmt: skip
NORM_96 = KERNELS["rms_norm"].replace("[m, n]", "[m, 96]").replace("[n]", "[96]").replace("cols = n\n", "cols = 96\n")
ON_H = KERNELS["matmul_2d"].replace(" sum k", "")

# what it is: spec
FUSED = {
    "matrix product, grouped order": HEAD + TUTORIAL + op("f(all_gather(x), w)", "x, w"),
    "the same, its result reduced": HEAD + TUTORIAL + op("reduce_scatter(f(a, v), M)", "a, v", "chunk = 24 along M"),
    "matrix product, 2-D grid, `tl.range` options": gathered("matmul_2d"),
    "the same, all_reduce of its result": HEAD + KERNELS["matmul_2d"]
    + op("all_reduce(f(a, v))", "a, v", "chunk = 24 along M, side = pull"),
    "matrix product, persistent, helper": gathered("matmul_persistent"),
    "the same, its result reduced by a ring": reduced("matmul_persistent", "chunk = 24 along M, route = ring"),
    "matrix product, descriptors made in the kernel, halves": gathered("matmul_descriptor"),
    "matrix product, descriptors made on the host": DESCRIPTORS["gathered"],
    "the same, its result reduced, pulled": DESCRIPTORS["reduced"],
    "the same, persistent, reduced by a ring": DESCRIPTORS["reduced by a ring"],
    "attention, all by descriptors made on the host": DESCRIPTORS["attention"],
    "as the tutorial has it, persistent with descriptors": TUTORIALS["persistent product with descriptors"],
    "matrix product, block pointers": gathered("matmul_blocks"),
    "matrix product, right operand gathered along K": along_k(policy=BY_L, call=WEIGHTS),
    "the same, loop that carries pointers": along_k("matmul_pointers", BY_L, WEIGHTS),
    "two layers in one kernel, gathered and reduced": HEAD + TENSORS + TWO_LAYERS
    + f"op f_op(x2, up, down) -> y {{ y = reduce_scatter(f((all_gather(x2) with {{ {COPY} }}), up, down), M) }}",
    "attention, one loop": HEAD + ATTENTION,
    "attention, keys and values gathered apart": HEAD + KEYS_AND_VALUES["attention_kv"],
    "attention forward, loop in a helper": attention(),
    "the same, causal": attention(causal="true"),
    "attention as the tutorial has it, causal: two results": TUTORIALS["attention, causal"],
    "layer norm": gathered("layer_norm"),
    "RMSNorm, autotuned": gathered("rms_norm"),
    "sum with the residual, then RMSNorm": HEAD + TENSORS + ADD_NORM + op("f(all_gather(x), res, g)", "x, res, g"),
    "layer norm that keeps mean and deviation: three results": SEVERAL["norm"],
    "matrix product and its activation: two results": SEVERAL["a product and its activation"],
    "attention and its log-sum-exp: two results": SEVERAL["attention"],
    "a row and its scale: two results": HEAD + TENSORS + QUANTIZE
    + f"op f_op(x) -> y, s {{ y, s = f(all_gather(x)) with {{ {COPY} }} }}",
    "softmax, persistent over rows": gathered("softmax"),
    "log-sum-exp of a row, for cross entropy": HEAD + TENSORS + CROSS + op("f(all_gather(x))"),
    "rotary embedding": HEAD + TENSORS + ROTARY + op("f(all_gather(x2), angles, angles)", "x2, angles"),
    "SwiGLU of halves, 2-D grid": gathered("gated"),
    "rows scaled, whole blocks as a heuristic says": CHOSEN["what a heuristic would choose"],
    "RMSNorm as libraries write it: imports tried, a return": NORM,
    "dropout with a seed": HEAD + TENSORS + DROPOUT + op("f(all_gather(x))"),
    "sum of vectors, one dimension": HEAD + TENSORS + ADD + op("f(all_gather(x))"),
    "RMSNorm of rows dealt by all_to_all": HEAD + TENSORS + NORM_96
    + op("f(all_to_all(h, K -> M), g)", "h, g"),
    "matrix product of rows dealt by all_to_all": HEAD + TENSORS + ON_H
    + op("f(all_to_all(h, K -> M), wide)", "h, wide"),
    "matrix product of columns dealt by all_to_all, reduced": CHOSEN["columns dealt by all_to_all"],
    "a loop over gathered rows, downwards": WHOLE["attend_downwards"],
    "attention in two passes, keys and values gathered apart": PASSES["attend_in_passes"],
    "keys and values in loops of their own": PASSES["attend_pooled"],
    "grouped matrix product, the tutorial's loop over groups": GROUPS["loop"],
    "grouped matrix product, group from a table": GROUPS["table"],
}  # fmt: skip
REFUSED = {
    "a row, and the scale of another: two results": SEVERAL_REFUSED["stores rows of S in another program"],
    "rows picked by an index": refused("by_index", ", I"),
    "grouped matrix product, as the tutorial has it: addresses of the weights from a table": GROUPS_REFUSED["pointers"],
    "grouped matrix product, rows of a group from a table": GROUPS_REFUSED["sizes"],
    "a row, or row 0 where its greatest element is the 17th": data_spec(["by_argmax"]),
    "a store where the greatest element is small": data_spec(["by_branch"]),
    "a loop that begins where a table says": data_spec(["by_range"]),
    "one row of 256 read elsewhere": programs_spec("tests/kernels/kernel_zoo_programs.py", ["reads_another_row"], 157),
    "matrix product, parts of K by atomics": HEAD + TENSORS + SPLIT.replace(" sum k", "")
    + op("f(all_gather(x), wide)", "x, wide"),
    "sums by atomics": refused("adds_atomically"),
    "counts in the gathered argument, by an atomic": refused("counts_visits"),
    "an argument and the result in one memory": gathered("softmax").replace("Y = out_ptr", "Y = in_ptr"),
    "reads back what it stored": refused("reads_its_result"),
    "in place": refused("works_in_place"),
    "reads the next row": refused("looks_ahead"),
    "a `return` in a loop": refused("returns_early"),
    "elements one behind the other, their rows sent": ELEMENTS,
    "stores half of each row": refused("half_of_it"),
    "softmax of sharded columns": HEAD + TENSORS + KERNELS["softmax"] + "op f_op(h) -> y { y = f(h) }",
}  # fmt: skip
