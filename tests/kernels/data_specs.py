"""Specs of kernels in which data decides what is touched, or, with SAFE, does not: as many in one as are asked for."""

from collections.abc import Iterable

from kernel_specs import COPY

PATH = "tests/kernels/kernel_zoo_data.py"
HEAD = """
mesh tp[2]
dim M = 1..64
tensor x : bf16[M @ tp, 32]
tensor w : bf16[32]
"""
ITEM = """
kernel k_{name}(X, W) -> Y = "{path}" : {name} {{
    X = x_ptr : [m, 32]
    W = w_ptr : [32]
    Y = y_ptr : [m, 32]
    arg n_cols = 32
    grid = m
    const BLOCK = 32, SAFE = {safe}
}}
op {name}(x, w) -> y {{ y = k_{name}(all_gather(x), w) with {{ {policy} }} }}
"""


def spec(names: Iterable[str], safe: str = "false") -> str:
    return HEAD + "".join(ITEM.format(name=n, path=PATH, safe=safe, policy=COPY) for n in names)
