"""Specs that call the kernels of `kernel_zoo_tutorials`."""

from descriptor_specs import PRODUCT
from descriptor_specs import gathered as by_descriptor
from descriptor_specs import reduced as reduced_by_descriptor
from kernel_specs import COPY, HEAD

PATH = "tests/kernels/kernel_zoo_tutorials.py"
PERSISTENT = (
    PRODUCT.replace("tests/kernels/kernel_zoo_descriptors.py", PATH).replace("matmul_host", "matmul_tma_persistent")
    .replace("GROUP = 4", "GROUP = 4, HALVES = true, PROGRAMS = 3").replace("c_desc[BM, BN]", "c_desc[BM, BN / 2]")
    .replace("grid = cdiv(m, BM) * cdiv(n, BN)", "grid = 3")
)  # fmt: skip


def attention(stage=1, block="[BLOCK_M, HEAD]"):
    """Keys and values gathered apart; queries as many as keys."""
    keys = block.replace("M", "N")
    return HEAD + f"""
tensor e : bf16[M @ tp, D]
kernel f(Q, K, V) -> O, TOP = "{PATH}" : attention_forward {{
    Q = desc_q{block} : [s, d]
    K = desc_k{keys} : [s, d]
    V = desc_v{keys} : [s, d]
    O = desc_o{block} : [s, d]
    TOP = top_ptr : f32[s, 1]
    arg scale = 0.25
    arg N_CTX = s
    grid = cdiv(s, BLOCK_M)
    const HEAD = 32, BLOCK_M = 16, BLOCK_N = 16, STAGE = {stage}
}}
op f_op(q, c, e) -> y, top {{ y, top = f(q, all_gather(c), all_gather(e)) with {{ {COPY} }} }}
"""


SPECS = {
    "persistent product with descriptors": by_descriptor(PERSISTENT),
    "the same, reduced": reduced_by_descriptor(PERSISTENT),
    "attention": attention(),
    "attention, causal": attention(3),
    "attention, by pointers": attention(3, ""),
}
