"""Number formats that numpy lacks: bfloat16 kept as uint16, and the two fp8 formats kept as uint8.

Rounding is to nearest even as in PTX `cvt.rn`; fp8 saturates at the largest finite value as `cvt.rn.satfinite` does.
"""

from __future__ import annotations

import numpy as np
import torch
import triton.language as tl

FP8 = {tl.float8e4nv: (torch.float8_e4m3fn, 448.0), tl.float8e5: (torch.float8_e5m2, 57344.0)}


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """float32 values of bfloat16 bit patterns (uint16), exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """bfloat16 bit patterns (uint16) of float values, nearest even; every NaN becomes the quiet NaN 0x7FC0."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    bits = values.view(np.uint32)
    rounded = ((bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def from_fp8(bits: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    """float32 values of fp8 bit patterns (uint8), exactly."""
    kind, _ = FP8[dtype]
    return torch.from_numpy(np.array(bits, dtype=np.uint8)).view(kind).float().numpy()


def to_fp8(values: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    """fp8 bit patterns (uint8) of float values, nearest even, saturating; NaN stays NaN."""
    kind, largest = FP8[dtype]
    clipped = torch.from_numpy(np.array(values, dtype=np.float32)).clamp(-largest, largest)
    return clipped.to(kind).view(torch.uint8).numpy()


def widen(data: np.ndarray, dtype: tl.dtype) -> np.ndarray:
    """The values of a tile of any floating dtype as numpy floats that numpy can calculate with."""
    if dtype == tl.bfloat16:
        return from_bfloat16(data)
    if dtype in FP8:
        return from_fp8(data, dtype)
    return data


def narrow(values: np.ndarray, dtype: tl.dtype) -> np.ndarray | None:
    """Bits of `values` in a format that numpy lacks, or None where numpy has the format itself."""
    if dtype == tl.bfloat16:
        return to_bfloat16(values)
    if dtype in FP8:
        return to_fp8(values, dtype)
    return None
