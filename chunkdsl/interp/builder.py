"""The interpreter's builder with memory hooks: every load, store, atomic, barrier and assembly text goes by `memory`.

Signatures are those of Triton 3.6 and 3.7; arguments that are only hints are passed on untouched.
"""

from __future__ import annotations

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as upstream

from chunkdsl.interp import assembly, assembly_words  # noqa: F401  (the second registers its emulations)
from chunkdsl.interp.arithmetic import Arithmetic
from chunkdsl.interp.memory import Memory
from chunkdsl.interp.rewrite import Form

TensorHandle = upstream.TensorHandle
_ir = upstream._ir
_SEM = {
    _ir.MEM_SEMANTIC.RELAXED: "relaxed",
    _ir.MEM_SEMANTIC.ACQUIRE: "acquire",
    _ir.MEM_SEMANTIC.RELEASE: "release",
    _ir.MEM_SEMANTIC.ACQUIRE_RELEASE: "acq_rel",
}
_SCOPE = {
    _ir.MEM_SYNC_SCOPE.CTA: "cta",
    _ir.MEM_SYNC_SCOPE.GPU: "gpu",
    _ir.MEM_SYNC_SCOPE.SYSTEM: "sys",
}
_RMW = {
    getattr(_ir.ATOMIC_OP, name): name.lower()
    for name in ("ADD", "FADD", "MIN", "UMIN", "MAX", "UMAX", "AND", "OR", "XOR", "XCHG")
}


class _AssemblyResult:
    def __init__(self, outputs) -> None:
        self.outputs = outputs

    def get_result(self, index):
        return self.outputs[index]


