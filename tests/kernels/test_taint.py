"""What stays known of a value that depends on what is loaded."""

import numpy as np
import pytest
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from chunkdsl.kernels.taint import MARK, UNKNOWN, Taint, joined, product, same, taint_of


def handle(value, modulus):
    """Known modulo `modulus`; 0: exactly."""
    taint = Taint(7, "loads it from I", modulus) if modulus else None
    return TensorHandle(np.atleast_1d(np.asarray(value, np.int32)), tl.int32, {MARK: taint})


@pytest.mark.parametrize("left, right, rule, modulus", [
    ((0, 1), (64, 0), product, 64),          # group * K
    ((0, 64), ([0, 3, 5], 0), same, 64),     # + ks
    ((0, 64), (160, 0), product, 64 * 160),  # * N: whole rows
    ((0, 1), ([4, 6], 0), product, 2),
    ((5, 8), (3, 6), product, 6),            # (5 + 8 u)(3 + 6 v) = 15 + 30 v + 24 u + 48 u v
    ((0, 64), (0, 48), same, 16),
    ((0, 1), (0, 1), product, 1),
])  # fmt: skip
def test_an_index_is_known_modulo_what_it_is_multiplied_with(left, right, rule, modulus):
    args = handle(*left), handle(*right)
    taint = rule(args, None)
    assert (taint.line, taint.source, taint.modulus) == (7, "loads it from I", modulus)


def test_what_nobody_marked_counts_as_tainted():
    assert taint_of(TensorHandle(np.zeros(1, np.float32), tl.float32)) == UNKNOWN
    assert joined([handle(3, 0)]) is None and joined([handle(3, 0), TensorHandle(np.zeros(1, np.int32), tl.int32)])
