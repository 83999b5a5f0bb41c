"""The kernel of `exact` adds up the squares of a row in the order of the fused one. `tl.sum` adds up in the order in
which a layout deals elements to threads: the layouts are compared as the compiler made them."""

import re
from pathlib import Path

import pytest
from emitted import built

from chunkdsl.aot.record import RecordingMachine
from chunkdsl.aot.targets import compile_kernel
from chunkdsl.verify.compile import is_fused

TEXT = """mesh tp[2] over nvlink
dim M = 0..4
dim H = 1024
tensor p : bf16[M, H] sum tp
tensor r : bf16[M, H]
tensor g : bf16[H]
op f(p, r inout, g) -> y {{
    r = r + all_reduce(p) with {{ {p} }}
    y = rms_norm(r, g)
}}
"""


def orders(policy):
    """For each variant whether it is fused, and the layouts whose elements `tl.sum` adds up."""
    _, _, module, title = built(TEXT.format(p=policy))
    machine = RecordingMachine(rank=0, world=2, target="sm_90")
    getattr(module, title)(machine=machine)
    found = {}
    for use in machine.uses:
        if "exchange" in use.name:
            text = compile_kernel(use, "sm_90").ttgir
            layouts = dict(re.findall(r"^(#\w+) = (#ttg.*)$", text, re.M))
            names = re.findall(r"tt\.reshape \S+ allow_reorder .*: tensor<\d+xf32, (#\w+)> ->", text)
            found[is_fused(use)] = [layouts[name] for name in names]
    return found


@pytest.mark.parametrize("policy", ["validity = word", "validity = word, buffers = 2"])
def test_rows_are_added_up_in_one_order(policy):
    found = orders(policy)
    assert len(found[True]) == 1 and found[True] == found[False]


def test_in_two_rounds_where_layouts_have_differed_none_decides():
    _, _, module, _ = built(TEXT.format(p="algorithm = two_shot, validity = flag"))
    kernel = Path(module.__file__).read_text(encoding="utf-8").split("def f_exchange(")[1].split("class _F")[0]
    assert "sum_in_order(" in kernel and "tl.sum(" not in kernel
