"""A kernel whose text has been rewritten before, in another file: its lines are those of its own."""

import traceback

import pytest

from chunkdsl.interp.rewrite import rewritten
from chunkdsl.verify.verify import load

KERNEL = """import triton
import triton.language as tl


@triton.jit
def helper(x, k: tl.constexpr):
    y = x + k
    return y


@triton.jit
def fails(x):
    for i in range(2):
        y = x // i
    return y
"""


@pytest.mark.parametrize("held", [True, False])
def test_lines_are_those_of_the_file_at_hand(tmp_path, held):
    said = []
    for name, head in (("first", ""), ("second", "\n# one line more\n")):
        module = load(head + KERNEL, tmp_path, f"{name}_{held}")
        run = rewritten(module.fails.fn, None, module.fails if held else None)
        assert rewritten(module.fails.fn) is run and run.__globals__ is vars(module)
        with pytest.raises(Exception) as caught:
            run("no number")
        frame = traceback.extract_tb(caught.value.__traceback__)
        said += [(f.filename.rsplit("/")[-1].partition("_")[0], f.lineno) for f in frame if f.name == "fails"]
    assert said == [("first", 14), ("second", 16)]
