"""Kernels of libraries, in specs that name the installed files; `library_kernels.py` runs them.

Nothing of the libraries is here: only what a user would write of them.
"""

from kernel_specs import COPY, HEAD

TENSORS = """
tensor r : bf16[M @ tp, K]
tensor z : bf16[M @ tp, 192]
tensor e : bf16[M @ tp, D]
"""
CHUNKS = "chunk = 24 along M"


def item(params, results, file, function, tensors, args="", grid="m", const=""):
    lines = [f'kernel f({params}) -> {results} = "{file}" : {function} {{']
    lines += [f"    {t}" for t in tensors.split("; ")]
    lines += [f"    arg {a}" for a in args.split("; ") if a]
    return "\n".join([*lines, f"    grid = {grid}", *([f"    const {const}"] if const else []), "}\n"])


def gathered(kernel, call, parameters, results="y", policy=COPY):
    return HEAD + TENSORS + kernel + f"op f_op({parameters}) -> {results} {{ {results} = {call} with {{ {policy} }} }}"


def reduced(kernel, policy=CHUNKS, call="f(a, v)", parameters="a, v"):
    return HEAD + TENSORS + kernel + (
        f"op f_op({parameters}) -> y {{ y = reduce_scatter({call}, M) with {{ {policy} }} }}")  # fmt: skip


