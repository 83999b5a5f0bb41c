"""Operators on operands of every two kinds: the short ways of `speed` against Triton's own semantic."""

import itertools

import numpy as np
import pytest
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as upstream

from chunkdsl.interp import interpreting
from chunkdsl.interp.speed import Semantic

KINDS = [tl.int1, tl.int8, tl.int32, tl.uint32, tl.int64, tl.float16, tl.float32, tl.float64]
NUMBERS = [0, 3, -1, 2**31 - 1, 2**31, -(2**40), 2.5, True]
OPERATIONS = ("add", "sub", "mul", "mod", "less_than", "and_", "truediv", "minimum")


def tensor(kind, *shape):
    values = (np.arange(int(np.prod(shape))) % 3 + 1).astype(upstream._get_np_dtype(kind)).reshape(shape or (1,))
    return tl.tensor(upstream.TensorHandle(values, kind), tl.block_type(kind, list(shape)) if shape else kind)


def operands():
    made = [(kind, shape) for kind in KINDS for shape in ((), (4,), (2, 4))]
    pairs = itertools.product(made, [*made, *((number, None) for number in NUMBERS)])
    return [(a, b) for a, b in pairs if b[1] is None or not a[1] or not b[1] or a[1] == b[1]]


def outcome(semantic, operation, a, b):
    """Type and values, or the kind of error."""
    left, right = tensor(a[0], *a[1]), tensor(b[0], *b[1]) if b[1] is not None else b[0]
    named = {"sanitize_overflow": False} if operation in ("add", "sub", "mul") else {}
    named |= {"propagate_nan": tl.PropagateNan.NONE} if operation == "minimum" else {}
    if operation == "minimum" and b[1] is None:
        right = semantic.to_tensor(right)
    try:
        made = getattr(semantic, operation)(left, right, **named)
    except Exception as error:
        return type(error)
    return str(made.type), made.handle.data.dtype, repr(made.handle.data.tolist())


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_short_way_gives_what_triton_gives(operation):
    with interpreting() as made:
        ours, theirs = Semantic(made.builder), TritonSemantic.__new__(TritonSemantic)
        TritonSemantic.__init__(theirs, made.builder)
        for a, b in operands():
            assert outcome(ours, operation, a, b) == outcome(theirs, operation, a, b), (operation, a, b)


def test_pointers_move_by_tensors_and_numbers():
    with interpreting() as made:
        ours, theirs = Semantic(made.builder), TritonSemantic.__new__(TritonSemantic)
        TritonSemantic.__init__(theirs, made.builder)
        address = tl.tensor(upstream.TensorHandle(np.array([64], np.uint64), tl.pointer_type(tl.int32)),
                            tl.pointer_type(tl.int32))  # fmt: skip
        for offset in (tensor(tl.int32, 4), tensor(tl.int64), tensor(tl.int8), 3, -1):
            one, other = (s.add(address, offset, False) for s in (ours, theirs))
            assert str(one.type) == str(other.type) and one.handle.data.tolist() == other.handle.data.tolist()
        for wrong in (tensor(tl.float32), address):
            with pytest.raises(Exception, match=r"pointer|invalid operands|type"):
                ours.add(address, wrong, False)
