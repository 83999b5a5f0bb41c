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


ODD = """
mesh tp[2]
dim M = 1..{rows}
tensor x : bf16[M @ tp, 16]
tensor q : bf16[{rows}, 16]
tensor w : bf16[352 @ tp]
"""
ODD_ITEM = """
kernel k_{name}({tensors}) -> Y = "{path}" : {name} {{
{bound}    grid = {grid}
    const N = 16, ODD = {odd}
}}
op {name}({params}) -> y {{ y = k_{name}({args}) with {{ {policy} }} }}
"""
COLUMNS = "    X = x_ptr : [m, 16]\n    W = w_ptr : [n]\n    Y = y_ptr : [m, n]\n    arg n = n\n"
TURNS = "    X = x_ptr : [m, 16]\n    Q = q_ptr : [s, 16]\n    Y = y_ptr : [s, 16]\n    arg M = m\n"
ROWS = "    X = x_ptr : [m, 16]\n    Y = y_ptr : [m, 16]\n    arg M = m\n"
OTHERS = {
    "reads_other_columns": dict(tensors="X, W", bound=COLUMNS, grid="m, cdiv(n, N)", params="x, w",
                                args="all_gather(x), w"),
    "reads_out_of_turn": dict(tensors="X, Q", bound=TURNS, grid="s", params="x, q", args="all_gather(x), q"),
    "reads_another_row_of_a_block": dict(grid="cdiv(m, 4)"),
}  # fmt: skip


def programs_spec(path: str, names: Iterable[str], odd: int, rows: int = 256) -> str:
    """Kernels of whose programs one may be out of line."""
    plain = dict(tensors="X", bound=ROWS, grid="m", params="x", args="all_gather(x)", path=path, odd=odd, policy=COPY)
    items = [ODD_ITEM.format(**{**plain, **OTHERS.get(name, {})}, name=name) for name in names]
    return ODD.format(rows=rows) + "".join(items)


SIZED = """
mesh tp[2]
dim M = 1..300
dim K = 8..32 step 8
tensor x : bf16[M @ tp, 32]
tensor q : bf16[K, 32]
"""
SIZED_ITEM = """
kernel k_{name}(X{own}) -> Y = "tests/kernels/kernel_zoo_sizes.py" : {name} {{
    X = x_ptr : [m, 32]
{bound}    Y = y_ptr : [m, 32]
    arg M = m
    grid = {grid}
    const {constants}
}}
op {name}(x{given}) -> y {{ y = k_{name}(all_gather(x){given}) with {{ {policy} }} }}
"""
SECOND = dict(own=", Q", bound="    Q = q_ptr : [s, 32]\n    arg K = s\n", given=", q")


def sizes_spec(names: Iterable[str], constants: str, grid: str = "m") -> str:
    """Kernels of which a size may be out of line."""
    shared = dict(policy=COPY, constants=constants, grid=grid, own="", bound="", given="")
    return SIZED + "".join(
        SIZED_ITEM.format(**shared | (SECOND if n == "odd_height" else {}), name=n) for n in names
    )
