"""Number formats against torch, over all bit patterns or many floats."""

import numpy as np
import pytest
import torch
import triton.language as tl

from chunkdsl.interp.numbers import from_bfloat16, from_fp8, to_bfloat16, to_fp8


def floats():
    generator = np.random.default_rng(0)
    bits = generator.integers(0, 2**32, 20000, dtype=np.uint32)
    halves = (generator.integers(0, 2**16, 5000, dtype=np.uint32) << 16) | 0x8000  # exactly between two bfloat16
    return np.concatenate([bits, halves]).view(np.float32)


def test_bfloat16_both_ways():
    patterns = np.arange(2**16, dtype=np.uint16)
    wide = torch.from_numpy(patterns.view(np.int16).copy()).view(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(from_bfloat16(patterns), wide)
    values = floats()
    values = values[~np.isnan(values)]
    rounded = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(to_bfloat16(values), rounded)
    assert from_bfloat16(to_bfloat16(np.array([np.nan], np.float32))) != 0


@pytest.mark.parametrize("dtype, kind, top", [
    (tl.float8e4nv, torch.float8_e4m3fn, 448.0),
    (tl.float8e5, torch.float8_e5m2, 57344.0),
])  # fmt: skip
def test_fp8_both_ways(dtype, kind, top):
    patterns = np.arange(256, dtype=np.uint8)
    wide = from_fp8(patterns, dtype)
    np.testing.assert_array_equal(wide, torch.from_numpy(patterns.copy()).view(kind).float().numpy())
    finite = np.isfinite(wide)
    np.testing.assert_array_equal(to_fp8(wide[finite], dtype), patterns[finite])
    assert from_fp8(to_fp8(np.array([1e30, -1e30], np.float32), dtype), dtype).tolist() == [top, -top]
