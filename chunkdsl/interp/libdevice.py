"""Functions of libdevice in numpy: Triton's interpreter has only their names, and kernels of libraries call them.

Of f32 and f64, as libdevice has them; other types are refused here as the compiler refuses them. Values are rounded as
numpy rounds, which may differ from a GPU's in the last place. Integer functions are not here.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import torch
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda
from triton.runtime import interpreter as upstream

MODULES = (libdevice, cuda)


def _torch(function: Callable) -> Callable:
    return lambda x: function(torch.from_numpy(np.ascontiguousarray(x))).numpy()


def _same(*names: str) -> dict[str, Callable]:
    return {name: getattr(np, name) for name in names}


VALUES: dict[str, Callable] = {
    **_same("abs", "floor", "ceil", "trunc", "rint", "sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
    **_same("sin", "cos", "tan", "sinh", "cosh", "tanh", "fmod", "hypot", "copysign", "nextafter"),
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "nearbyint": np.rint, "pow": np.power,
    "fast_expf": np.exp, "fast_logf": np.log, "fast_log2f": np.log2, "fast_log10f": np.log10, "fast_powf": np.power,
    "fast_sinf": np.sin, "fast_cosf": np.cos, "fast_tanf": np.tan, "fast_tanhf": np.tanh, "fast_dividef": np.divide,
    "div_rn": np.divide, "add_rn": np.add, "sub_rn": np.subtract, "mul_rn": np.multiply, "sqrt_rn": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "rsqrt_rn": lambda x: 1 / np.sqrt(x), "rcp_rn": np.reciprocal,
    "cbrt": np.cbrt, "exp10": lambda x: np.power(x.dtype.type(10), x),
    "round": lambda x: np.trunc(x + np.copysign(x.dtype.type(0.5), x)),
    "saturatef": lambda x: np.clip(x, 0, 1), "fma": lambda x, y, z: x * y + z, "fdim": lambda x, y: np.fmax(x - y, 0),
    "erf": _torch(torch.special.erf), "erfc": _torch(torch.special.erfc), "erfinv": _torch(torch.special.erfinv),
    "lgamma": _torch(torch.lgamma),
}  # fmt: skip
PREDICATES = {"isnan": np.isnan, "isinf": np.isinf, "finitef": np.isfinite, "isfinited": np.isfinite}


def emulation(name: str) -> Callable:
    """The function as a kernel calls it, on tensors and numbers. TypeError in a call of one that is not here, or of
    other types than f32 and f64."""
    function = VALUES.get(name) or PREDICATES.get(name)

    def call(*args, _semantic=None, **_):
        if function is None:
            raise TypeError(f"libdevice.{name} has no emulation on the CPU")
        tensors = [upstream.interpreter_semantic.to_tensor(a, False) for a in args]
        dtype = tensors[0].dtype
        if any(t.dtype != dtype for t in tensors) or dtype not in (tl.float32, tl.float64):
            raise TypeError(f"libdevice.{name} takes f32 or f64, not {', '.join(str(t.dtype) for t in tensors)}")
        given = np.broadcast_arrays(*(t.handle.data for t in tensors))
        data = np.asarray(function(*given))
        made = tl.int1 if name in PREDICATES else dtype
        data = data.astype(upstream._get_np_dtype(made), copy=False)
        blocks = [t.type for t in tensors if t.type.is_block()]
        kind = tl.block_type(made, list(data.shape)) if blocks else made
        handle = upstream.TensorHandle(data, made)
        upstream.interpreter_builder.worked_out(handle, [t.handle for t in tensors])
        return tl.tensor(handle, kind)

    return call


EMULATED = {name: emulation(name) for module in MODULES for name, f in vars(module).items()
            if callable(f) and getattr(f, "__module__", "") == module.__name__}  # fmt: skip


def stands_for(value: object) -> object | None:
    """What a kernel's global name means in the interpreter: the emulation of a function of libdevice, what now stands
    in Triton's language by that name (`from triton.language import load`), else None."""
    if getattr(value, "__triton_builtin__", False) and hasattr(tl, value.__name__):
        return lambda *args, **named: getattr(tl, value.__name__)(*args, **named)
    if isinstance(value, ModuleType) or getattr(value, "__module__", "") not in {m.__name__ for m in MODULES}:
        return None
    return EMULATED.get(getattr(value, "__name__", ""))


def install(changes) -> None:
    """For `libdevice.tanh(x)`; `changes` takes it away again."""
    for module in MODULES:
        for name in vars(module).keys() & EMULATED.keys():
            changes.set_attr(module, name, EMULATED[name])
