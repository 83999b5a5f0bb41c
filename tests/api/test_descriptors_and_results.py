"""`chunkdsl.compile`: launches that pass tensor descriptors, and kernels with several results."""

import sys
from pathlib import Path

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from chunkdsl import ChunkError, ChunkSchedule, compile

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/kernels"))
import kernel_zoo_descriptors  # noqa: E402
import kernel_zoo_several  # noqa: E402

GATHER = ChunkSchedule("all_gather", world_size=2)
BLOCK = [16, 16]


def integers(*shape, seed=0):
    drawn = torch.randint(-1, 2, shape, generator=torch.Generator().manual_seed(seed))
    return drawn.to(torch.bfloat16)


def described(*tensors):
    return tuple(TensorDescriptor.from_tensor(t, BLOCK) for t in tensors)


def test_descriptors_are_passed_as_to_the_kernel(tmp_path):
    a, b = integers(19, 32), integers(32, 32, seed=1)
    c = [torch.empty(19, 32, dtype=a.dtype) for _ in range(2)]
    calls = [(*described(mine, b, out), 19, 32, 32) for mine, out in zip((a[:10], a[10:]), c, strict=True)]
    fused = compile(kernel_zoo_descriptors.matmul_host, schedule=GATHER, folder=tmp_path)
    results = fused[(4,)].simulate(calls, BM=16, BN=16, BK=16, GROUP=2)
    for result, out in zip(results, c, strict=True):
        assert torch.equal(out, (a.float() @ b.float().T).to(a.dtype)) and result.data_ptr() == out.data_ptr()
    assert "b_desc = b_desc[16, 16] : [N, K]" in fused.modules[0].spec.read_text()


def test_results_of_one_dimension_come_back_as_they_were_passed(tmp_path):
    x, w = integers(12, 32), torch.ones(32, dtype=torch.bfloat16)
    calls = [
        (part, torch.empty_like(x), w, w, torch.empty(12), torch.empty(12), 32, 32, 1e-5) for part in (x[:6], x[6:])
    ]
    fused = compile(kernel_zoo_several.layer_norm_forward, schedule=GATHER, folder=tmp_path)
    for (y, mean, rstd), call in zip(fused[(12,)].simulate(calls, BLOCK=32), calls, strict=True):
        assert (y is call[1], mean is call[4], rstd is call[5]) == (True, True, True)
        torch.testing.assert_close(mean, x.float().mean(1))
        wanted = torch.nn.functional.layer_norm(x.float(), (32,)) + 1
        torch.testing.assert_close(y.float(), wanted, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("descriptor, what", [
    (lambda t: TensorDescriptor.from_tensor(t[:, :16], BLOCK), "describes a part of a tensor"),
    (lambda t: TensorDescriptor(t, [8, 32], [32, 1], BLOCK), "describes a part of a tensor"),
    (lambda t: TensorDescriptor.from_tensor(t, BLOCK, "nan"), "is padded with nan"),
])  # fmt: skip
def test_a_descriptor_of_less_than_a_tensor_is_refused(descriptor, what, tmp_path):
    a = integers(16, 32)
    fused = compile(kernel_zoo_descriptors.matmul_host, schedule=GATHER, folder=tmp_path)
    with pytest.raises(ChunkError, match=what):
        fused[(4,)].build(descriptor(a), *described(a, a), 32, 32, 32, BM=16, BN=16, BK=16, GROUP=2)