LIGER_NORM = item(
    "X, W", "Y, R", "liger_kernel/ops/rms_norm.py", "_rms_norm_forward_kernel",
    "X = X_ptr : [m, n]; W = W_ptr : [n]; Y = Y_ptr : [m, n]; R = RSTD_ptr : f32[m, 1]",
    "X_row_stride = X.stride(0); Y_row_stride = Y.stride(0); W_row_stride = 1; RSTD_row_stride = R.stride(0); "
    "n_cols = n; eps = 1e-6; offset = 0.0", const="casting_mode = 0, elementwise_affine = true, BLOCK_SIZE = 128",
)  # fmt: skip
LIGER_LAYER_NORM = item(
    "X, W, B", "Y, MEAN, R", "liger_kernel/ops/layer_norm.py", "_layer_norm_forward_kernel",
    "X = X_ptr : [m, n]; W = W_ptr : [n]; B = B_ptr : [n]; Y = Y_ptr : [m, n]; MEAN = Mean_ptr : f32[m, 1]; "
    "R = RSTD_ptr : f32[m, 1]",
    "X_row_stride = X.stride(0); Y_row_stride = Y.stride(0); W_row_stride = 1; B_row_stride = 1; "
    "Mean_row_stride = MEAN.stride(0); RSTD_row_stride = R.stride(0); n_cols = n; eps = 1e-5", const="BLOCK_SIZE = 128",
)  # fmt: skip
LIGER_ADD_NORM = item(
    "X, RES, W", "Y, S, R", "liger_kernel/ops/fused_add_rms_norm.py", "_fused_add_rms_norm_forward_kernel",
    "X = X_ptr : [m, n]; RES = R_ptr : [m, n]; W = W_ptr : [n]; Y = Y_ptr : [m, n]; S = S_ptr : [m, n]; "
    "R = RSTD_ptr : f32[m, 1]",
    "X_row_stride = X.stride(0); Y_row_stride = Y.stride(0); S_row_stride = S.stride(0); R_row_stride = RES.stride(0); "
    "W_row_stride = 1; RSTD_row_stride = R.stride(0); n_cols = n; eps = 1e-6; offset = 0.0",
    const="casting_mode = 0, BLOCK_SIZE = 128",
)  # fmt: skip
LIGER_SWIGLU = item(
    "A, B", "C", "liger_kernel/ops/swiglu.py", "_swiglu_forward_kernel",
    "A = a_ptr : [m, 96]; B = b_ptr : [m, 96]; C = c_ptr : [m, 96]", "stride = 96; gate_multiplier = 1.0",
    const="n_cols = 96, BLOCK_SIZE = 128",
)  # fmt: skip
LIGER_SOFTMAX = item(
    "X", "Y", "liger_kernel/ops/softmax.py", "_softmax_single_block_forward_kernel",
    "X = X_ptr : [m, n]; Y = Y_ptr : [m, n]",
    "X_row_stride = X.stride(0); Y_row_stride = Y.stride(0); n_cols = n", const="BLOCK_SIZE = 128",
)  # fmt: skip
LIGER_DYT = item(
    "X, A, G", "Y", "liger_kernel/ops/dyt.py", "_dyt_fwd_kernel",
    "X = X : [m, 96]; A = Alpha : [1]; G = Gamma : [96]; Y = Y : [m, 96]", "Beta = 0", "cdiv(96, BLOCK_N), m",
    "HAVE_BETA = false, N = 96, BLOCK_N = 64",
)  # fmt: skip
UNSLOTH_NORM = item(
    "X, W", "Y, R", "unsloth/kernels/rms_layernorm.py", "_rms_layernorm_forward",
    "X = X : [m, 96]; W = W : [96]; Y = Y : [m, 96]; R = r : f32[m, 1]",
    const="Y_row_stride = 96, X_row_stride = 96, W_row_stride = 1, r_row_stride = 1, n_cols = 96, eps = 1e-6, "
    "LONG_INDEXING = 0, BLOCK_SIZE = 128",
)  # fmt: skip
UNSLOTH_SWIGLU = item(
    "E, G", "H", "unsloth/kernels/swiglu.py", "_fg_kernel", "E = e : [m, n]; G = g : [m, n]; H = h : [m, n]",
    "n_elements = m * n", "cdiv(m * n, BLOCK_SIZE)", "BLOCK_SIZE = 64, LONG_INDEXING = 0",
)  # fmt: skip
FLA_L2 = item(
    "X", "Y, R", "fla/modules/norm/l2norm.py", "l2norm_fwd_kernel",
    "X = x : [m, 96]; Y = y : [m, 96]; R = rstd : f32[m, 1]", "eps = 1e-6; T = m", "cdiv(m, BT)",
    "D = 96, BD = 128, NB = 1, BT = 16",
)  # fmt: skip
FLA_SWIGLU = item(
    "X, G", "Z", "fla/modules/activations/ops.py", "swiglu_fwd_kernel",
    "X = x : [m, 96]; G = y : [m, 96]; Z = z : [m, 96]",
    "stride_x_row = X.stride(0); stride_y_row = G.stride(0); stride_z_row = Z.stride(0); T = m * 96",
    "cdiv(m * 96, B)", "D = 96, B = 512",
)  # fmt: skip
FLA_MATMUL = item(
    "A, B", "C", "fla/ops/utils/matmul.py", "matmul_kernel", "A = a : [m, k]; B = b : [k, n]; C = c : [m, n] sum k",
    "input = 0; alpha = 0; beta = 0; stride_ab = 0; stride_am = A.stride(0); stride_ak = A.stride(1); "
    "stride_bk = B.stride(0); stride_bn = B.stride(1); stride_cb = 0; stride_cm = C.stride(0); stride_cn = C.stride(1)",
    "1, cdiv(m, BM), cdiv(n, BN)",
    'BM = 32, BK = 32, BN = 32, G = 4, ACTIVATION = "", HAS_INPUT = false, HAS_ALPHA = false, HAS_BETA = false, '
    "ALLOW_TF32 = false",
)  # fmt: skip
GEMS_NORM = item(
    "X, W", "Y, R", "flag_gems/ops/rms_norm.py", "rms_norm_kernel",
    "X = in_ptr : [m, n]; W = w_ptr : [n]; Y = out_ptr : [m, n]; R = INV_RMS : f32[m, 1]",
    "y_stride_r = Y.stride(0); y_stride_c = 1; x_stride_r = X.stride(0); x_stride_c = 1; N = n; eps = 1e-6",
    const="BLOCK_SIZE = 128",
)  # fmt: skip
GEMS_MM = item(
    "A, B", "C", "flag_gems/ops/mm.py", "mm_kernel_general", "A = A : [m, k]; B = B : [k, n]; C = C : [m, n] sum k",
    "stride_am = A.stride(0); stride_ak = A.stride(1); stride_bk = B.stride(0); stride_bn = B.stride(1); "
    "stride_cm = C.stride(0); stride_cn = C.stride(1)", "cdiv(m, BLOCK_M) * cdiv(n, BLOCK_N)",
    "BLOCK_M = 32, BLOCK_N = 32, BLOCK_K = 32, GROUP_M = 4",
)  # fmt: skip
FLASH_LINEAR = item(
    "A, B, BIAS", "C", "flash_attn/ops/triton/linear.py", "kernel_fwd",
    "A = A : [m, k]; B = B : [n, k]; BIAS = bias : [n]; C = C : [m, n]",
    "ACT_INPUT = 0; CACHE_KEY_M = 0; CACHE_KEY_N = 0; CACHE_KEY_K = 0; stride_cm = C.stride(0); "
    "stride_am = A.stride(0); stride_ak = 1; stride_bn = B.stride(0); stride_bk = 1",
    "cdiv(m, BLOCK_M) * cdiv(n, BLOCK_N)",
    "BLOCK_M = 32, GROUP_M = 8, BLOCK_N = 32, BLOCK_K = 32, SPLIT_K = 1, EVEN_K = true, A_ROWMAJOR = true, "
    'B_COLMAJOR = true, BIAS = true, SAVE_ACT_INPUT = false, ACTIVATION = "id"',
)  # fmt: skip
FLASH_ROTARY = item(
    "X, C, S", "Y", "flash_attn/ops/triton/rotary.py", "rotary_kernel",
    "X = X : [m, 96]; C = COS : [m, 16]; S = SIN : [m, 16]; Y = OUT : [m, 96]",
    "CU_SEQLENS = 0; SEQLEN_OFFSETS = 0; seqlen = m; nheads = 3; seqlen_ro = m; stride_out_batch = 0; "
    "stride_out_seqlen = Y.stride(0); stride_out_nheads = 32; stride_out_headdim = 1; stride_x_batch = 0; "
    "stride_x_seqlen = X.stride(0); stride_x_nheads = 32; stride_x_headdim = 1", 
    "cdiv(3, BLOCK_H), cdiv(m, BLOCK_M), 1",
    "ROTARY_DIM = 32, IS_SEQLEN_OFFSETS_TENSOR = false, IS_VARLEN = false, INTERLEAVED = false, CONJUGATE = false, "
    "BLOCK_H = 2, BLOCK_M = 8",
)  # fmt: skip
LIGHT_NORM = item(
    "X, W", "Y", "lightllm/models/llama/triton_kernel/rmsnorm.py", "_rms_norm_fwd_fused",
    "X = X : [m, n]; W = W : [n]; Y = Y : [m, n]",
    "x_stride0 = X.stride(0); x_stride1 = 1; y_stride0 = Y.stride(0); y_stride1 = 1; N = n; eps = 1e-6",
    const="BLOCK_SIZE = 64",
)  # fmt: skip
LIGHT_SILU = item(
    "X", "Y", "lightllm/models/llama/triton_kernel/silu_and_mul.py", "_silu_and_mul_kernel",
    "X = input_ptr : [m, 192]; Y = output_ptr : [m, 96]",
    "stride_input_m = X.stride(0); stride_input_n = 1; stride_output_m = Y.stride(0); stride_output_n = 1; "
    "size_m = m; size_n = 96", "cdiv(m, BLOCK_M), cdiv(96, BLOCK_N)", "BLOCK_M = 16, BLOCK_N = 32",
)  # fmt: skip
LIGHT_ATTENTION = item(
    "Q, K, V, B, S", "O", "lightllm/models/llama/triton_kernel/context_flashattention_nopad.py",
    "_fwd_kernel_no_prompt_cache",
    "Q = Q : [s, d]; K = K : [t, d]; V = V : [t, d]; B = B_Start_Loc : [1]; S = B_Seqlen : [1]; O = Out : [s, d]",
    "sm_scale = 0.25; stride_qbs = Q.stride(0); stride_qh = 0; stride_qd = 1; stride_kbs = K.stride(0); stride_kh = 0; "
    "stride_kd = 1; stride_vbs = V.stride(0); stride_vh = 0; stride_vd = 1; stride_obs = O.stride(0); stride_oh = 0; "
    "stride_od = 1; kv_group_num = 1; H = 1", "cdiv(s, BLOCK_M), 1", "BLOCK_DMODEL = 32, BLOCK_M = 16, BLOCK_N = 16",
)  # fmt: skip
TABLES = "tensor starts : i32[1]\ntensor lengths : i32[1]\n"

