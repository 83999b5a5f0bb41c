"""An ordinary Triton matrix product, overlapped with the gather of its left operand, from Python: no spec is written.

    python examples/fused_matmul.py                                    # simulated ranks, on the CPU
    torchrun --nproc-per-node 2 examples/fused_matmul.py               # one GPU for each rank

`chunkdsl.compile` gets the kernel and a `ChunkSchedule`; what it returns is launched like the kernel, on this rank's
rows of `a`. Which argument is which follows from the call. The module that was made, and the spec that it was made of,
are printed: `chunkdsl verify` takes the spec. On GPUs set the two variables that CONTRIBUTING names.

Exit codes: 0 the result is that of the whole product, 1 it is not, 2 it could not run.
"""

import os
import sys

import torch
import torch.distributed as dist
import triton
import triton.language as tl

import chunkdsl
from chunkdsl import ChunkError, ChunkSchedule

NEEDED_ON_CUDA = {"TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NCCL_NVLS_ENABLE": "0"}
M, N, K = 70, 96, 64


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c[M, N] = a[M, K] @ b[K, N]. Knows nothing of ranks."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        deep = k + tl.arange(0, BK)
        a_mask = (rows[:, None] < M) & (deep[None, :] < K)
        b_mask = (deep[:, None] < K) & (cols[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * K + deep[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + deep[:, None] * N + cols[None, :], mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc)
    c_mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(c_ptr.dtype.element_ty), mask=c_mask)


def grid(meta):
    return triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"])


def shard(x, rank, world):
    """This rank's rows; the last rank may have fewer."""
    rows = -(-x.shape[0] // world)
    return x[rank * rows : (rank + 1) * rows]


def main():
    cuda = torch.cuda.is_available() and "RANK" in os.environ
    missing = [f"{k}={v}" for k, v in NEEDED_ON_CUDA.items() if cuda and os.environ.get(k) != v]
    if missing:
        print(f"fused_matmul: on GPUs set {' '.join(missing)} first: NVLink multicast stays off", file=sys.stderr)
        return 2
    world = int(os.environ["WORLD_SIZE"]) if cuda else 2
    schedule = ChunkSchedule(
        collective_type="all_gather", chunk_size_bytes=24 * K * 2, world_size=world, overlap_policy="swizzle"
    )
    fused = chunkdsl.compile(kernel=matmul, schedule=schedule, target_backend="triton")
    torch.manual_seed(0)
    a, b = (torch.randint(-1, 2, shape).to(torch.bfloat16) for shape in ((M, K), (K, N)))
    try:
        results = on_gpu(fused, a, b) if cuda else simulated(fused, a, b, world)
    except ChunkError as error:
        print(error, file=sys.stderr)
        return 2
    wanted = (a.float() @ b.float()).to(torch.bfloat16)
    agree = all(torch.equal(c.cpu(), wanted) for c in results)
    (built,) = fused.modules
    print(f"spec    {built.spec}\nmodule  {built.path}")
    print(f"{len(results)} results {'equal' if agree else 'differ from'} the whole product")
    return int(not agree)


def simulated(fused, a, b, world):
    """The module's own wrapper and kernels, on ranks of one process."""
    calls = []
    for rank in range(world):
        c = torch.empty(M, N, dtype=a.dtype)
        calls.append((shard(a, rank, world), b, c, M, N, K))
    return fused[grid].simulate(calls, BM=32, BN=32, BK=32)


def on_gpu(fused, a, b):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    mine = shard(a, dist.get_rank(), dist.get_world_size()).cuda()
    c = torch.empty(M, N, dtype=a.dtype, device="cuda")
    fused[grid](mine, b.cuda(), c, M, N, K, BM=32, BN=32, BK=32)
    torch.cuda.synchronize()
    fused.close()
    dist.destroy_process_group()
    return [c]


if __name__ == "__main__":
    sys.exit(main())
