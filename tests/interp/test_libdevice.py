"""Functions of libdevice in the interpreter, by every way in which a kernel names them."""

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda.libdevice import tanh
from triton.language.extra.libdevice import rsqrt

from chunkdsl.interp import interpreting
from chunkdsl.interp.libdevice import EMULATED, MODULES, PREDICATES, VALUES


@triton.jit
def normed(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    tl.store(out + i, rsqrt(tl.sum(a * a, axis=0)) * a)
    tl.store(out + BLOCK + i, tanh(a))
    tl.store(out + 2 * BLOCK + i, libdevice.erf(a))
    tl.store(out + 3 * BLOCK + i, tl.where(libdevice.isnan(a), 1.0, libdevice.fma(a, 2.0, 1.0)))


@triton.jit
def halves(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), rsqrt(tl.load(x + tl.arange(0, BLOCK))))


@triton.jit
def unknown(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), libdevice.j0(tl.load(x + tl.arange(0, BLOCK))))


def test_values_are_those_of_torch():
    x = torch.randn(64, generator=torch.Generator().manual_seed(0))
    out = torch.zeros(4, 64)
    with interpreting() as interpreter:
        interpreter.run(normed, (1,), x=x, out=out, BLOCK=64)
    torch.testing.assert_close(out, torch.stack([x / x.norm(), x.tanh(), x.erf(), 2 * x + 1]))


@pytest.mark.parametrize("kernel, dtype, why", [
    (halves, torch.bfloat16, "takes f32 or f64"), (unknown, torch.float32, "j0 has no emulation"),
])  # fmt: skip
def test_what_libdevice_has_not_is_said(kernel, dtype, why):
    with pytest.raises(TypeError, match=why), interpreting() as interpreter:
        interpreter.run(kernel, (1,), x=torch.ones(16, dtype=dtype), BLOCK=16)


def test_the_names_are_libdevices_and_the_modules_are_left_as_they_were():
    before = [dict(vars(m)) for m in MODULES]
    with interpreting():
        assert libdevice.erf is EMULATED["erf"]
    assert [dict(vars(m)) for m in MODULES] == before
    assert {*VALUES, *PREDICATES} <= EMULATED.keys()