CLONES = {"flash-attn": "0251105a", "lightllm": "fc72ffab"}  # commits of their repositories
# library: kernel: {role: spec}
SPECS = {
    "liger-kernel: RMSNorm": {"gathered": gathered(LIGER_NORM, "f(all_gather(x), g)", "x, g", "y, rstd")},
    "liger-kernel: layer norm": {
        "gathered": gathered(LIGER_LAYER_NORM, "f(all_gather(x), g, b)", "x, g, b", "y, mean, rstd")},
    "liger-kernel: residual and RMSNorm": {
        "two gathered": gathered(LIGER_ADD_NORM, "f(all_gather(x), all_gather(r), g)", "x, r, g", "y, s, rstd")},
    "liger-kernel: SwiGLU": {"two gathered": gathered(LIGER_SWIGLU, "f(all_gather(x), all_gather(r))", "x, r")},
    "liger-kernel: softmax": {"gathered": gathered(LIGER_SOFTMAX, "f(all_gather(x))", "x")},
    "liger-kernel: DyT": {"gathered": gathered("tensor one : bf16[1]\n" + LIGER_DYT, "f(all_gather(x), one, g)",
                                               "x, one, g")},
    "unsloth: RMSNorm": {"gathered": gathered(UNSLOTH_NORM, "f(all_gather(x), g)", "x, g", "y, rstd")},
    "unsloth: SwiGLU": {"two gathered": gathered(UNSLOTH_SWIGLU, "f(all_gather(x), all_gather(r))", "x, r")},
    "fla-core: L2 norm": {"gathered": gathered(FLA_L2, "f(all_gather(x))", "x", "y, rstd")},
    "fla-core: SwiGLU": {"two gathered": gathered(FLA_SWIGLU, "f(all_gather(x), all_gather(r))", "x, r")},
    "fla-core: matrix product": {
        "gathered": gathered(FLA_MATMUL, "f(all_gather(x), w)", "x, w"), "reduced": reduced(FLA_MATMUL)},
    "flag-gems: RMSNorm": {"gathered": gathered(GEMS_NORM, "f(all_gather(x), g)", "x, g", "y, rstd")},
    "flag-gems: matrix product": {
        "gathered": gathered(GEMS_MM, "f(all_gather(x), w)", "x, w"), "reduced": reduced(GEMS_MM)},
    "flash-attn: linear layer": {
        "gathered": gathered("tensor bn : bf16[N @ tp]\n" + FLASH_LINEAR, "f(all_gather(x), wt, bn)", "x, wt, bn")},
    "flash-attn: rotary embedding": {
        "gathered": gathered("tensor t : bf16[M, 16]\n" + FLASH_ROTARY, "f(all_gather(x), t, t)", "x, t")},
    "lightllm: RMSNorm": {"gathered": gathered(LIGHT_NORM, "f(all_gather(x), g)", "x, g")},
    "lightllm: SiLU and product": {"gathered": gathered(LIGHT_SILU, "f(all_gather(z))", "z")},
    "lightllm: attention of packed sequences": {
        "two gathered": gathered(TABLES + LIGHT_ATTENTION, "f(q, all_gather(c), all_gather(e), starts, lengths)",
                                 "q, c, e, starts, lengths")},
}  # fmt: skip
