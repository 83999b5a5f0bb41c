"""Kernels in the manner of libraries: imports that are tried, a tuner of their own, a guard that returns, numbers that
are cast, branches for what is not used here. None knows of ranks."""

import nowhere.tuning as tuning
import triton
import triton.language as tl
from nowhere.activations import gelu
from nowhere.device import is_old

if is_old():
    from triton.language.math import nothing_of_this_name as rsqrt
else:
    try:
        from triton.language.extra.libdevice import rsqrt
    except ModuleNotFoundError:
        from triton.language.extra.cuda.libdevice import rsqrt


@tuning.tuner(
    configs=tuning.configs(),
    key=["n_cols"],
)
@triton.jit(do_not_specialize=["eps"])
def norm(x_ptr, w_ptr, y_ptr, n_rows, n_cols, eps, EACH: tl.constexpr, BLOCK: tl.constexpr, ACT: tl.constexpr = "no"):
    """Rows divided by the root of their mean square."""
    first = tl.program_id(0) * EACH
    if first >= n_rows:
        return  # the grid may be longer
    cols = tl.arange(0, BLOCK)

    w = tl.load(w_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    if tl.program_id(1) > 0: return  # noqa: E701
    for row in range(first, tl.minimum(first + EACH, n_rows)):
        at = row * n_cols.to(tl.int64) + cols
        x = tl.load(x_ptr + at, mask=cols < n_cols, other=0.0, cache_modifier=".ca").to(tl.float32)
        y = x * rsqrt(tl.sum(x * x, axis=0) / n_cols + eps.to(tl.float32)) * w
        if ACT == "gelu":
            y = gelu(y)
        elif ACT == "half":
            y = 0.5 * y
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