class Builder(Arithmetic):
    """Upstream's `InterpreterBuilder` for one `interpreting` block; `place` says which program runs next. `form`: how
    kernels are written anew beyond what `rewritten` does."""

    form: Form | None = None

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.memory = memory
        self.options = upstream.InterpreterOptions(sanitize_overflow=False, debug=True)
        self._bulk = False

    def install(self, set_attr) -> None:
        """Replace more of Triton's language for the block, by `set_attr(object, name, value)`."""

    def worked_out(self, made: TensorHandle, given: list[TensorHandle]) -> None:
        """A function of no builder made this of those."""

    def place(self, grid: tuple[int, int, int], index: tuple[int, int, int]) -> None:
        """What `tl.num_programs` and `tl.program_id` return until the next call."""
        self.grid_dim = grid
        self.grid_idx = index

    # ---- loads and stores

    def create_masked_load(self, ptrs, mask, other, cache_modifier, eviction_policy, is_volatile):
        # The flag is taken down first: `memory` may switch to another program inside the call.
        bulk, self._bulk = self._bulk, False
        self.memory.load(ptrs.data, _mask(mask, ptrs), _itemsize(ptrs), bool(is_volatile), bulk)
        return super().create_masked_load(ptrs, _handle(mask), other, cache_modifier, eviction_policy, is_volatile)

    def create_masked_store(self, ptrs, value, mask, cache_modifier, eviction_policy):
        bulk, self._bulk = self._bulk, False
        lanes = _mask(mask, ptrs)
        self.memory.store(ptrs.data, lanes, _itemsize(ptrs), bulk)
        if not bulk and lanes.any() and self.memory.keep(ptrs.data, lanes, value.data):
            return None
        return super().create_masked_store(ptrs, value, _handle(mask), cache_modifier, eviction_policy)

    def create_descriptor_load(self, *args):
        return self._as_bulk(super().create_descriptor_load, args)

    def create_descriptor_store(self, *args):
        return self._as_bulk(super().create_descriptor_store, args)

    def _as_bulk(self, method, args):
        self._bulk = True
        try:
            return method(*args)
        finally:
            self._bulk = False

    # ---- atomics

    def create_atomic_rmw(self, rmwOp, ptr, val, mask, sem, scope):
        def perform():
            return super(Builder, self).create_atomic_rmw(rmwOp, ptr, val, mask, sem, scope).data

        operation = _RMW[rmwOp]
        if operation == "add" and not val.data.any():
            operation = "load"
        lanes = _mask(mask, ptr)
        old = self.memory.atomic(operation, ptr.data, lanes, _itemsize(ptr), _SEM[sem], _SCOPE[scope], perform)
        return TensorHandle(old, val.dtype.scalar)

    def create_atomic_cas(self, ptr, cmp, val, sem, scope):
        def perform():
            return super(Builder, self).create_atomic_cas(ptr, cmp, val, sem, scope).data

        lanes = np.ones(ptr.data.shape, bool)
        old = self.memory.atomic("cas", ptr.data, lanes, _itemsize(ptr), _SEM[sem], _SCOPE[scope], perform)
        return TensorHandle(old, cmp.dtype.scalar)

    def atomic_load(self, addresses: np.ndarray, dtype, sem: str, scope: str) -> np.ndarray:
        """One atomic load for each address."""
        ptr, lanes = self._words(addresses, dtype)
        return self.memory.atomic("load", ptr.data, lanes, _itemsize(ptr), sem, scope, lambda: _raw_load(ptr, lanes))

    def atomic_store(self, addresses: np.ndarray, values: np.ndarray, dtype, sem: str, scope: str, where=None) -> None:
        """One atomic store for each address, or for those where `where` is true."""
        ptr, lanes = self._words(addresses, dtype)
        lanes = lanes if where is None else lanes & where
        data = np.broadcast_to(values, ptr.data.shape).astype(upstream._get_np_dtype(dtype))

        def perform():
            old = _raw_load(ptr, lanes)
            if sem != "relaxed" or not self.memory.keep(ptr.data, lanes, data):
                upstream._interpreter.store(ptr.data, data, lanes)
            return old

        self.memory.atomic("store", ptr.data, lanes, _itemsize(ptr), sem, scope, perform)

    def atomic_cas(self, addresses: np.ndarray, old: int, new: int, dtype, scope: str) -> None:
        """One relaxed compare and swap for each address."""
        ptr, lanes = self._words(addresses, dtype)
        held, put = (TensorHandle(np.full(ptr.data.shape, v, upstream._get_np_dtype(dtype)), dtype) for v in (old, new))

        def perform():
            return super(Builder, self).create_atomic_cas(ptr, held, put, _ir.MEM_SEMANTIC.RELAXED, None).data

        self.memory.atomic("cas", ptr.data, lanes, _itemsize(ptr), "relaxed", scope, perform)

    @staticmethod
    def _words(addresses, dtype):
        data = np.ascontiguousarray(addresses).astype(np.uint64)
        return TensorHandle(data, tl.pointer_type(dtype)), np.ones(data.shape, bool)

    # ---- the rest

    def create_barrier(self):
        self.memory.barrier()

    def create_inline_asm(self, inlineAsm, constraints, values, type, isPure, pack):
        return _AssemblyResult(assembly.run(self, inlineAsm, constraints, values, type, pack))


def _raw_load(ptr, lanes):
    dtype = upstream._get_np_dtype(ptr.get_element_ty())
    return upstream._interpreter.load(ptr.data, lanes, np.zeros(ptr.data.shape, dtype), dtype)


def _mask(mask, ptrs) -> np.ndarray:
    data = mask.data if isinstance(mask, TensorHandle) else np.asarray(mask)
    return data if data.shape == ptrs.data.shape else np.broadcast_to(data, ptrs.data.shape)


def _handle(mask):
    # Descriptor accesses hand over a bare array; it has `.data` too, but that is a memoryview.
    return mask if isinstance(mask, TensorHandle) else TensorHandle(np.asarray(mask), tl.int1)


def _itemsize(ptrs) -> int:
    return max(1, ptrs.get_element_ty().primitive_bitwidth // 8)
