"""The interpreter's arithmetic, corrected where upstream is silently wrong.

Upstream adds and compares bfloat16 as the integers that hold it, truncates instead of rounding to it, accumulates
f16 products in f16, and rounds fp8 halves upward. Here values are widened to float32, calculated, rounded once.
Integer overflow checks are left out: wrap-around is what the hardware does.
"""

from __future__ import annotations

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter as upstream

from chunkdsl.interp.numbers import FP8, narrow, to_bfloat16, widen

TensorHandle = upstream.TensorHandle
_FOREIGN = {t.name for t in (tl.bfloat16, *FP8)}


def _foreign(handle) -> bool:
    return handle.dtype.scalar.name in _FOREIGN


class Arithmetic(upstream.InterpreterBuilder):
    """Overrides of upstream's builder methods; signatures are upstream's."""

    def get_bf16(self, value):
        return TensorHandle(to_bfloat16(np.array([value])), tl.bfloat16)

    def binary_op(self, lhs, rhs, op):
        if not _foreign(lhs):
            return super().binary_op(lhs, rhs, op)
        dtype = lhs.dtype.scalar
        out = op(widen(lhs.data, dtype), widen(rhs.data, rhs.dtype.scalar))
        return TensorHandle(out if out.dtype == np.bool_ else narrow(out, dtype), dtype)

    def unary_op(self, arg, op):
        if not _foreign(arg):
            return super().unary_op(arg, op)
        dtype = arg.dtype.scalar
        return TensorHandle(narrow(op(widen(arg.data, dtype)), dtype), dtype)

    def ternary_op(self, lhs, rhs, other, op):
        if op is np.where or not _foreign(other):
            return super().ternary_op(lhs, rhs, other, op)
        dtype = other.dtype.scalar
        values = (widen(h.data, h.dtype.scalar) for h in (lhs, rhs, other))
        return TensorHandle(narrow(op(*values), dtype), dtype)

    def create_fma(self, x, y, z):
        if not _foreign(z):
            return super().create_fma(x, y, z)
        a, b, c = (widen(h.data, h.dtype.scalar) for h in (x, y, z))
        return TensorHandle(narrow(a * b + c, z.dtype.scalar), z.dtype.scalar)

    def create_rsqrt(self, arg):
        return self.unary_op(arg, lambda x: (1 / np.sqrt(x)).astype(x.dtype))

    def create_erf(self, arg):
        values = torch.erf(torch.from_numpy(np.ascontiguousarray(arg.data))).numpy()
        return TensorHandle(values, arg.dtype.scalar)

    def cast_impl(self, src, dst_type):
        source, target = src.dtype.scalar, dst_type.scalar
        if source == target or not (_foreign(src) or target == tl.bfloat16 or target in FP8):
            return super().cast_impl(src, dst_type)
        values = widen(src.data, source)
        bits = narrow(values, target)
        if bits is None:
            bits = values.astype(upstream._get_np_dtype(target))
        return TensorHandle(bits, target)

    def create_fp_to_fp(self, src, dst_type, rounding_mode):
        known = {tl.bfloat16, tl.float16, tl.float32, tl.float64, *FP8}
        nearest = rounding_mode in (None, upstream._ir.ROUNDING_MODE.RTNE)
        if nearest and src.dtype.scalar in known and dst_type.scalar in known:
            return self.cast_impl(src, dst_type)
        return super().create_fp_to_fp(src, dst_type, rounding_mode)

    def create_dot(self, a, b, d, *rest):
        if not a.dtype.is_floating():
            return super().create_dot(a, b, d, *rest)
        product = np.float64 if a.dtype.scalar == tl.float64 else np.float32
        left, right = (widen(h.data, h.dtype.scalar).astype(product, copy=False) for h in (a, b))
        total = np.matmul(left, right) + d.data
        return TensorHandle(total.astype(d.data.dtype, copy=False), d.dtype.scalar)


def reduce_in_float32(apply_impl):
    """Wrap a reduction or scan of upstream so that bfloat16 inputs are combined in float32 and rounded once."""

    def apply(self, inputs):
        was = [t.dtype == tl.bfloat16 for t in inputs]
        if not any(was):
            return apply_impl(self, inputs)
        wide = tuple(_float32(t) if narrow_ else t for t, narrow_ in zip(inputs, was, strict=True))
        results = apply_impl(self, wide)
        single = not isinstance(results, (list, tuple))
        listed = [results] if single else list(results)
        out = [_bfloat16(t) if t.dtype == tl.float32 and was[min(i, len(was) - 1)] else t for i, t in enumerate(listed)]
        return out[0] if single else out

    return apply


def _retype(tensor, data, dtype):
    kind = tl.block_type(dtype, list(tensor.shape)) if tensor.type.is_block() else dtype
    return tl.tensor(TensorHandle(data, dtype), kind)


def _float32(tensor):
    return _retype(tensor, widen(tensor.handle.data, tl.bfloat16), tl.float32)


def _bfloat16(tensor):
    return _retype(tensor, to_bfloat16(tensor.handle.data), tl.bfloat16)
