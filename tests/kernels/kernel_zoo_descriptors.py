"""Single-GPU kernels that take tensor descriptors made on the host, as Triton's tutorials pass them."""

import triton
import triton.language as tl


@triton.jit
def matmul_host(a_desc, b_desc, c_desc, M, N, K,
                BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):  # fmt: skip
    """The grouped order of the tutorials, all three matrices by descriptor, B transposed."""
    pid = tl.program_id(axis=0)
    in_group = GROUP * tl.cdiv(N, BN)
    first = pid // in_group * GROUP
    height = min(tl.cdiv(M, BM) - first, GROUP)
    row = (first + (pid % in_group) % height) * BM
    col = (pid % in_group) // height * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        acc = tl.dot(a_desc.load([row, k * BK]), b_desc.load([col, k * BK]).T, acc)
    c_desc.store([row, col], acc.to(c_desc.dtype))


@triton.jit
def matmul_host_persistent(a_desc, b_desc, c_desc, M, N, K,
                           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PROGRAMS: tl.constexpr):  # fmt: skip
    """A loop over tiles, the result stored in halves."""
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * tl.cdiv(N, BN), PROGRAMS, flatten=False):
        row, col = tile // tl.cdiv(N, BN) * BM, tile % tl.cdiv(N, BN) * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(a_desc.load([row, k]), b_desc.load([col, k]).T, acc)
        left, right = tl.split(tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1)))
        c_desc.store([row, col], left.to(c_desc.dtype))
        c_desc.store([row, col + BN // 2], right.to(c_desc.dtype))


@triton.jit
def attention_inner(acc, total, top, q, kv_desc, T, scale, BN: tl.constexpr):
    """The loop over keys, in a helper that is handed the descriptor."""
    for start in range(0, T, BN):
        kv = kv_desc.load([start, 0])
        s = tl.dot(q, kv.T) * scale
        s = tl.where(start + tl.arange(0, BN)[None, :] < T, s, float("-inf"))
        peak = tl.maximum(top, tl.max(s, 1))
        p = tl.exp(s - peak[:, None])
        shrink = tl.exp(top - peak)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(kv.dtype), kv, acc * shrink[:, None])
        top = peak
    return acc, total


@triton.jit
def attention_host(q_desc, kv_desc, o_desc, S, T, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Keys that are values as well, all by descriptor."""
    row = tl.program_id(0) * BM
    acc = tl.zeros((BM, D), dtype=tl.float32)
    total, top = tl.zeros((BM,), dtype=tl.float32), tl.full((BM,), float("-inf"), dtype=tl.float32)
    acc, total = attention_inner(acc, total, top, q_desc.load([row, 0]), kv_desc, T, scale, BN)
    o_desc.store([row, 0], (acc / total[:, None]).to(o_desc.dtype))
