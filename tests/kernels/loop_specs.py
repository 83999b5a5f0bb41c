"""Specs whose kernels go through gathered rows in a loop."""

from kernel_specs import ATTENTION, COPY, HEAD, KERNELS, SEVERAL, gemm

LOOPS = "tests/kernels/kernel_zoo_loops.py"
MORE = """
tensor kv : bf16[M @ tp, 64]
tensor p : bf16[K, M]
tensor r : bf16[M @ tp, N]
dim L = 192
tensor z : bf16[M, L]
tensor s : bf16[L @ tp, N]
"""


def attention(name="fused_attention", causal="false", call="f(q, all_gather(kv))", more="", policy=COPY):
    """Queries against a gathered matrix, each row of which is a key and a value."""
    wide = name == "fused_attention"
    s = "t" if causal == "true" else "s"  # below the diagonal: as many queries as keys
    return HEAD + MORE + f"""
kernel f(Q, KV) -> O = "{LOOPS}" : {name} {{
    Q = q_ptr : [{s}, d]
    KV = kv_ptr : [t, {64 if wide else "d"}]
    O = o_ptr : [{s}, d]
    arg S = {s}
    arg T = t
    arg scale = 0.25
    grid = {"3" if "flattened" in name else "cdiv(" + s + ", BM)"}
    const D = 32, BM = 16, BN = 16{f", CAUSAL = {causal}" if wide else ""}{more}
}}
op f_op(q, {"kv" if wide else "c"}) -> y {{ y = {call if wide else "f(q, all_gather(c))"} with {{ {policy} }} }}
"""


def along_k(name="matmul_2d", policy=COPY, call="op f_op(p, r) -> y {{ y = f(p, all_gather(r)) with {{ {policy} }} }}"):
    """A product whose right operand is sharded along the contraction, and gathered along it."""
    if name == "matmul_2d":
        item = KERNELS[name]
    else:
        item = gemm(name, "cdiv(m, BM) * cdiv(n, BN)").replace("kernel_zoo.py", "kernel_zoo_loops.py")
    item = item.replace("[m, n] sum k", "[m, n]")
    return HEAD + MORE + item + call.format(policy=policy)


WEIGHTS = "op f_op(z, s) -> y {{ y = f(z, all_gather(s)) with {{ {policy} }} }}"  # rows of a fixed length


TURNS = {
    "attention": HEAD + ATTENTION,
    "attention, loop in a helper": attention(),
    "attention, causal": attention(causal="true"),
    "attention, carried by programs": attention(policy="chunk = 24 along M, via = ldst, place = own_sms(2)"),
    "product along K": along_k(),
    "product along K, ring": along_k("matmul_pointers", "chunk = 40 along M, route = ring, via = ldst, buffers = 2"),
}
WHOLE = {name: attention(name) for name in ("attend_downwards", "attend_twice", "attend_halo", "attend_flattened")}


def in_passes(name):
    """Keys and values gathered apart, read by several loops one behind the other."""
    text = SEVERAL["attention_kv"].replace("kernel_zoo.py", "kernel_zoo_passes.py")
    return HEAD + text.replace(": attention_kv", f": {name}")


PASSES = {name: in_passes(name) for name in ("attend_in_passes", "attend_pooled")}
