"""The arguments of a kernel launch as the interpreter wants them: pointers and scalars become tensors.

`tl.constexpr` parameters stay Python values; launch options that the kernel does not declare are dropped.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter as upstream
from triton.tools.tensor_descriptor import TensorDescriptor

from chunkdsl.interp.rewrite import Form, rewritten


def function_of(kernel) -> Callable:
    """The Python function inside a `@triton.jit` function. Raises TypeError for anything else."""
    fn = getattr(kernel, "fn", None)
    if not inspect.isfunction(fn):
        raise TypeError(f"{kernel!r} is not a @triton.jit function; autotuned kernels cannot be simulated")
    return fn


def constant_names(fn: Callable) -> frozenset[str]:
    """Names of the parameters annotated `tl.constexpr`."""
    notes = inspect.get_annotations(fn)
    return frozenset(name for name, note in notes.items() if note is tl.constexpr or str(note).endswith("constexpr"))


def bind(kernel, arguments: Mapping[str, object], form: Form | None = None) -> tuple[Callable, dict[str, object]]:
    """(function, keyword arguments) of one launch; call the function once for each program, inside `interpreting`.

    `arguments` are by name: torch CPU tensors, host TensorDescriptors, numbers, None, tuples of these. Missing
    parameters take their defaults; raises TypeError where there is none."""
    fn = function_of(kernel)
    run = rewritten(fn, form, kernel)
    declared = inspect.signature(fn).parameters
    chosen = {name: value for name, value in arguments.items() if name in declared}
    try:
        bound = inspect.signature(fn).bind(**chosen)
    except TypeError as error:
        raise TypeError(f"kernel {fn.__name__}: {error}") from error
    bound.apply_defaults()
    constants = constant_names(fn)
    return run, {n: v if n in constants else _convert(n, v) for n, v in bound.arguments.items()}


def tensors_of(value) -> list[torch.Tensor]:
    """The tensors inside one launch argument."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, TensorDescriptor):
        return [value.base]
    if isinstance(value, tuple):
        return [t for item in value for t in tensors_of(item)]
    return []


def _convert(name: str, value):
    if isinstance(value, bool):
        return _scalar(np.array([value]), tl.int1)
    if isinstance(value, float):
        return _scalar(np.array([value], np.float32), tl.float32)
    if isinstance(value, torch.Tensor) and value.device.type != "cpu":
        raise TypeError(f"argument {name} is on {value.device}; the interpreter runs on the CPU")
    if isinstance(value, TensorDescriptor):
        semantic = upstream.interpreter_semantic
        strides = [_convert(name, s) for s in value.strides[:-1]]
        return semantic.make_tensor_descriptor(
            base=_convert(name, value.base),
            shape=[_convert(name, s) for s in value.shape],
            strides=[*strides, tl.constexpr(1)],
            block_shape=[tl.constexpr(b) for b in value.block_shape],
            padding_option=value.padding,
        )
    if isinstance(value, tuple):
        items = [_convert(name, item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return upstream._implicit_cvt(value)


def _scalar(data: np.ndarray, dtype: tl.dtype) -> tl.tensor:
    return tl.tensor(upstream.TensorHandle(data, dtype), dtype)
