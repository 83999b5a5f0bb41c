"""Caches for what the interpreter builds anew at every operation: shapes, and numpy dtypes. Same results, sooner.

Measured on a fused GEMM with small tiles: Triton's own bookkeeping of shapes is most of the time of a run.
"""

from __future__ import annotations

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as upstream


class Semantic(TritonSemantic):
    """Triton's semantic with a shorter way to broadcast: same results, views instead of copies."""

    def broadcast_impl_value(self, lhs, rhs):
        left, right = lhs.type, rhs.type
        if not left.is_block():
            return (_splat(lhs, right.shape), rhs) if right.is_block() else (lhs, rhs)
        if not right.is_block():
            return lhs, _splat(rhs, left.shape)
        a, b = left.shape.values, right.shape.values
        if a == b:
            return lhs, rhs
        if len(a) != len(b) or any(i != j and i != 1 and j != 1 for i, j in zip(a, b, strict=True)):
            return super().broadcast_impl_value(lhs, rhs)
        shape = [max(i, j) for i, j in zip(a, b, strict=True)]
        return (lhs if a == shape else _splat(lhs, shape)), (rhs if b == shape else _splat(rhs, shape))


def _splat(tensor, shape):
    data = tensor.handle.data
    data = np.broadcast_to(data.reshape(()) if data.size == 1 else data, tuple(shape))
    dtype = tensor.type.scalar
    return tl.tensor(upstream.TensorHandle(data, dtype, dict(tensor.handle.attr)), tl.core.block_type(dtype, shape))


def install(changes) -> None:
    """Put the caches in place; `changes` takes them away again."""
    changes.set_attr(tl.core.block_type, "__init__", _block_type(tl.core.block_type.__init__))
    changes.set_attr(tl.tensor, "__init__", _tensor(tl.tensor.__init__))
    changes.set_attr(upstream, "_get_np_dtype", _numpy_dtype(upstream._get_np_dtype))
    changes.set_attr(upstream, "_patch_attr", _patch_attr)


def _patch_attr(obj, name, member, builder, scope) -> None:
    """Upstream's, but past the wrapper whose only work is to insist on `_semantic`, and with that of the day."""
    inner = getattr(member, "__wrapped__", member)

    def call(*args, _semantic=None, **kwargs):
        return inner(*args, _semantic=upstream.interpreter_semantic, **kwargs)

    scope.set_attr(obj, name, call)


def _block_type(original):
    known: dict[tuple, tuple[dict, str]] = {}

    def init(self, element_ty, shape):
        key = tuple(s.value if isinstance(s, tl.constexpr) else s for s in shape)
        found = known.get(key)
        if found is None:
            original(self, element_ty, shape)
            same = {k: v for k, v in self.__dict__.items() if k not in ("element_ty", "name")}
            known[key] = same, f"<{self.shape}, "
            return
        self.__dict__.update(found[0])
        self.element_ty = element_ty
        self.name = f"{found[1]}{element_ty}>"

    return init


def _tensor(original):
    known: dict[tuple, tuple] = {}

    def init(self, handle, type):
        key = tuple(type.shape.values) if type.is_block() else ()
        found = known.get(key)
        if found is None:
            original(self, handle, type)
            known[key] = self.shape, self.numel
            return
        self.handle = handle
        self.type = type
        self.dtype = type.scalar
        self.shape, self.numel = found

    return init


def _numpy_dtype(original):
    known: dict[str, object] = {}

    def dtype_of(dtype):
        found = known.get(dtype.name)
        if found is None:
            found = known[dtype.name] = original(dtype)
        return found

    return dtype_of
