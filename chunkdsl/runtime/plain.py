"""Arithmetic of fallbacks beside torch's own functions. Copied into the module."""

from __future__ import annotations

import math

import torch


def wide(tensor):
    """f32 where the dtype is a half; epilogues compute in it."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def narrow(tensor, dtype):
    """Round to the declared dtype; float64 (which only the fallback takes) stays."""
    found = tensor.dtype
    return tensor if found is dtype or found is torch.float64 else tensor.to(dtype)


def own_memory(tensor):
    """A result in memory of its own, as a kernel's is: not a part of what the process group has left."""
    return tensor if tensor.is_contiguous() and tensor.storage_offset() == 0 else tensor.clone().contiguous()


def gelu_slope(x):
    """The derivative of the erf form of gelu."""
    density = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return 0.5 * (1 + torch.erf(x / math.sqrt(2))) + x * density


def norm_slope(x, d, eps):
    """The cotangent of x [rows, n], where d is that of x / sqrt(mean of a row's squares + eps)."""
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    y = x * scale
    return scale * (d - y * (d * y).mean(-1, keepdim=True))


def product_in_f32(a, b):
    """a @ b of halves, not rounded. float64 stays."""
    return wide(a) @ wide(b)
